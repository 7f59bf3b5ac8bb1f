"""The page that plans a reconnect campaign, and what is done to one on the page of its change."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from dashboards.changes.campaign_rows import campaign_context_of
from dashboards.shared import record_reader
from fleet.models.actions import CampaignAgent
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import ensure_default_cluster
from fleet.vocabulary import campaigns
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser
from tests.fakes.campaign_fleet import CampaignFleet
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


@pytest.fixture
def page(client: Client, person: MakeUser, fake_reader: FakeReader) -> Client:
    """A browser of an operator; four agents on two proxies."""
    ensure_default_cluster()
    fake_reader.states = [State.HEALTHY] * 4
    client.force_login(person("operator"))
    return client


def test_from_filter_to_result(page: Client) -> None:
    """Chosen by proxy, planned with its number, confirmed with a reason, paused, resumed, aborted; all in the log."""
    page.post("/accounts/reauthenticate/", {"password": "correct horse"})
    assert "Preview campaign" in page.get("/reconnect/").content.decode()
    answer = page.post("/reconnect/", {"proxy": "proxy-1", "rate_per_minute": "60"})
    change = Change.objects.get()
    path = answer.headers["Location"]
    assert path == f"/changes/{change.pk}/"
    assert change.affected_count == 2
    assert change.parameters["instances_to_leave"] == ["proxy-id-1"]
    html = page.get(path).content.decode()
    assert "<h1>Move 2 agents off proxy-1 to another proxy?</h1>" in html
    assert ">Move 2 agents off proxy-1</button>" in html
    assert "<title>Reconnect 2 agents with a tunnel to proxy-1 " in html
    wrong = page.post(path, {"do": "confirm", "reason": ""}).content.decode()
    assert 'id="reason-error"' in wrong
    page.post(path, {"do": "confirm", "reason": "proxy-1 is full"})
    change.refresh_from_db()
    assert change.state == "confirmed"
    Change.objects.filter(pk=change.pk).update(state="running", started_at=timezone.now())
    for action, state in (("pause", "paused"), ("resume", "running"), ("abort", "cancelled")):
        html = page.get(path).content.decode()
        assert f'value="{action}"' in html or f'data-dialog href="{path}{action}/"' in html
        page.post(f"{path}abort/" if action == "abort" else path, {"do": action})
        change.refresh_from_db()
        assert change.state == state
    html = page.get(f"{path}?state=skipped").content.decode()
    assert "aborted by operator" in html
    assert '<span class="tag tag-cancelled">aborted</span>' in html
    assert "<b>0</b> of 2 agents moved, 2 did not" in html
    assert CampaignAgent.objects.filter(state="skipped").count() == 2
    assert {"reconnect.plan", "reconnect.confirm", "reconnect.paused", "reconnect.cancelled"} <= set(
        AuditEntry.objects.values_list("action", flat=True)
    )


def test_resume_warns_of_the_failure_threshold(page: Client) -> None:
    """Beside its button, and only while the campaign is paused."""
    page.post("/reconnect/", {"proxy": "proxy-1"})
    change = Change.objects.get()
    change.campaign_agents.filter(position=0).update(state="failed")
    for state, is_warned in (("paused", True), ("running", False)):
        Change.objects.filter(pk=change.pk).update(state=state, started_at=timezone.now())
        html = page.get(f"/changes/{change.pk}/").content.decode()
        assert ("1 of 1 agent failed, more than the failure threshold of 2 %" in html) is is_warned


@pytest.mark.parametrize("method", ["get", "post"])
def test_agents_that_were_selected_in_the_list(page: Client, fake_reader: FakeReader, method: str) -> None:
    """Checked rows and those of other pages of the list are the list of the form; a POST with `show` plans nothing."""
    ids = fake_reader.table("default", 0.0).ids
    parameters = {"agent": [ids[3]], "agents": f"{ids[0]}\n{ids[1]}", "show": "1"}
    response = getattr(page, method)("/reconnect/", parameters)
    assert response.status_code == 200
    assert response.context["form_values"]["agents"].split() == ["agent-3", "agent-0", "agent-1"]
    assert not Change.objects.exists()
    assert not AuditEntry.objects.exists()
    page.post("/reconnect/", {"agents": response.context["form_values"]["agents"]})
    assert Change.objects.get().affected_count == 3


def test_campaign_agents_are_sorted_by_newest_end(page: Client) -> None:
    """Then who was asked, and last who was only chosen: PostgreSQL would put a moment that is none first."""
    page.post("/reconnect/", {"proxy": "proxy-1"})
    change = Change.objects.get()
    change.campaign_agents.all().delete()
    ends = {"chosen": (None, None), "asked": (50.0, None), "first": (10.0, 20.0), "last": (15.0, 30.0)}
    for position, (name, (requested_at, ended_at)) in enumerate(ends.items()):
        CampaignAgent.objects.create(
            change=change,
            position=position,
            agent_id=name,
            name=name,
            state="scheduled",
            requested_at=requested_at,
            ended_at=ended_at,
        )
    rows = campaign_context_of(change, "", 60.0)["rows"]
    assert [row["name"] for row in rows] == ["last", "first", "asked", "chosen"]
    assert [row["duration_seconds"] for row in rows] == [15.0, 10.0, None, None]


def test_auth_connections_are_moved_off_an_auth(page: Client) -> None:
    """Planned with who leaves which auth and where there is room; the query of an incident fills the form in."""
    html = page.get("/reconnect/?auth=auth-1").content.decode()
    assert 'value="auth" checked' in html
    assert '<option value="auth-id-1" selected>auth-1</option>' in html
    answer = page.post("/reconnect/", {"connection": "auth", "auth": "auth-1"})
    change = Change.objects.get()
    assert change.parameters["connection"] == "auth"
    assert change.parameters["instances_to_leave"] == ["auth-id-1"]
    assert change.plan["agents_by_instance"] == {"auth-1": 2}
    assert list(change.plan["destinations"]) == ["auth-2"]
    html = page.get(answer.headers["Location"]).content.decode()
    assert "<h1>Move 2 agents off auth-1 to another auth?</h1>" in html
    assert ">Move 2 agents off auth-1</button>" in html
    assert "Loads before and after" in html
    assert "auth-2" in html


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({}, "q"),
        ({"q": "colour:red"}, "q"),
        ({"proxy": "proxy-9"}, "proxy"),
        ({"agents": "nobody"}, "agents"),
        ({"auth": "auth-9"}, "auth"),
        ({"auth": "auth-1", "connection": "tunnel"}, "auth"),
        ({"proxy": "proxy-1", "connection": "auth"}, "proxy"),
        ({"q": "agent", "connection": "both"}, "connection"),
        *(
            ({"proxy": "proxy-1", name: "x"}, name)
            for name in (*campaigns.SETTING_RANGES, "window_start", "window_end")
        ),
    ],
)
def test_wrong_field_is_shown_at_the_field(page: Client, form: dict[str, Any], field: str) -> None:
    """A message at the field, nothing saved, a row in the log."""
    answer = page.post("/reconnect/", form)
    assert answer.status_code == 400
    assert f'id="{field}-error"' in answer.content.decode()
    assert not Change.objects.exists()
    assert AuditEntry.objects.get().outcome == "refused"


def test_form_without_a_selection_names_its_fields(page: Client) -> None:
    """In the words of their labels."""
    html = page.post("/reconnect/", {}).content.decode()
    assert ">Select target agents by a filter, a proxy, an auth or a list of agents.</p>" in html
    assert "Only if tunnels move: the agents with a tunnel to this proxy." in html
    assert "Only if auth connections move: the agents connected to this auth." in html


def test_campaign_without_target_agents_is_explained(page: Client, fake_reader: FakeReader) -> None:
    """A filter that finds nobody."""
    answer = page.post("/reconnect/", {"q": "state:stranded"})
    assert "There are no agents matching state:stranded." in answer.content.decode()


def test_viewers_do_not(page: Client, person: MakeUser) -> None:
    """Neither plan nor pause."""
    page.post("/reconnect/", {"q": "-state:stranded"})
    change = Change.objects.get()
    page.force_login(person("viewer"))
    assert page.get("/reconnect/").status_code == 403
    assert page.post(f"/changes/{change.pk}/", {"do": "abort"}).status_code == 403


def test_forecast_follows_the_form(page: Client) -> None:
    """A part of the page, with the numbers of the plan; nothing is stored or logged."""
    html = page.get("/reconnect/forecast/?proxy=proxy-1").content.decode()
    assert "<b>2</b> of 2 matching agents will reconnect" in html
    assert html in page.get("/reconnect/?proxy=proxy-1").content.decode()
    assert "No agents match" in page.get("/reconnect/forecast/?q=state:stranded").content.decode()
    assert (
        "proxy &#x27;proxy-9&#x27; was not found"
        in page.get("/reconnect/forecast/?proxy=proxy-9").content.decode().lower()
    )
    assert "Select target agents" in page.get("/reconnect/forecast/").content.decode()
    assert page.post("/reconnect/forecast/", {"proxy": "proxy-1"}).content.decode() == html
    assert not Change.objects.exists()
    assert not AuditEntry.objects.exists()


def test_campaign_starts_from_an_instance(page: Client) -> None:
    """One click selects its agents."""
    html = page.get("/reconnect/").content.decode()
    assert 'href="?proxy=proxy-1"' in html
    assert 'href="?auth=auth-1"' in html
    assert (
        'href="?proxy=proxy-1" aria-current="true"' in page.get("/reconnect/?proxy=proxy-1").content.decode()
    )


def test_preset_and_own_settings(page: Client) -> None:
    """An empty field keeps the value of the preset."""
    form = {"proxy": "proxy-1", "preset": "careful", "canary_size": "1", "soak_seconds": ""}
    page.post("/reconnect/", form)
    settings = Change.objects.get().parameters["settings"]
    assert (settings["rate_per_minute"], settings["canary_size"], settings["soak_seconds"]) == (60, 1, 60)
    refusal = page.post("/reconnect/", {**form, "canary_size": "x"}).content.decode()
    assert 'name="preset" value="careful" checked' in refusal
    assert 'id="advanced" open' in refusal


def test_form_opens_with_the_agents_that_make_the_loads_even(
    page: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a list, with the loads after; without uneven loads there is nothing to select."""
    fleet = CampaignFleet({f"a{n}": {1} for n in range(20)}, proxies=2)
    reader = SimpleNamespace(
        table=lambda cluster, now: fleet.table(now), missing_capabilities=lambda cluster: {}
    )
    monkeypatch.setattr(record_reader, "reader", lambda: reader)
    response = page.get("/reconnect/?connection=tunnel&spread=1")
    html = response.content.decode()
    assert "numbers of tunnels of the proxies even." in html
    assert "<h1>Spread agents</h1>" in html
    assert "<b>10</b> of 10 matching agents will reconnect." in html
    assert re.findall(r"<td>(\d+) → <b>(?:about )?(\d+)</b></td>", html) == [("20", "10"), ("0", "10")]
    form = {name: response.context["form_values"][name] for name in ("connection", "agents", "spread")}
    page.post("/reconnect/", form)
    change = Change.objects.get()
    assert change.title == "Spread 10 agents evenly over the proxies"
    assert change.plan["question"] == "Spread 10 agents evenly over the proxies?"
    assert change.plan["action"] == "Spread 10 agents"
    # An edited list makes the loads even no more.
    page.post("/reconnect/", form | {"agents": form["agents"].split()[0]})
    page.post("/reconnect/", form | {"proxy": "p1"})
    titles = Change.objects.order_by("pk").values_list("title", flat=True)[1:]
    assert [title.split()[0] for title in titles] == ["Reconnect"] * len(titles)
    fleet.agents = {f"a{n}": {n % 2} for n in range(20)}
    html = page.get("/reconnect/?connection=tunnel&spread=1").content.decode()
    assert "have even loads: no campaign is needed." in html
    assert "Select target agents" in html


def test_form_opens_with_the_fast_preset_for_affected_agents(page: Client, fake_reader: FakeReader) -> None:
    """A preset of the query, and of the submitted form, comes first."""
    fake_reader.states = [State.HEALTHY, State.HEALTHY, State.STRANDED, State.AT_RISK]
    for query, preset in (
        ("agent-2", "fast"),
        ("agent-3", "fast"),
        ("agent", "fast"),
        ("agent-1", "standard"),
    ):
        html = page.get("/reconnect/", {"q": query}).content.decode()
        assert re.findall(r'name="preset" value="(\w+)" checked', html) == [preset]
    form = {"q": "agent-2", "preset": "careful"}
    assert page.get("/reconnect/", form).context["selected_preset"] == "careful"
    assert page.get("/reconnect/", {"q": "color:red"}).context["selected_preset"] == "standard"
