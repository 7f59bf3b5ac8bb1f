from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from django.test import Client

from dashboards.alerts.incident_evidence import (
    AffectedAgentsPage,
    agents_link_of,
    choose_evidence,
    explain_no_agents,
    map_links_of,
    peak_time_of,
    present_evidence,
    show_no_agents,
)
from dashboards.shared.rewind import format_at
from fleet.alerts import store
from fleet.alerts.evidence.copies import save_evidence
from fleet.alerts.evidence.evidence import CopyMark, copy_evidence
from fleet.models.incidents import Incident as IncidentRow
from fleet.models.incidents import IncidentEvidence
from fleet.vocabulary.incidents import Incident, IncidentState
from fleet.vocabulary.verdicts import State, VerdictSentences
from tests.dashboards.conftest import MakeUser
from tests.fakes.alerting import PROXY
from tests.fakes.evaluator_scenario import EvaluatorScenario
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db

_NOW = 1_800_000_000.0
_MARK = CopyMark(9, 9, _NOW - 50)
_INCIDENT = Incident("default", PROXY, 1, IncidentState.FIRING, _NOW - 99, fired_at=_NOW - 90)
_RESOLVED = replace(_INCIDENT, state=IncidentState.RESOLVED)


def _make_agents(count: int | None) -> AffectedAgentsPage:
    return replace(show_no_agents(""), count=count)


def _choose(
    incident: Incident, mark: CopyMark | None, text: str, live_count: int | None
) -> tuple[int | None, bool]:
    affected, choice = choose_evidence(
        incident, mark, text, lambda: _make_agents(live_count), lambda: _make_agents(9)
    )
    return affected.count, choice is not None


def test_open_incident_shows_live_agents_unless_the_peak_is_chosen() -> None:
    """The peak is offered while the copy has more agents, also when the live number is not known."""
    assert _choose(_INCIDENT, _MARK, "", 3) == (3, True)
    assert _choose(_INCIDENT, _MARK, "peak", 3) == (9, True)
    assert _choose(_INCIDENT, _MARK, "peak", None) == (9, True)
    assert _choose(_INCIDENT, _MARK, "peak", 9) == (9, False)
    assert _choose(_INCIDENT, None, "peak", 3) == (3, False)


def test_resolved_incident_never_reads_live_agents() -> None:
    """They may have another cause by now."""
    assert _choose(_RESOLVED, _MARK, "", 3) == (9, False)


def test_page_of_a_copy_has_its_agents_and_numbers() -> None:
    """And the charts and common attributes of all agents."""
    table = FakeReader([State.STRANDED] * 60, as_of=_NOW).table("default", _NOW)
    evidence = replace(
        copy_evidence(table, np.arange(60), lambda indices: [VerdictSentences("Why.") for _ in indices]),
        affected_count=70,
    )
    affected = present_evidence(evidence, "2", _NOW, is_past=True)
    assert [row.name for row in affected.agents] == [f"agent-{n}" for n in range(50, 60)]
    assert (affected.first_number, affected.last_number, affected.count, affected.unlisted_count) == (
        51,
        60,
        70,
        10,
    )
    assert (affected.previous_page, affected.next_page) == (1, None)
    assert affected.common_attributes[1]["parts"] == [
        {"name": "proxy-1", "count": 30, "share": 50},
        {"name": "proxy-2", "count": 30, "share": 50},
    ]
    assert affected.figures is not None


def test_maps_of_an_incident_are_live_and_at_its_peak() -> None:
    """Both show the agents of its cause; a resolved incident has no live map, one without agents no peak."""
    live_link = {"url": "/map/?q=cause:proxy-1", "label": "View on map"}
    peak_url = "/map/?at=2027-01-15T07:59:10.000Z&q=cause:proxy-1"
    assert map_links_of(replace(_INCIDENT, peak_count=9), _MARK, "") == [
        live_link,
        {"url": peak_url, "label": "View map at the peak"},
    ]
    assert map_links_of(replace(_INCIDENT, peak_count=0), None, "") == [live_link]
    assert [link["url"] for link in map_links_of(_RESOLVED, _MARK, "/c/eu")] == [f"/c/eu{peak_url}"]


def test_agents_of_an_incident_are_those_of_the_peak_once_it_has_recovered() -> None:
    """The list of the present would be empty, also while a recovering incident is still open."""
    incident = replace(_INCIDENT, peak_count=9)
    live_url = "/c/eu/agents/?state=stranded&state=at_risk&proxy=proxy-1"
    peak_link = {
        "url": f"{live_url}&at=2027-01-15T07%3A59%3A10.000Z",
        "label": "View agents at the peak",
    }
    assert agents_link_of(incident, 2, _MARK, "/c/eu") == {"url": live_url, "label": "View affected agents"}
    assert agents_link_of(incident, 0, _MARK, "/c/eu") == peak_link
    assert agents_link_of(replace(_RESOLVED, peak_count=9), 2, _MARK, "/c/eu") == peak_link
    assert agents_link_of(replace(_INCIDENT, peak_count=0), 0, None, "") is None


