"""Schedule of agent reports: agents to ask through their tunnels in the next round, and reports to drop. No I/O.

Agents that have a tunnel and are not healthy are asked in turn, and a sample of healthy agents: one per proxy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fleet.monitoring.state.agent_reports import ReportRows
from fleet.vocabulary.verdicts import State

Indices = npt.NDArray[np.uint32]

#: Shortest interval in seconds between two requests to one agent, and the interval of sampling healthy agents.
_PAUSE = 5.0
#: Most agents per proxy and round, and per round.
_PER_PROXY = 16
_PER_ROUND = 128
#: Seconds until a report is dropped, and how many of the newest reports are kept.
_REPORT_TTL = 600.0
_MAX_REPORTS = 2_000
#: Step through the agents from round to round: any odd number.
_STRIDE = 7919


def select_agents(
    states: npt.NDArray[np.uint8],
    tunnel_agents: Indices,
    tunnel_proxies: npt.NDArray[np.uint16],
    reports: ReportRows,
    *,
    number: int,
    now: float,
    interval: float,
) -> Mapping[int, Indices]:
    """Return the agents to ask in the round after `number`, by instance index of the proxy to ask through."""
    is_ready = np.ones(len(states), bool)
    is_ready[reports.agents[now - reports.rows["at"] < _PAUSE]] = False
    state = states[tunnel_agents]
    candidates = is_ready[tunnel_agents] & (state != State.RETIRED)
    is_unhealthy = candidates & (state != State.HEALTHY)
    positions = _rotate(np.flatnonzero(is_unhealthy), number)
    if number % max(1, math.ceil(_PAUSE / interval)) == 0:
        positions = np.concatenate(
            [positions, _sample(np.flatnonzero(candidates & ~is_unhealthy), tunnel_proxies, number)]
        )
    # An agent with tunnels to several proxies is asked through one of them.
    positions = positions[np.sort(np.unique(tunnel_agents[positions], return_index=True)[1])]
    positions = positions[_rank_in_group(tunnel_proxies[positions]) < _PER_PROXY][:_PER_ROUND]
    proxies = tunnel_proxies[positions]
    return {int(proxy): tunnel_agents[positions[proxies == proxy]] for proxy in np.unique(proxies)}


def select_old_reports(reports: ReportRows, now: float) -> Indices:
    """Return the agents whose reports are too old, or not among the newest."""
    newest = np.argsort(-reports.rows["at"], kind="stable")
    is_old = now - reports.rows["at"] > _REPORT_TTL
    is_old[newest[_MAX_REPORTS:]] = True
    return reports.agents[is_old]


def _rotate(positions: npt.NDArray[np.intp], number: int) -> npt.NDArray[np.intp]:
    """Return the places rotated, so that each round begins with another one."""
    return np.roll(positions, -(number * _STRIDE % len(positions))) if len(positions) else positions


def _sample(
    positions: npt.NDArray[np.intp], proxies: npt.NDArray[np.uint16], number: int
) -> npt.NDArray[np.intp]:
    """Return one place per proxy, another one in each round."""
    sorted_positions = positions[np.argsort(proxies[positions], kind="stable")]
    _, starts, counts = np.unique(proxies[sorted_positions], return_index=True, return_counts=True)
    sampled_positions: npt.NDArray[np.intp] = sorted_positions[starts + number * _STRIDE % counts]
    return sampled_positions


def _rank_in_group(groups: npt.NDArray[np.uint16]) -> npt.NDArray[np.intp]:
    """Return for each element how many of its group come before it."""
    order = np.argsort(groups, kind="stable")
    _, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
    ranks = np.empty(len(groups), np.intp)
    ranks[order] = np.arange(len(groups)) - np.repeat(starts, counts)
    return ranks
