from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fleet.monitoring.columns import AGENT_REPORT
from fleet.monitoring.pollers.report_schedule import select_agents, select_old_reports
from fleet.monitoring.state.agent_reports import ReportRows
from fleet.vocabulary.verdicts import State

H, D, S, R = State.HEALTHY, State.DEGRADED, State.STRANDED, State.RETIRED


def told(*asked: tuple[int, float]) -> ReportRows:
    """Agents and when they were asked."""
    rows = np.zeros(len(asked), AGENT_REPORT)
    rows["at"] = [at for _, at in asked]
    return ReportRows(np.array([agent for agent, _ in asked], np.uint32), rows)


def ask(
    states: Sequence[State],
    tunnels: Sequence[tuple[int, int]],
    *,
    asked: ReportRows | None = None,
    number: int = 1,
    interval: float = 5.0,
) -> dict[int, list[int]]:
    """Whom the next round asks, by proxy; `tunnels` are (agent, proxy)."""
    agents = np.array([agent for agent, _ in tunnels], np.uint32)
    proxies = np.array([proxy for _, proxy in tunnels], np.uint16)
    column = np.array(states, np.uint8)
    found = select_agents(
        column, agents, proxies, asked or told(), number=number, now=100.0, interval=interval
    )
    return {proxy: sorted(chosen.tolist()) for proxy, chosen in found.items()}


def test_all_that_are_not_healthy_and_one_of_those_that_are() -> None:
    """Through the proxy that holds the tunnel; who has no tunnel cannot be asked, nor is who is retired."""
    asked = ask([H, D, S, R, H], [(0, 7), (1, 7), (3, 7), (4, 9)])
    assert asked == {7: [0, 1], 9: [4]}


def test_agent_with_two_tunnels_is_asked_through_one() -> None:
    """Whichever comes first."""
    asked = ask([D], [(0, 7), (0, 9)])
    assert asked in ({7: [0]}, {9: [0]})


def test_agents_asked_lately_are_left_alone() -> None:
    """For five seconds, however short rounds are."""
    assert ask([D, D], [(0, 7), (1, 7)], asked=told((0, 96.0), (1, 94.0))) == {7: [1]}


def test_healthy_ones_are_sampled_in_turn() -> None:
    """Every five seconds, and another one each time until all had their turn."""
    tunnels = [(agent, 7) for agent in range(4)]
    seen = [ask([H] * 4, tunnels, number=number, interval=1.0) for number in range(20)]
    assert [bool(found) for found in seen] == [number % 5 == 0 for number in range(20)]
    assert sorted(found[7][0] for found in seen if found) == [0, 1, 2, 3]


def test_no_round_asks_too_many() -> None:
    """Sixteen through a proxy, 128 in all; those left out come in later rounds."""
    tunnels = [(agent, agent % 20) for agent in range(1000)]
    seen: set[int] = set()
    for number in range(300):
        asked = ask([D] * 1000, tunnels, number=number)
        assert max(map(len, asked.values())) <= 16
        assert sum(map(len, asked.values())) <= 128
        seen |= {agent for chosen in asked.values() for agent in chosen}
    assert seen == set(range(1000))


@pytest.mark.parametrize("tunnels", [[], [(0, 7)]])
def test_nobody_to_ask(tunnels: Sequence[tuple[int, int]]) -> None:
    """An empty fleet, and one whose only agent is retired."""
    assert ask([R], tunnels, number=0) == {}


def test_forget_old_answers_and_those_beyond_the_newest() -> None:
    """Ten minutes, and two thousand."""
    assert select_old_reports(told((1, 0.0), (2, 500.0)), 700.0).tolist() == [1]
    many = told(*((agent, float(agent)) for agent in range(2_005)))
    assert sorted(select_old_reports(many, 0.0).tolist()) == [0, 1, 2, 3, 4]
    assert select_old_reports(told(), 0.0).tolist() == []
