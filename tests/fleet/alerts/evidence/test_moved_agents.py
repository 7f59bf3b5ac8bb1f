from __future__ import annotations

import numpy as np

from fleet.alerts.evidence.moved_agents import (
    MovedAgents,
    NamedIncident,
    describe_moved_agents,
    find_moved_agents,
)
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import NO_CAUSE, State
from tests.fakes.reader import FakeReader

_PROXY_1, _PROXY_2 = "proxy/proxy-id-1", "proxy/proxy-id-2"
_INCIDENTS = {
    _PROXY_1: NamedIncident(_PROXY_1, "proxy-1", 5),
    _PROXY_2: NamedIncident(_PROXY_2, "proxy-2", 7),
}


def _table(*, causes: list[int], states: list[State]) -> FleetTable:
    table = FakeReader(states, as_of=1_000.0).table("default", 1_000.0)
    table.verdicts["cause"] = np.array(causes)
    return table


def test_agents_of_a_second_cause_are_counted_by_state() -> None:
    """Only agents of this incident, and none that its own cause still affects."""
    table = _table(
        causes=[3, 3, 3, 2, NO_CAUSE, 3],
        states=[
            *(State.STRANDED, State.STRANDED, State.AT_RISK),
            *(State.STRANDED, State.HEALTHY, State.STRANDED),
        ],
    )
    (moved_agents,) = find_moved_agents(table, table.ids[:5], _PROXY_1, _INCIDENTS.get)
    assert moved_agents == MovedAgents(_INCIDENTS[_PROXY_2], stranded_count=2, at_risk_count=1)


def test_recovered_agents_have_not_moved() -> None:
    """Neither have agents whose cause has no incident."""
    table = _table(causes=[NO_CAUSE, 3], states=[State.HEALTHY, State.STRANDED])
    assert find_moved_agents(table, table.ids, _PROXY_1, {}.get) == ()


def test_clause_names_the_other_incident() -> None:
    """All agents, some of them, one, and two causes."""
    by_proxy_2 = MovedAgents(_INCIDENTS[_PROXY_2], 12, 0)
    assert (
        describe_moved_agents([by_proxy_2], 12)
        == "its 12 agents are stranded because of proxy-2 now (incident 7)"
    )
    assert describe_moved_agents([by_proxy_2], 1_200) == (
        "12 of its 1,200 agents are stranded because of proxy-2 now (incident 7)"
    )
    by_proxy_1 = MovedAgents(_INCIDENTS[_PROXY_1], 0, 1)
    assert describe_moved_agents([by_proxy_2, by_proxy_1], 20) == (
        "12 of its 20 agents are stranded because of proxy-2 now (incident 7) and 1 is at risk because of "
        "proxy-1 now (incident 5)"
    )
    assert describe_moved_agents([], 12) == ""
