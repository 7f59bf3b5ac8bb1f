from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dashboards.fleet.timeline.comparison import AgentPlaces, Comparison, DifferenceKind, Flow
from fleet.monitoring.columns import NO_INSTANCE
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.instances import InstanceKind, InstanceState
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader

NOW = 1_700_000_000.0
HEALTHY, STRANDED, AT_RISK = State.HEALTHY, State.STRANDED, State.AT_RISK


def _table(*states: State, **changes: Any) -> FleetTable:
    """Return agents on auth-1 and auth-2, and on proxy-1 (index 2) and proxy-2 (index 3), in turn."""
    table = FakeReader(states=[*states], as_of=NOW, **changes).table("default", NOW)
    return replace(table, places=table.places.copy())


def _move(
    table: FleetTable, agent: int, *, auth: int | None = None, proxies: tuple[int, ...] | None = None
) -> None:
    place = table.places[agent : agent + 1]
    if auth is not None:
        place["auth"] = auth
    if proxies is not None:
        place["tunnel_count"] = len(proxies)
        place["proxies"] = NO_INSTANCE
        place["proxies"][0, : len(proxies)] = proxies
        if proxies:
            place["proxy"] = proxies[0]


def test_equal_moments_have_no_differences() -> None:
    """Counts are there, nothing else."""
    table = _table(HEALTHY, STRANDED)
    comparison = Comparison(table, table)
    assert comparison.count() == 0
    assert comparison.compare_instances() == []
    assert (
        comparison.list_state_flows() == comparison.list_proxy_flows() == comparison.list_auth_flows() == []
    )
    assert {row.state: (row.before, row.after, row.difference) for row in comparison.count_states()}[
        STRANDED
    ] == (1, 1, 0)


def test_every_kind_of_difference() -> None:
    """State, tunnels and auth are found and counted each; together an agent counts once."""
    before, after = (
        _table(HEALTHY, HEALTHY, HEALTHY, HEALTHY, HEALTHY),
        _table(STRANDED, HEALTHY, HEALTHY, AT_RISK, HEALTHY),
    )
    _move(after, 0, proxies=())
    _move(after, 1, auth=0)
    _move(after, 2, proxies=(3,))
    comparison = Comparison(before, after)
    assert comparison.select(DifferenceKind.STATE).tolist() == [0, 3]
    assert comparison.select(DifferenceKind.TUNNELS).tolist() == [0, 2]
    assert comparison.select(DifferenceKind.AUTH).tolist() == [1]
    assert comparison.count() == 4
    # Changes of state first, the most urgent new state before the others.
    assert comparison.select().tolist() == [0, 3, 1, 2]
    assert [
        (row.state, row.difference, row.decrease) for row in comparison.count_states() if row.difference
    ] == [
        (STRANDED, 1, -1),
        (AT_RISK, 1, -1),
        (HEALTHY, -2, 2),
    ]
    assert comparison.list_state_flows() == [Flow("healthy", "stranded", 1), Flow("healthy", "at_risk", 1)]
    # An agent without tunnels has not moved.
    assert comparison.list_proxy_flows() == [Flow("proxy-1", "proxy-2", 1)]
    assert comparison.list_auth_flows() == [Flow("auth-2", "auth-1", 1)]


def test_agents_with_their_places() -> None:
    """Names in natural order; more than three tunnels are a number."""
    before, after = _table(HEALTHY, HEALTHY), _table(STRANDED, HEALTHY)
    _move(after, 0, auth=NO_INSTANCE, proxies=(3, 2))
    after.places["tunnel_count"][0] = 5
    (agent,) = Comparison(before, after).describe_agents(np.array([0]))
    assert (agent.id, agent.name) == ("id-0", "agent-0")
    assert agent.before == AgentPlaces(HEALTHY, "auth-1", ("proxy-1",), 0)
    assert agent.after == AgentPlaces(STRANDED, "", ("proxy-1", "proxy-2"), 2)


def test_agents_that_were_not_recorded_yet() -> None:
    """They differ, in state only; whichever moment is earlier."""
    earlier, later = _table(HEALTHY), _table(HEALTHY, STRANDED)
    comparison = Comparison(earlier, later)
    assert comparison.select().tolist() == [1]
    assert (comparison.count(DifferenceKind.TUNNELS), comparison.count(DifferenceKind.AUTH)) == (0, 0)
    (agent,) = comparison.describe_agents(comparison.select())
    assert (agent.before.state, agent.after.state) == (None, STRANDED)
    assert comparison.list_state_flows() == [Flow("", "stranded", 1)]
    (agent,) = Comparison(later, earlier).describe_agents(np.array([1]))
    assert (agent.name, agent.before.state, agent.after.state) == ("agent-1", STRANDED, None)
    from_empty = Comparison(_table(), _table(HEALTHY))
    assert [agent.before.state for agent in from_empty.describe_agents(from_empty.select())] == [None]


def test_tunnels_of_an_agent_mesh_are_compared_as_sets() -> None:
    """A place names three proxies; the order of reports decides which."""
    before, after = _table(HEALTHY), _table(HEALTHY)
    reports = np.array([2, 3, 4, 5], np.uint16)
    agents = np.zeros(4, np.uint32)
    for table in (before, after):
        table.places["tunnel_count"] = 4
    after.places["proxies"][0] = [3, 4, 5]
    before.places["proxies"][0] = [2, 3, 4]
    before = replace(before, tunnel_agents=agents, tunnel_proxies=reports)
    equal_table = replace(after, tunnel_agents=agents, tunnel_proxies=reports[::-1].copy())
    assert Comparison(before, equal_table).count(DifferenceKind.TUNNELS) == 0
    other_table = replace(after, tunnel_agents=agents, tunnel_proxies=np.array([2, 3, 4, 6], np.uint16))
    assert Comparison(before, other_table).count(DifferenceKind.TUNNELS) == 1


def test_instances_that_differ() -> None:
    """State, health and drain count; an instance may be new."""
    before, after = _table(HEALTHY), _table(HEALTHY, proxy_state=InstanceState.SILENT)
    del before.instances[0]  # type: ignore[attr-defined]  # a dict
    first, second = Comparison(before, after).compare_instances()
    assert (first.name, first.kind, first.before) == ("auth-1", InstanceKind.AUTH, None)
    assert (second.name, second.kind) == ("proxy-1", InstanceKind.PROXY)
    assert second.before is not None
    assert second.after is not None
    assert (second.before.state, second.after.state) == (InstanceState.OK, InstanceState.SILENT)
