from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fleet.alerts.notifications import (
    NotificationLinks,
    agents_path,
    describe_recovery,
    describe_silence,
    headline_of,
    make_test_notification,
    payload_of,
    subject_of,
    text_of,
)
from fleet.vocabulary.incidents import (
    Cause,
    CauseKind,
    Incident,
    IncidentState,
    Notification,
    NotificationKind,
)
from tests.fakes.alerting import NO_TUNNEL, PROXY, AlertSimulation, healthy_facts, stranded_facts

_LINKS = NotificationLinks("https://console.example.com", "https://wiki.example.com/proxy", 7)


def _notifications() -> list[Notification]:
    simulation = AlertSimulation(now=1_790_000_000.0)
    simulation.run(90, stranded_facts(207))
    simulation.run(400, healthy_facts(), step=2)
    return [notification for _, notification in simulation.notifications]


def test_subjects_contain_proxy_count_and_duration() -> None:
    """They fit into an SMS."""
    firing, resolved_notification = _notifications()
    assert subject_of(firing) == "CRIT default: 207 agents stranded (proxy-1)"
    assert subject_of(resolved_notification) == "RESOLVED default: proxy-1 after 1 min 31 s, peak 207 agents"


def test_text_has_six_lines_and_three_links() -> None:
    """Links to the incident, the agents and the runbook."""
    lines = text_of(_notifications()[0], _LINKS).splitlines()
    assert len(lines) == 9
    assert "https://console.example.com/incidents/7/" in lines[-3]
    assert "proxy=proxy-1" in lines[-2]
    assert "agent-0" in lines[5]
    assert "and 197 more" in lines[5]
    assert lines[4] == "Recovery: The recovery time is not known."


def test_every_line_of_the_text_has_a_label() -> None:
    """A program can parse the text line by line."""
    labels = [line.partition(":")[0] for line in text_of(_notifications()[0], _LINKS).splitlines()]
    assert labels == [
        *("Summary", "Cause", "Affected", "Opened", "Recovery", "Affected agents"),
        *("Incident", "Agent list", "Runbook"),
    ]


def test_notification_without_affected_agents_names_the_previous_ones() -> None:
    """The text announces no recovery and counts the omitted names correctly."""
    firing = _notifications()[0]
    without_affected = replace(
        firing, incident=replace(firing.incident, affected_count=0, summary="207 agents were stranded.")
    )
    assert (
        subject_of(without_affected)
        == "CRIT default: 207 agents were stranded (proxy-1) - no agents affected now, proxy-1 still failing"
    )
    lines = text_of(without_affected, NotificationLinks()).splitlines()
    assert lines[2] == "Affected: 0 agents now, peak 207."
    assert lines[4] == "Recovery: no agents are affected now."
    assert lines[5].startswith("Previously affected agents: agent-0, ")
    assert lines[5].endswith(" and 197 more.")


def test_text_counts_the_omitted_names_among_currently_affected_agents() -> None:
    """10 of 51 agents are named, although 207 were affected before."""
    firing = _notifications()[0]
    fewer_affected = replace(firing, incident=replace(firing.incident, affected_count=51))
    assert " and 41 more." in text_of(fewer_affected, NotificationLinks())


def test_recovery_is_a_sentence() -> None:
    """An automatic recovery with its time, or one that depends on its cause."""
    incident = _notifications()[0].incident
    now = 1_790_000_000.0
    recovering = replace(incident, recovers_at=1_790_000_600.0)
    assert describe_recovery(recovering, now) == "The agents recover automatically by 14:24 UTC."
    stuck = replace(incident, is_stuck=True)
    assert describe_recovery(stuck, now) == "No automatic recovery: proxy-1 must recover first."
    assert describe_recovery(replace(stuck, cause=NO_TUNNEL), now) == "No automatic recovery."