def test_peak_without_a_copy_is_that_of_the_trend() -> None:
    """Of its highest point, or of the start of the incident."""
    assert peak_time_of(_RESOLVED, None) == _NOW - 90
    assert peak_time_of(replace(_RESOLVED, trend=((1.0, 3), (2.0, 8), (3.0, 8))), None) == 2.0


def _save_copy(incident: IncidentRow, *states: State) -> float:
    """Store a copy of agents in these states as evidence, and return its time."""
    at = time.time() - 50
    table = FakeReader(list(states), as_of=at).table("default", at)
    evidence = copy_evidence(
        table,
        np.arange(len(states)),
        lambda indices: [VerdictSentences(f"Agent {index} lost its proxy.") for index in indices],
    )
    save_evidence([(incident, evidence)])
    return at


def test_resolved_incident_shows_its_copy(
    client: Client, person: MakeUser, incident: IncidentRow, fake_reader: FakeReader
) -> None:
    """Agents, charts and common attributes of the peak, page by page, also while the record is unreadable."""
    at = _save_copy(incident, *[State.STRANDED] * 70)
    IncidentRow.objects.update(state="resolved", resolved_at=time.time())
    fake_reader.down = True
    client.force_login(person("viewer"))
    url = f"/incidents/{incident.pk}/"
    response = client.get(url)
    affected = response.context["affected"]
    assert (affected.count, len(affected.agents), affected.page_count) == (70, 50, 2)
    assert affected.figures["is_past"]
    page = response.content.decode()
    assert f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC" in page
    assert "when most agents were affected" in page
    assert "Agent 0 lost its proxy." in page
    assert f"/map/?at={format_at(at)}" in page
    second = client.get(f"{url}?page=2").context["affected"]
    assert (second.first_number, second.last_number) == (51, 70)
    csv = client.get(f"{url}agents.csv")
    lines = csv.content.decode().splitlines()
    assert len(lines) == 71
    assert lines[-1].startswith("id-69,agent-69,stranded,")
    assert f"incident-{incident.pk}-agents-" in csv["Content-Disposition"]


def test_open_incident_offers_a_larger_copy(
    client: Client, person: MakeUser, incident: IncidentRow, fake_reader: FakeReader
) -> None:
    """Live data first; not a copy of fewer agents than are affected now."""
    _save_copy(incident, *[State.STRANDED] * 5)
    client.force_login(person("viewer"))
    url = f"/incidents/{incident.pk}/"
    response = client.get(url)
    choice = response.context["evidence_choice"]
    assert (choice.live_count, choice.peak_count, choice.is_peak_shown) == (3, 5, False)
    assert response.context["affected"].taken_at is None
    peak = client.get(f"{url}?evidence=peak").context["affected"]
    assert [row.name for row in peak.agents] == [f"agent-{n}" for n in range(5)]
    fake_reader.states[:] = [State.STRANDED] * 5
    assert client.get(url).context["evidence_choice"] is None


def test_incident_without_a_copy_says_so(client: Client, person: MakeUser, incident: IncidentRow) -> None:
    """It is older than copies, or affected no agents; a damaged copy is no failed page."""
    IncidentRow.objects.update(state="resolved", resolved_at=time.time())
    client.force_login(person("viewer"))
    url = f"/incidents/{incident.pk}/"
    assert "has no copy of its evidence" in client.get(url).content.decode()
    assert client.get(f"{url}agents.csv").status_code == 404
    assert client.get("/incidents/999/agents.csv").status_code == 404
    IncidentRow.objects.update(peak_count=0)
    assert "This incident affected no agents." in client.get(url).content.decode()
    _save_copy(incident, State.STRANDED)
    IncidentEvidence.objects.update(content=b"damaged")
    assert "The copy of the evidence cannot be read" in client.get(url).content.decode()
    assert client.get(f"{url}agents.csv").status_code == 404


def test_incident_whose_agents_have_another_cause_names_that_incident() -> None:
    """Without a second incident, only that none is affected."""
    scenario = EvaluatorScenario()
    scenario.run(60, stranded_count=8)
    scenario.reader.cause_index = 3
    for _ in range(10):
        scenario.now = scenario.reader.as_of = scenario.now + 5
        scenario.evaluator.evaluate_cluster("default", scenario.now)
    first, second = (IncidentRow.objects.get(cause_name=name) for name in ("proxy-1", "proxy-2"))
    table = scenario.reader.table("default", scenario.now)
    assert explain_no_agents(store.incident_of(first), first, table) == (
        f"No agents are affected now: its 8 agents are stranded because of proxy-2 now (incident {second.pk})."
    )
    second.delete()
    assert explain_no_agents(store.incident_of(first), first, table) == "No agents are affected now."
