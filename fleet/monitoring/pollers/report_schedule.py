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
_MIN_INTERVAL_SECONDS = 5.0
#: Most agents per proxy and round, and per round.
_MAX_PER_PROXY = 16
_MAX_PER_ROUND = 128
#: Seconds until a report is dropped, and how many of the newest reports are kept.
_REPORT_TTL_SECONDS = 600.0
_MAX_REPORTS = 2_000
#: Step through the agents from round to round: any odd number.
_STRIDE = 7919


def select_agents_to_query(
    states: npt.NDArray[np.uint8],
    tunnel_agents: Indices,
    tunnel_proxies: npt.NDArray[np.uint16],
    reports: ReportRows,
    *,
    round_number: int,
    now: float,
    round_interval: float,
    is_listing: bool = False,
) -> Mapping[int, Indices]:
    """Return the agents to ask in the round after `round_number`, by instance index of the proxy to ask through.

    While the list of agents is being read (`is_listing`), unknown and healthy agents are not asked: the rest of the
    list has the heartbeats of unknown ones, and a hundred reports take as much time as a thousand of its entries.
    """
    is_ready = np.ones(len(states), bool)
    is_ready[reports.agents[now - reports.rows["at"] < _MIN_INTERVAL_SECONDS]] = False
    tunnel_states = states[tunnel_agents]
    is_candidate = is_ready[tunnel_agents] & (tunnel_states != State.RETIRED)
    is_unhealthy = is_candidate & (tunnel_states != State.HEALTHY)
    if is_listing:
        is_unhealthy &= tunnel_states != State.UNKNOWN
    tunnel_indices = _rotate(np.flatnonzero(is_unhealthy), round_number)
    if not is_listing and round_number % max(1, math.ceil(_MIN_INTERVAL_SECONDS / round_interval)) == 0:
        tunnel_indices = np.concatenate(
            [
                tunnel_indices,
                _sample(np.flatnonzero(is_candidate & ~is_unhealthy), tunnel_proxies, round_number),
            ]
        )
    # An agent with tunnels to several proxies is asked through one of them.
    tunnel_indices = tunnel_indices[np.sort(np.unique(tunnel_agents[tunnel_indices], return_index=True)[1])]
    tunnel_indices = tunnel_indices[_rank_in_group(tunnel_proxies[tunnel_indices]) < _MAX_PER_PROXY][
        :_MAX_PER_ROUND
    ]
    proxies = tunnel_proxies[tunnel_indices]
    return {int(proxy): tunnel_agents[tunnel_indices[proxies == proxy]] for proxy in np.unique(proxies)}


def select_old_reports(reports: ReportRows, now: float) -> Indices:
    """Return the agents whose reports are too old, or not among the newest."""
    newest = np.argsort(-reports.rows["at"], kind="stable")
    is_old = now - reports.rows["at"] > _REPORT_TTL_SECONDS
    is_old[newest[_MAX_REPORTS:]] = True
    return reports.agents[is_old]


def _rotate(tunnel_indices: npt.NDArray[np.intp], round_number: int) -> npt.NDArray[np.intp]:
    """Return the indices rotated, so that each round begins with another tunnel."""
    return (
        np.roll(tunnel_indices, -(round_number * _STRIDE % len(tunnel_indices)))
        if len(tunnel_indices)
        else tunnel_indices
    )


def _sample(
    tunnel_indices: npt.NDArray[np.intp], proxies: npt.NDArray[np.uint16], round_number: int
) -> npt.NDArray[np.intp]:
    """Return one tunnel per proxy, another one in each round."""
    sorted_indices = tunnel_indices[np.argsort(proxies[tunnel_indices], kind="stable")]
    _, starts, counts = np.unique(proxies[sorted_indices], return_index=True, return_counts=True)
    sampled_indices: npt.NDArray[np.intp] = sorted_indices[starts + round_number * _STRIDE % counts]
    return sampled_indices


def _rank_in_group(groups: npt.NDArray[np.uint16]) -> npt.NDArray[np.intp]:
    """Return for each element how many of its group come before it."""
    order = np.argsort(groups, kind="stable")
    _, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
    ranks = np.empty(len(groups), np.intp)
    ranks[order] = np.arange(len(groups)) - np.repeat(starts, counts)
    return ranks
