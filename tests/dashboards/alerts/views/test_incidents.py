from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

import pytest
from django.test import Client

from dashboards.alerts.presenters import reconnect_query_of
from dashboards.alerts.prior_changes import find_prior_changes
from dashboards.alerts.views import incidents
from dashboards.changes.audit_text import describe_action
from dashboards.changes.target_agents import select_campaign_targets
from dashboards.shared import headlines
from fleet.alerts.headlines.headline import describe_stale_fleet
from fleet.models.access import Permission
from fleet.models.alerting import Channel, Delivery, Silence
from fleet.models.changes import AuditEntry, Change
from fleet.models.incidents import Incident, IncidentEvent, VersionChange
from fleet.models.inventory import Instance
from fleet.models.networking import NetworkingRevision
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser
from tests.fakes.history_rows import create_instance_change
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


def test_list_shows_open_incidents_and_the_last_evaluation(
    client: Client, person: MakeUser, incident: Incident, fake_reader: FakeReader
) -> None:
    """With a link to each."""
    client.force_login(person("viewer"))
    page = client.get("/incidents/").content.decode()
    assert f"/incidents/{incident.pk}/" in page
    assert "Alert rules have not been evaluated yet" in page
    badge = client.get("/incidents/badge.json").json()
    assert badge["open"] == {"critical": 1, "warning": 0, "info": 0}
    assert badge["newest"] == {"event": 0}
    assert badge["headline"]["text"] == "2 agents stranded and 1 at risk."
    assert not badge["data"]["stale"]
    assert badge["data"]["age_ms"] > 0
    fake_reader.as_of = 1.0
    assert client.get("/incidents/badge.json").json()["data"]["stale"]
    notification = IncidentEvent.objects.create(incident=incident, at=1.0, kind="notification")
    assert client.get("/incidents/badge.json").json()["newest"] == {
        "event": notification.pk, "number": incident.pk, "severity": "critical",
        "text": "CRIT default: 207 agents stranded (agents without a common cause)",
    }  # fmt: skip


