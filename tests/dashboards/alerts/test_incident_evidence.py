from __future__ import annotations

from dataclasses import replace

import numpy as np

from dashboards.alerts.incident_evidence import (
    AffectedAgents,
    choose_evidence,
    map_link_of,
    peak_time_of,
    present_evidence,
    show_no_agents,
)
from fleet.alerts.evidence import CopyMark, copy_evidence
from fleet.vocabulary.incidents import Incident, IncidentState
from fleet.vocabulary.verdicts import State
from tests.fakes.alerting import PROXY
from tests.fakes.reader import FakeReader

_NOW = 1_800_000_000.0
_MARK = CopyMark(9, 9, _NOW - 50)
_INCIDENT = Incident("default", PROXY, 1, IncidentState.FIRING, _NOW - 99, fired_at=_NOW - 90)
_RESOLVED = replace(_INCIDENT, state=IncidentState.RESOLVED)


def _make_agents(count: int | None) -> AffectedAgents:
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
    evidence = replace(copy_evidence(table, np.arange(60), lambda _: "Why."), affected_count=70)
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


def test_map_of_a_resolved_incident_is_that_of_its_peak() -> None:
    """Of its copy; without one, of the highest point of its trend, or of its start."""
    assert map_link_of(_INCIDENT, _MARK, "") == {"url": "/map/?q=cause:proxy-1", "label": "View on map"}
    assert map_link_of(_RESOLVED, _MARK, "/c/eu")["url"] == "/c/eu/map/?at=2027-01-15T07:59:10.000Z"
    assert peak_time_of(_RESOLVED, None) == _NOW - 90
    assert peak_time_of(replace(_RESOLVED, trend=((1.0, 3), (2.0, 8), (3.0, 8))), None) == 2.0