def test_notification_of_a_recovering_cause_says_that_its_agents_recover_with_it() -> None:
    """Subject and text; agents that recover earlier keep their time."""
    firing = _notifications()[0]
    stuck = replace(firing, incident=replace(firing.incident, is_stuck=True))
    assert subject_of(stuck).endswith(" - no automatic recovery")
    recovering = replace(stuck, incident=replace(stuck.incident, is_cause_recovering=True))
    assert subject_of(recovering).endswith(" - agents recover with proxy-1")
    recovery = "Recovery: The agents recover when proxy-1 has recovered."
    assert recovery in text_of(recovering, NotificationLinks())
    partly = replace(recovering, incident=replace(recovering.incident, recovers_at=1_790_000_600.0))
    assert subject_of(partly).endswith(" - no automatic recovery of some agents")


def test_payload_is_json_with_a_key_per_notification() -> None:
    """Receivers deduplicate by the key."""
    firing, resolved_notification = (
        json.loads(json.dumps(payload_of(notification, _LINKS))) for notification in _notifications()
    )
    assert firing["key"] != resolved_notification["key"]
    assert firing["incident"]["id"] == resolved_notification["incident"]["id"]
    assert (firing["incident"]["affected_count"], resolved_notification["incident"]["peak_count"]) == (
        207,
        207,
    )


def test_link_of_past_agents_leads_to_their_moment() -> None:
    """The list of the present is empty, or has other agents."""
    firing, resolved_notification = (payload_of(notification, _LINKS) for notification in _notifications())
    assert "at=" not in firing["links"]["Agents"]
    assert "&proxy=proxy-1&at=2026-" in resolved_notification["links"]["Agents"]
    assert agents_path(PROXY, 1_790_000_000.2).endswith("&proxy=proxy-1&at=2026-09-21T14%3A13%3A21Z")


def test_test_notification_is_marked_as_a_test() -> None:
    """Nobody mistakes it for an incident."""
    assert make_test_notification("ops", 5.0).kind is NotificationKind.TEST
    assert "test" in subject_of(make_test_notification("ops", 5.0))


def test_test_notification_links_to_its_channel() -> None:
    """And to nothing else: there is no incident."""
    url = "https://console.example.com/alerts/channels/#channel-3"
    payload = payload_of(make_test_notification("ops", 5.0), NotificationLinks(channel_url=url))
    assert payload["links"] == {"Channel": url}
    assert f"Channel: {url}" in payload["text"]


@pytest.mark.parametrize(
    ("kind", "name", "path"),
    [
        (CauseKind.AUTH, "auth-1", "/agents/?state=stranded&state=at_risk&auth=auth-1"),
        (CauseKind.BACKEND, "default", "/agents/?state=stranded&state=at_risk"),
        (CauseKind.FLEET, "rate", "/agents/?state=stranded&state=offline&state=at_risk"),
        (CauseKind.FLEET, "excess", "/agents/?state=excess"),
        (CauseKind.FLEET, "drift", "/agents/"),
        (CauseKind.CLUSTER, "default", "/agents/"),
    ],
)
def test_agent_list_shows_the_agents_that_the_incident_counts(kind: CauseKind, name: str, path: str) -> None:
    """Agents with excess tunnels are neither stranded nor at risk."""
    assert agents_path(Cause(kind, name, name)) == path


@pytest.mark.parametrize("error", ["deadline exceeded", "getsockopt(SO_ERROR): reset", "reset by peer (104)"])
def test_headline_leaves_out_the_error_of_an_instance(error: str) -> None:
    """The headline fits a pager."""
    simulation = AlertSimulation()
    simulation.run(15, stranded_facts(207))
    incident = simulation.incidents[PROXY.key]
    sick = replace(
        incident, summary=f"proxy-1 does not answer: the last two attempts failed (127.0.0.1:1: {error})."
    )
    assert headline_of(sick) == "proxy-1 does not answer: the last two attempts failed"