def test_badge_of_a_past_page_has_the_incidents_of_its_moment(
    client: Client, person: MakeUser, incident: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open then, also if it is resolved now; no failing channels; an invalid moment is refused."""
    client.force_login(person("viewer"))
    headline = describe_stale_fleet(FakeReader().stream_header("default", 0.0), 0.0)
    monkeypatch.setattr(headlines, "headline_at", lambda moment, cluster: headline)
    monkeypatch.setattr(incidents, "open_moment", lambda at, cluster: None)
    Incident.objects.update(opened_at=100.0, resolved_at=200.0, state="resolved")
    assert client.get("/incidents/badge.json").json()["open"]["critical"] == 0
    Channel.objects.create(name="ops", kind="webhook", failing_since=250.0)
    for at, count in (("00:01:30", 0), ("00:02:30", 1), ("00:03:30", 0)):
        badge = client.get(f"/incidents/badge.json?at=1970-01-01T{at}Z").json()
        assert (badge["open"]["critical"], badge["headline"]["state"]) == (count, "unknown")
        assert badge["failing_channels"] == []
    answer = client.get("/incidents/badge.json?at=nonsense")
    assert (answer.status_code, "Invalid time" in answer.json()["detail"]) == (400, True)


def test_incident_page_shows_cause_effect_and_actions(
    client: Client, person: MakeUser, incident: Incident
) -> None:
    """Count, cause, what they have in common, agents, what comes next and why."""
    client.force_login(person("operator"))
    page = client.get(f"/incidents/{incident.pk}/").content.decode()
    for text in (
        "<h1>2 agents stranded and 1 at risk",
        "peak 207",
        "Common attributes",
        "Home proxy",
        "agent-2",
        "Changes in the 30 min before",
        "<dt>Data as of</dt>",
    ):
        assert text in page
    assert "(repeat every 4 h)" in page
    assert "Nobody receives it: the route has no channel" in page
    assert "Acknowledge" in page
    assert f'href="/alerts/runbooks/agents/?incident={incident.pk}"' in page


def test_page_shows_changes_of_the_half_hour_before(
    client: Client, person: MakeUser, incident: Incident
) -> None:
    """Changes, actions, config revisions and new versions; nothing older, and nothing later."""
    at = datetime.fromtimestamp(incident.opened_at, UTC)
    cluster = incident.cluster
    common = {
        "cluster": cluster,
        "kind": "reconnect",
        "state": "verified",
        "actor_name": "ada",
        "actor_kind": "person",
    }
    for title, begin, end in (("ran", 120, 10), ("long ago", 120, 60)):
        Change.objects.create(
            title=title,
            started_at=at - timedelta(minutes=begin),
            ended_at=at - timedelta(minutes=end),
            **common,
        )
    for subject, minutes in (("web", 5), ("old", 31), ("after", -1)):
        AuditEntry.objects.create(
            at=at - timedelta(minutes=minutes), cluster="default", actor_name="bo", actor_kind="person",
            action="instance.drain", subject=subject, outcome="succeeded",
        )  # fmt: skip
    for action in ("channel.test", "page.incident.silence", "token.create"):
        AuditEntry.objects.create(
            at=at - timedelta(minutes=4), cluster="default", actor_name="cy", actor_kind="person",
            action=action, subject="console", outcome="succeeded",
        )  # fmt: skip
    first = NetworkingRevision.objects.create(cluster=cluster, revision="r1", document={}, at=at)
    NetworkingRevision.objects.create(
        cluster=cluster, revision="r2", document={}, at=at - timedelta(minutes=3), previous=first
    )
    for number in (1, 2):
        VersionChange.objects.create(
            cluster=cluster, instance_id=f"p{number}", name=f"proxy-{number}", old="17.1", new="17.2",
            at=incident.opened_at - 60,
        )  # fmt: skip
    prior_changes = find_prior_changes("default", incident.opened_at, is_limited_user=False)
    assert [(change.actor, change.summary) for change in prior_changes] == [
        ("proxy-1, proxy-2", "version changed from 17.1 to 17.2"),
        ("Outside of Refloat", "networking config revision r2"),
        ("bo", "drain instance: web"),
        ("ada", "ran (verified)"),
    ]
    client.force_login(person("viewer"))
    assert "version changed from 17.1 to 17.2" in client.get(f"/incidents/{incident.pk}/").content.decode()


def test_page_shows_the_state_history_of_an_instance(
    client: Client, person: MakeUser, incident: Incident
) -> None:
    """The last state changes of the instance, or of the backend."""
    Instance.objects.create(
        cluster=incident.cluster, instance_id="a1", kind="auth", name="auth-1", position=0
    )
    for name, new in (("p1", "silent"), ("backend/default", "ok"), ("p2", "gone"), ("a1", "unhealthy")):
        create_instance_change(name, time.time(), "expired", new)
    client.force_login(person("viewer"))
    timelines = []
    for kind, identity in (("proxy", "p1"), ("backend", "default")):
        Incident.objects.filter(pk=incident.pk).update(cause_kind=kind, cause_id=identity)
        page = client.get(f"/incidents/{incident.pk}/").content.decode()
        timelines.append(
            [new for new in ("not responding", "OK", "deregistered") if f"expired → <b>{new}</b>" in page]
        )
    assert timelines == [["not responding"], ["OK"]]
    assert "agents without a common cause: expired → <b>OK</b>" in page
    assert "<bdi>auth-1</bdi></a>: expired → <b>unhealthy</b>" in page
    # Without changes after its end.
    Incident.objects.update(state="resolved", resolved_at=incident.opened_at)
    assert "→" not in client.get(f"/incidents/{incident.pk}/").content.decode().partition("<main")[2]


@pytest.mark.parametrize(
    ("kind", "state", "expected"),
    [
        ("proxy", InstanceState.UNHEALTHY, ("proxy=proxy-1", "")),
        ("proxy", InstanceState.SILENT, ("", "Refloat cannot reach the agents of proxy-1")),
        ("auth", InstanceState.SILENT, ("connection=auth&auth=auth-1", "")),
        ("backend", None, ("", "")),
    ],
)
def test_reconnect_is_offered_where_agents_are_reachable(
    incident: Incident, kind: str, state: InstanceState | None, expected: tuple[str, str]
) -> None:
    """A silent proxy cannot advise its agents; the page explains it."""
    incident.cause_kind, incident.cause_name = kind, f"{kind}-1"
    table = FakeReader([State.STRANDED] * 4, as_of=time.time()).table("default", time.time())
    query, sentence = reconnect_query_of(incident, state, table)
    assert (query, sentence[: len(expected[1])]) == expected
    assert bool(sentence) == bool(expected[1])


def test_proxy_without_affected_agents_needs_no_campaign(incident: Incident) -> None:
    """Its agents found other proxies by themselves, or it is OK again; an unhealthy one can still be left."""
    incident.cause_kind, incident.cause_name = "proxy", "proxy-1"
    table = FakeReader([State.HEALTHY] * 4, as_of=time.time()).table("default", time.time())
    sentence = "Refloat cannot reach the agents of proxy-1, so it cannot move them."
    assert reconnect_query_of(incident, InstanceState.SILENT, table) == ("", sentence)
    assert reconnect_query_of(incident, InstanceState.OK, table) == ("proxy=proxy-1", "")
    incident.affected_count = 0
    assert reconnect_query_of(incident, InstanceState.SILENT, table) == ("", "")
    assert reconnect_query_of(incident, InstanceState.OK, table) == ("", "")
    assert reconnect_query_of(incident, InstanceState.UNHEALTHY, table) == ("proxy=proxy-1", "")


def test_duration_is_the_time_for_which_rules_matched(
    client: Client, person: MakeUser, incident: Incident
) -> None:
    """It ends before the incident is resolved, so page and list say what it is."""
    at = incident.opened_at
    Incident.objects.update(state="resolved", recovering_since=at + 301, resolved_at=at + 602)
    client.force_login(person("viewer"))
    assert "(rules matched for 5 min 1 s)" in client.get(f"/incidents/{incident.pk}/").content.decode()
    assert "for 5 min 1 s" in client.get("/incidents/?tab=resolved").content.decode()


def test_resolved_incident_shows_the_rules_behind_its_peak_severity(
    client: Client, person: MakeUser, incident: Incident
) -> None:
    """A critical incident lists the critical rule, also if a warning held last."""
    marks = {"Auth or proxy failing": [1.0, 1.0, 2, 1, 207, "proxy-1 is not responding.", True, False]}
    Incident.objects.update(marks=marks, fired_rule_names=["Agents stranded", "Auth or proxy failing"])
    client.force_login(person("viewer"))
    url = f"/incidents/{incident.pk}/"
    page = client.get(url).content.decode()
    assert "Alert rules: Agents stranded, Auth or proxy failing." in page
    assert "was critical" not in page
    Incident.objects.update(marks={}, fired_rule_names=[])
    assert "Alert rules:" not in client.get(url).content.decode()  # of a version that stored none
    Incident.objects.update(state="resolved", resolved_at=time.time())
    assert "was critical" in client.get(url).content.decode()
    assert "was critical" in client.get("/incidents/?tab=resolved").content.decode()


def test_cause_of_an_incident_of_the_whole_fleet_is_not_its_effect(
    client: Client, person: MakeUser, incident: Incident
) -> None:
    """The name of such a cause is the summary again."""
    name = "agents lost within one minute"
    Incident.objects.update(
        key="fleet/rate", cause_kind="fleet", cause_id="rate", cause_name=name, summary=f"19 {name}."
    )
    client.force_login(person("viewer"))
    for url in ("/incidents/", f"/incidents/{incident.pk}/"):
        page = client.get(url).content.decode()
        assert ">no common cause</" in page
        assert f">{name}</" not in page


@pytest.mark.parametrize("is_down", [False, True])
def test_incident_page_with_stale_data_does_not_claim_zero_affected_agents(
    client: Client, person: MakeUser, incident: Incident, fake_reader: FakeReader, *, is_down: bool
) -> None:
    """When polling has stopped or the record is unreadable, the count is old and the list unknown."""
    fake_reader.as_of, fake_reader.down = time.time() - 60, is_down
    incident.inhibited_by = "console/default"
    incident.save()
    client.force_login(person("viewer"))
    page = client.get(f"/incidents/{incident.pk}/").content.decode()
    assert "No agents are affected now" not in page
    assert "No agents are affected now." not in page
    assert "The affected agents are not known" in page
    assert "agents when last seen · peak 207" in page
    assert "No notification planned: Refloat cannot see the fleet." in page
    suppressed = client.get("/incidents/?tab=suppressed").content.decode()
    assert "on hold: Refloat cannot see the fleet" in suppressed

    Incident.objects.update(state="resolved", resolved_at=time.time(), inhibited_by="")
    page = client.get(f"/incidents/{incident.pk}/").content.decode()
    assert "the fleet data is out of date" not in page
    assert "this incident has no copy of its evidence" in page


def test_reconnect_hint_is_absent_when_every_agent_left_the_auth(incident: Incident) -> None:
    """No agent is left to move, so the page shows no warning."""
    incident.cause_kind, incident.cause_name = "auth", "auth-1"
    table = FakeReader([State.HEALTHY] * 4, as_of=time.time()).table("default", time.time())
    table.memory["last_auth"] = table.heartbeats["auth"] = 1
    assert reconnect_query_of(incident, InstanceState.EXPIRED, table) == ("", "")


def test_list_has_silenced_incidents_in_a_tab_of_their_own(
    client: Client, person: MakeUser, incident: Incident
) -> None:
    """The badge leaves them out: without that the two figures contradict each other."""
    client.force_login(person("operator"))
    client.post(f"/incidents/{incident.pk}/silence/", {"reason": "known"})
    page = client.get("/incidents/")
    assert client.get("/incidents/badge.json").json()["open"]["critical"] == 0
    assert [(link.tab, link.count) for link in page.context["tab_links"]] == [
        ("open", 0),
        ("suppressed", 1),
        ("resolved", 0),
    ]
    assert "No open incidents." in page.content.decode()
    (row,) = client.get("/incidents/?tab=suppressed").context["rows"]
    assert (row.number, row.tone) == (incident.pk, "critical")


def _make_resolved(incident: Incident, count: int) -> None:
    at = incident.opened_at
    Incident.objects.bulk_create(
        Incident(
            cluster=incident.cluster, key=f"proxy/p{n}", cause_kind="proxy", cause_id=f"p{n}", cause_name=f"proxy-{n}",
            generation=1, state="resolved", severity=1 + n % 2, opened_at=at - n, resolved_at=at + n, peak_count=n,
            summary=f"{n} agents were stranded.",
        )
        for n in range(count)
    )  # fmt: skip


def test_resolved_incidents_are_paged_and_sorted(
    client: Client, person: MakeUser, incident: Incident
) -> None:
    """By the server: the newest first, or by a column; the pages keep tab and order."""
    _make_resolved(incident, 60)
    client.force_login(person("viewer"))
    first = client.get("/incidents/?tab=resolved")
    assert (len(first.context["rows"]), first.context["total_count"]) == (50, 60)
    assert (first.context["rows"][0].cause, first.context["next_query"]) == (
        "proxy-59",
        "tab=resolved&page=2",
    )
    last = client.get("/incidents/?tab=resolved&sort=affected&page=2")
    assert [row.peak_count for row in last.context["rows"]] == list(range(50, 60))
    assert last.context["previous_query"] == "tab=resolved&sort=affected&page=1"
    heads = last.context["column_heads"]
    assert heads["affected"] == {"query": "tab=resolved&sort=-affected", "aria": "ascending"}
    assert client.get("/incidents/?tab=nonsense&sort=pk&page=-7").context["list_tab"] == "open"


def test_resolved_incident_is_red_nowhere(client: Client, person: MakeUser, incident: Incident) -> None:
    """Neither in the list nor on its page; it has the symbol of a healthy state and the word."""
    Incident.objects.update(state="resolved", resolved_at=time.time())
    client.force_login(person("viewer"))
    for url in ("/incidents/?tab=resolved", f"/incidents/{incident.pk}/"):
        content = client.get(url).content.decode().partition("<main")[2]
        assert "incident-resolved" in content
        assert "incident-critical" not in content
        assert "severity-critical" not in content
        assert '<use href="#shape-healthy"/></svg> was critical' in content


def test_unreachable_cluster_that_is_reachable_again_affects_no_agents(
    client: Client, person: MakeUser, incident: Incident
) -> None:
    """Its agents are all of the fleet, so the table had them below a count of 0."""
    Incident.objects.update(key="cluster/default", cause_kind="cluster", cause_id="default")
    client.force_login(person("viewer"))
    url = f"/incidents/{incident.pk}/"
    assert client.get(url).context["affected"].count == 4
    Incident.objects.update(state="recovering", recovering_since=time.time(), affected_count=0)
    assert client.get(url).context["affected"].count == 0


def test_incident_of_the_whole_fleet_lists_its_agents(
    client: Client, person: MakeUser, incident: Incident, fake_reader: FakeReader
) -> None:
    """Its figure counts them, so the page does not say that nobody is harmed, nor how a cause recovers."""
    fake_reader.states[:] = [State.HEALTHY, State.EXCESS, State.STRANDED, State.HEALTHY]
    incident.key, incident.cause_kind, incident.cause_id = "fleet/excess", "fleet", "excess"
    incident.save()
    client.force_login(person("viewer"))
    answer = client.get(f"/incidents/{incident.pk}/")
    page = answer.content.decode()
    assert [row.name for row in answer.context["affected"].agents] == ["agent-1"]
    assert "No agents are affected now" not in page
    assert 'href="/agents/?state=excess"' in page
    assert "<dt>Recovery</dt>" not in page


def test_reconnect_of_an_auth_finds_the_agents_that_it_stranded(incident: Incident) -> None:
    """All of its agents are stranded and have their tunnels: the query that is offered finds each of them."""
    incident.cause_kind, incident.cause_name = "auth", "auth-1"
    table = FakeReader([State.STRANDED] * 4, as_of=time.time()).table("default", time.time())
    query, _ = reconnect_query_of(incident, InstanceState.UNHEALTHY, table)
    targets = select_campaign_targets(table, dict(parse_qsl(query)))
    assert (targets.indices.tolist(), targets.instances_to_leave, targets.connection) == (
        [0, 2],
        ("auth-id-1",),
        "auth",
    )
    bare = replace(table, tunnel_agents=table.tunnel_agents[:0], tunnel_proxies=table.tunnel_proxies[:0])
    assert reconnect_query_of(incident, InstanceState.UNHEALTHY, bare) == (
        "",
        "Refloat cannot move the agents of auth-1: none of them has a reachable tunnel.",
    )


def test_operator_acknowledges_notes_and_silences(
    client: Client, person: MakeUser, incident: Incident
) -> None:
    """Under their own name, on the timeline."""
    client.force_login(person("operator"))
    url = f"/incidents/{incident.pk}/"
    for form in ({"do": "acknowledge"}, {"do": "note", "text": "<b>switch</b>"}):
        assert client.post(url, form).status_code == 302
    assert client.post(f"{url}silence/", {"period": "7200", "reason": "known"}).status_code == 302
    incident.refresh_from_db()
    assert incident.acknowledged_by == "operator"
    page = client.get(url).content.decode()
    assert "&lt;b&gt;switch" in page
    kinds = list(IncidentEvent.objects.order_by("pk").values_list("kind", "actor_name"))
    assert kinds == [("acknowledged", "operator"), ("note", "operator"), ("silenced", "operator")]


def test_viewer_sees_no_button_and_cannot_post(client: Client, person: MakeUser, incident: Incident) -> None:
    """Hidden, and refused."""
    client.force_login(person("viewer"))
    url = f"/incidents/{incident.pk}/"
    assert 'value="acknowledge"' not in client.get(url).content.decode()
    assert client.post(url, {"do": "acknowledge"}).status_code == 403
    assert not IncidentEvent.objects.exists()
    assert Permission.ACT_ON_FLEET


def test_page_lives_while_the_record_cannot_be_read(
    client: Client, person: MakeUser, incident: Incident, fake_reader: FakeReader
) -> None:
    """That is when it is needed most."""
    fake_reader.down = True
    client.force_login(person("viewer"))
    assert client.get(f"/incidents/{incident.pk}/").status_code == 200
    assert client.get("/incidents/999/").status_code == 404
    assert not AuditEntry.objects.exists()


def test_silence_applies_at_once_and_is_ended_from_the_page(
    client: Client, person: MakeUser, incident: Incident
) -> None:
    """Page, list and badge show the silence before the next evaluation, and who silenced it why until when."""
    client.force_login(person("operator"))
    url = f"/incidents/{incident.pk}/"
    client.post(f"{url}silence/", {"period": "7200", "reason": "new disks"})
    page = client.get(url).content.decode()
    assert "No notification planned: silenced: new disks (operator)" in page
    assert "Next notification" not in page
    assert re.search(r"<b>Silenced</b> until [\w ]*\d\d:\d\d UTC by operator: new disks", page)
    assert f'href="{url}silence/"' not in page
    (row,) = client.get("/incidents/?tab=suppressed").context["rows"]
    assert row.silenced_by == "new disks (operator)"
    assert client.get("/incidents/badge.json").json()["open"]["critical"] == 0
    silence = Silence.objects.get()
    assert f"/silences/{silence.pk}/extend/?incident={incident.pk}" in page
    client.post(url, {"do": "end-silence", "id": silence.pk})
    page = client.get(url).content.decode()
    assert "<b>Silenced</b>" not in page
    assert f'href="{url}silence/"' in page


def test_limited_reader_sees_no_installation_actions_or_errors(
    client: Client, make_limited_user: MakeUser, incident: Incident
) -> None:
    """On the page of an incident of their cluster."""
    user = make_limited_user("operator")
    Incident.objects.update(cluster="other")
    at = datetime.fromtimestamp(incident.opened_at - 60, UTC)
    for cluster in ("", "other"):
        AuditEntry.objects.create(
            at=at, cluster=cluster, actor_name="bo", actor_kind="person", action="agent.retire",
            subject=f"act of {cluster}", outcome="succeeded",
        )  # fmt: skip
    for owner in ("", "other"):
        channel = Channel.objects.create(name=f"channel of {owner}", kind="webhook", cluster=owner)
        Delivery.objects.create(
            channel=channel, incident=incident, cluster="other", key=owner, kind="firing", payload={}, created_at=1.0,
            next_attempt_at=1.0, failed_at=2.0, last_error=f"error of {owner or 'all'}",
        )  # fmt: skip
    client.force_login(user)
    page = client.get(f"/c/other/incidents/{incident.pk}/").content.decode()
    assert "act of other" in page
    assert "Error of other" in page
    assert "act of <" not in page
    assert "Error of all" not in page
    assert [
        change.summary for change in find_prior_changes("other", incident.opened_at, is_limited_user=True)
    ] == [f"{describe_action('agent.retire')}: act of other"]
    assert len(find_prior_changes("other", incident.opened_at, is_limited_user=False)) == 2


def test_every_page_shows_that_a_channel_is_failing(
    client: Client, person: MakeUser, fake_reader: FakeReader, incident: Incident
) -> None:
    """In the answer for the frame, and in a line of Fleet now."""
    client.force_login(person("viewer"))
    channel = Channel.objects.create(name="ops", kind="webhook", failing_since=time.time() - 60)
    (failing_channel,) = client.get("/incidents/badge.json").json()["failing_channels"]
    assert failing_channel["number"] == channel.pk
    assert failing_channel["notice"].startswith("Channel ops has been failing since ")
    page = client.get("/").content.decode()
    assert failing_channel["notice"] in page
    assert f'href="/alerts/channels/#channel-{channel.pk}"' in page
    Channel.objects.update(failing_since=None)
    assert client.get("/incidents/badge.json").json()["failing_channels"] == []
    assert "has been failing" not in client.get("/").content.decode()
