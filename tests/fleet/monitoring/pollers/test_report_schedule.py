from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fleet.monitoring.columns import AGENT_REPORT
from fleet.monitoring.pollers.report_schedule import select_agents_to_query, select_old_reports
from fleet.monitoring.state.agent_reports import ReportRows
from fleet.vocabulary.verdicts import State

H, D, S, R, U = State.HEALTHY, State.DEGRADED, State.STRANDED, State.RETIRED, State.UNKNOWN


def report_rows(*agents_and_times: tuple[int, float]) -> ReportRows:
    """Return report rows of these agents, each with the time of its last query."""
    rows = np.zeros(len(agents_and_times), AGENT_REPORT)
    rows["at"] = [at for _, at in agents_and_times]
    return ReportRows(np.array([agent for agent, _ in agents_and_times], np.uint32), rows)


def select_by_proxy(
    states: Sequence[State],
    tunnels: Sequence[tuple[int, int]],
    *,
    previous_reports: ReportRows | None = None,
    round_number: int = 1,
    round_interval: float = 5.0,
    is_listing: bool = False,
) -> dict[int, list[int]]:
    """Return the agents that the next poll queries, by proxy; `tunnels` are (agent, proxy)."""
    agents = np.array([agent for agent, _ in tunnels], np.uint32)
    proxies = np.array([proxy for _, proxy in tunnels], np.uint16)
    column = np.array(states, np.uint8)
    selected = select_agents_to_query(
        column,
        agents,
        proxies,
        previous_reports or report_rows(),
        round_number=round_number,
        now=100.0,
        round_interval=round_interval,
        is_listing=is_listing,
    )
    return {proxy: sorted(agents_of_proxy.tolist()) for proxy, agents_of_proxy in selected.items()}


def test_unhealthy_agents_and_one_healthy_agent_are_selected() -> None:
    """Through the proxy that holds the tunnel; agents without a tunnel and retired agents are not queried."""
    agents_by_proxy = select_by_proxy([H, D, S, R, H], [(0, 7), (1, 7), (3, 7), (4, 9)])
    assert agents_by_proxy == {7: [0, 1], 9: [4]}


def test_only_agents_with_a_problem_are_selected_while_the_list_is_read() -> None:
    """The rest of the list has the heartbeats of unknown agents. When it was read, all kinds of agents are asked."""
    states, tunnels = [H, D, S, U], [(agent, 7) for agent in range(4)]
    assert select_by_proxy(states, tunnels, is_listing=True) == {7: [1, 2]}
    assert select_by_proxy(states, tunnels) == {7: [0, 1, 2, 3]}


def test_agent_with_two_tunnels_is_selected_once() -> None:
    agents_by_proxy = select_by_proxy([D], [(0, 7), (0, 9)])
    assert agents_by_proxy in ({7: [0]}, {9: [0]})


def test_recently_queried_agents_are_not_selected() -> None:
    """For 5 s, however short the poll interval is."""
    assert select_by_proxy([D, D], [(0, 7), (1, 7)], previous_reports=report_rows((0, 96.0), (1, 94.0))) == {
        7: [1]
    }


def test_healthy_agents_are_sampled_in_turn() -> None:
    """Every 5 s another one, until all have been queried."""
    tunnels = [(agent, 7) for agent in range(4)]
    selections = [
        select_by_proxy([H] * 4, tunnels, round_number=round_number, round_interval=1.0)
        for round_number in range(20)
    ]
    assert [bool(selection) for selection in selections] == [
        round_number % 5 == 0 for round_number in range(20)
    ]
    assert sorted(selection[7][0] for selection in selections if selection) == [0, 1, 2, 3]


def test_selection_per_poll_is_limited() -> None:
    """16 agents per proxy and 128 in total; the others are queried in later polls."""
    tunnels = [(agent, agent % 20) for agent in range(1000)]
    selected_agents: set[int] = set()
    for round_number in range(300):
        selection = select_by_proxy([D] * 1000, tunnels, round_number=round_number)
        assert max(map(len, selection.values())) <= 16
        assert sum(map(len, selection.values())) <= 128
        selected_agents |= {agent for agents in selection.values() for agent in agents}
    assert selected_agents == set(range(1000))


@pytest.mark.parametrize("tunnels", [[], [(0, 7)]])
def test_selection_is_empty_without_active_agents(tunnels: Sequence[tuple[int, int]]) -> None:
    """An empty fleet, and one whose only agent is retired."""
    assert select_by_proxy([R], tunnels, round_number=0) == {}


def test_old_and_excess_reports_are_dropped() -> None:
    """Reports older than 10 min, and reports beyond the newest 2,000."""
    assert select_old_reports(report_rows((1, 0.0), (2, 500.0)), 700.0).tolist() == [1]
    many = report_rows(*((agent, float(agent)) for agent in range(2_005)))
    assert sorted(select_old_reports(many, 0.0).tolist()) == [0, 1, 2, 3, 4]
    assert select_old_reports(report_rows(), 0.0).tolist() == []
