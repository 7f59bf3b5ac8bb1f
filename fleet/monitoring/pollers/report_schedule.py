"""Which agents the next round asks through their tunnels, and whose answers are too old to keep. Pure.

All that are not healthy and have a tunnel, in turn, and a sample of those that are: one of every proxy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fleet.monitoring.state.agent_reports import ReportRows
from fleet.vocabulary.verdicts import State

Indices = npt.NDArray[np.uint32]

#: Nobody is asked again before, and healthy ones are sampled this often; seconds.
_PAUSE = 5.0
#: Through one proxy in a round, and in a round at all.
_PER_PROXY = 16
_PER_ROUND = 128
#: An answer is kept for this long, seconds; and so many at most: the newest.
_REPORT_TTL = 600.0
_MAX_REPORTS = 2_000
#: Of agents in turn, round after round: any odd number.
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
    """Choose for the round after `number`: agents by instance index of the proxy to ask them through."""
    is_ready = np.ones(len(states), bool)
    is_ready[reports.agents[now - reports.rows["at"] < _PAUSE]] = False
    state = states[tunnel_agents]
    candidates = is_ready[tunnel_agents] & (state != State.RETIRED)
    is_unhealthy = candidates & (state != State.HEALTHY)
    positions = _rotate(np.flatnonzero(is_unhealthy), number)
    if number % max(1, math.ceil(_PAUSE / interval)) == 0:
        positions = np.concatenate([positions, _sample(np.flatnonzero(candidates & ~is_unhealthy), tunnel_proxies, number)])
    # An agent with tunnels to several proxies is asked through one.
    positions = positions[np.sort(np.unique(tunnel_agents[positions], return_index=True)[1])]
    positions = positions[_rank_in_group(tunnel_proxies[positions]) < _PER_PROXY][:_PER_ROUND]
    proxies = tunnel_proxies[positions]
    return {int(proxy): tunnel_agents[positions[proxies == proxy]] for proxy in np.unique(proxies)}


def select_old_reports(reports: ReportRows, now: float) -> Indices:
    """Agents whose answer is old, and those beyond the newest."""
    newest = np.argsort(-reports.rows["at"], kind="stable")
    is_old = now - reports.rows["at"] > _REPORT_TTL
    is_old[newest[_MAX_REPORTS:]] = True
    return reports.agents[is_old]


def _rotate(positions: npt.NDArray[np.intp], number: int) -> npt.NDArray[np.intp]:
    """The same, beginning somewhere else in each round."""
    return np.roll(positions, -(number * _STRIDE % len(positions))) if len(positions) else positions


def _sample(
    positions: npt.NDArray[np.intp], proxies: npt.NDArray[np.uint16], number: int
) -> npt.NDArray[np.intp]:
    """One place of each proxy, another one in each round."""
    sorted_positions = positions[np.argsort(proxies[positions], kind="stable")]
    _, starts, counts = np.unique(proxies[sorted_positions], return_index=True, return_counts=True)
    sampled_positions: npt.NDArray[np.intp] = sorted_positions[starts + number * _STRIDE % counts]
    return sampled_positions


def _rank_in_group(groups: npt.NDArray[np.uint16]) -> npt.NDArray[np.intp]:
    """How many of its own group come before each."""
    order = np.argsort(groups, kind="stable")
    _, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
    ranks = np.empty(len(groups), np.intp)
    ranks[order] = np.arange(len(groups)) - np.repeat(starts, counts)
    return ranks
