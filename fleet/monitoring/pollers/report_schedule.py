"""Which agents the next round asks through their tunnels, and whose answers are too old to keep. Pure.

All that are not healthy and have a tunnel, in turn, and a sample of those that are: one of every proxy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fleet.monitoring.state.agent_reports import Told
from fleet.vocabulary.verdicts import State

Indices = npt.NDArray[np.uint32]

#: Nobody is asked again before, and healthy ones are sampled this often; seconds.
_PAUSE = 5.0
#: Through one proxy in a round, and in a round at all.
_PER_PROXY = 16
_PER_ROUND = 128
#: An answer is kept for this long, seconds; and so many at most: the newest.
_KEPT_FOR = 600.0
_MOST_KEPT = 2_000
#: Of agents in turn, round after round: any odd number.
_STRIDE = 7919


def to_ask(
    states: npt.NDArray[np.uint8],
    tunnel_agents: Indices,
    tunnel_proxies: npt.NDArray[np.uint16],
    told: Told,
    *,
    number: int,
    now: float,
    interval: float,
) -> Mapping[int, Indices]:
    """Choose for the round after `number`: agents by instance index of the proxy to ask them through."""
    ready = np.ones(len(states), bool)
    ready[told.agents[now - told.rows["at"] < _PAUSE]] = False
    state = states[tunnel_agents]
    candidates = ready[tunnel_agents] & (state != State.RETIRED)
    sick = candidates & (state != State.HEALTHY)
    chosen = _in_turn(np.flatnonzero(sick), number)
    if number % max(1, math.ceil(_PAUSE / interval)) == 0:
        chosen = np.concatenate([chosen, _sample(np.flatnonzero(candidates & ~sick), tunnel_proxies, number)])
    # An agent with tunnels to several proxies is asked through one.
    chosen = chosen[np.sort(np.unique(tunnel_agents[chosen], return_index=True)[1])]
    chosen = chosen[_rank(tunnel_proxies[chosen]) < _PER_PROXY][:_PER_ROUND]
    proxies = tunnel_proxies[chosen]
    return {int(proxy): tunnel_agents[chosen[proxies == proxy]] for proxy in np.unique(proxies)}


def to_forget(told: Told, now: float) -> Indices:
    """Agents whose answer is old, and those beyond the newest."""
    newest = np.argsort(-told.rows["at"], kind="stable")
    old = now - told.rows["at"] > _KEPT_FOR
    old[newest[_MOST_KEPT:]] = True
    return told.agents[old]


def _in_turn(places: npt.NDArray[np.intp], number: int) -> npt.NDArray[np.intp]:
    """The same, beginning somewhere else in each round."""
    return np.roll(places, -(number * _STRIDE % len(places))) if len(places) else places


def _sample(
    places: npt.NDArray[np.intp], proxies: npt.NDArray[np.uint16], number: int
) -> npt.NDArray[np.intp]:
    """One place of each proxy, another one in each round."""
    ordered = places[np.argsort(proxies[places], kind="stable")]
    _, starts, counts = np.unique(proxies[ordered], return_index=True, return_counts=True)
    found: npt.NDArray[np.intp] = ordered[starts + number * _STRIDE % counts]
    return found


def _rank(groups: npt.NDArray[np.uint16]) -> npt.NDArray[np.intp]:
    """How many of its own group come before each."""
    order = np.argsort(groups, kind="stable")
    _, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
    ranks = np.empty(len(groups), np.intp)
    ranks[order] = np.arange(len(groups)) - np.repeat(starts, counts)
    return ranks