@pytest.mark.parametrize(
    ("kind", "summary", "headline"),
    [
        (CauseKind.AGENTS, "7 agents are stranded.", "7 agents are stranded (unknown cause)"),
        (
            CauseKind.AGENTS,
            "7 agents are stranded because they lost their tunnels.",
            "7 agents are stranded because they lost their tunnels",
        ),
        (CauseKind.FLEET, "7 agents have excess tunnels.", "7 agents have excess tunnels"),
    ],
)
def test_headline_names_the_cause_once(kind: CauseKind, summary: str, headline: str) -> None:
    """Unless it gives a reason, or is about the whole fleet."""
    cause = Cause(kind, "unknown", "unknown cause")
    incident = Incident("default", cause, 1, IncidentState.FIRING, 100.0, summary=summary)
    assert headline_of(incident) == headline


@pytest.mark.parametrize(
    ("silenced_by", "creator", "until", "sentence"),
    [
        ("", "", None, ""),
        ("new disks (alice)", "alice", 1_790_001_000.0, "silenced until 14:30 UTC by alice: new disks"),
        ("Weekly upgrade", "", 1_790_001_000.0, "silenced until 14:30 UTC: Weekly upgrade"),
        ("x" * 300, "alice", 1_790_001_000.0, f"silenced until 14:30 UTC by alice: {'x' * 300}"),
        ("new disks (alice)", "", None, "silenced: new disks (alice)"),
    ],
    ids=["none", "silence", "window", "cut", "earlier version"],
)
def test_silence_is_described_in_one_phrase(
    silenced_by: str, creator: str, until: float | None, sentence: str
) -> None:
    """Until when, by whom and why."""
    incident = replace(
        _notifications()[0].incident, silenced_by=silenced_by, silenced_until=until, silence_creator=creator
    )
    assert describe_silence(incident, 1_790_000_000.0) == sentence


def test_actions_on_an_incident_have_their_own_keys_and_subjects() -> None:
    """They are not counted: without a key of their own, receivers would drop them as duplicates."""
    firing = _notifications()[0]
    silenced_incident = replace(
        firing.incident, silenced_by="disks (alice)", silenced_until=1_790_001_000.0, silence_creator="alice"
    )
    actions = [
        replace(firing, kind=kind, incident=silenced_incident)
        for kind in (
            NotificationKind.ACKNOWLEDGED,
            NotificationKind.UNACKNOWLEDGED,
            NotificationKind.SILENCED,
            NotificationKind.UNSILENCED,
        )
    ]
    assert len({action.key for action in [firing, *actions]}) == 5
    assert [subject_of(action).partition(" default: ")[0] for action in actions] == [
        *("ACKNOWLEDGED", "ACKNOWLEDGEMENT REMOVED", "SILENCED", "SILENCE ENDED"),
    ]
    assert subject_of(actions[2]).endswith("(proxy-1) - silenced until 14:30 UTC by alice: disks")


def test_payload_has_the_recovery_and_who_acted() -> None:
    firing, resolved_notification = _notifications()
    acknowledgement = replace(firing, incident=replace(firing.incident, acknowledged_by="alice"))
    incident = payload_of(acknowledgement, _LINKS)["incident"]
    assert (incident["acknowledged_by"], incident["recovery"]) == ("alice", "The recovery time is not known.")
    assert (incident["silenced_by"], incident["silenced_until"], incident["silence"]) == ("", None, "")
    assert payload_of(resolved_notification, _LINKS)["incident"]["recovery"] == ""


def test_notification_says_which_incident_strands_the_agents_now() -> None:
    """The cause still fails, and its agents have another cause now: nothing is said to be over."""
    clause = "its 207 agents are stranded because of proxy-2 now (incident 7)"
    firing = _notifications()[0]
    moved_notification = replace(
        firing, incident=replace(firing.incident, affected_count=0), moved_agents=clause
    )
    assert subject_of(moved_notification).endswith(f" - proxy-1 still failing, {clause}")
    lines = text_of(moved_notification, NotificationLinks()).splitlines()
    assert lines[4] == f"Recovery: {clause}."
    assert lines[5].startswith("Agents at the peak: agent-0, ")
