"""What a round remembers of every agent, for when its evidence is gone: docs/verdicts.md, "What is remembered"."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleet.monitoring.classify.frame import FleetFrame
from fleet.monitoring.classify.tables import LIVE, UNREAD
from fleet.monitoring.columns import (
    DISAGREEMENT,
    DISAGREEMENT_SHIFT,
    HAD_TUNNEL,
    NO_INSTANCE,
    LAST_PROXY_COUNT,
    empty_memory,
)

#: Weight of a row whose proxy is in slot 0, 1 or 2 of what is remembered, and of one that is in none.
_SLOT_WEIGHTS = (1, 2, 4)
_NEW_WEIGHT = 64
_SLOT_MASK = 7


class MemoryUpdate(NamedTuple):
    """The new memory (the same object when nothing changed), and whether any agent has got a home."""

    memory: npt.NDArray[np.void]
    homes_changed: bool


def update_memory(
    memory: npt.NDArray[np.void],
    heartbeats: npt.NDArray[np.void],
    tunnel_agents: npt.NDArray[np.uint32],
    tunnel_proxies: npt.NDArray[np.uint16],
    now: float,
    frame: FleetFrame | None = None,
) -> MemoryUpdate:
    """Take note of homes, last auths and proxies, of when tunnels were lost, and how long views have disagreed.

    With a frame only tunnels that are live, or were merely not read, count: the last report of a dead proxy names
    tunnels for ever, and is no news. `memory` is not written to; it may be shorter than `heartbeats`.
    """
    count = len(heartbeats)
    reporting_agents = tunnel_agents
    if frame is not None:
        is_counted = (frame.tables.flags.take(tunnel_proxies) & (LIVE | UNREAD)) != 0
        if not is_counted.all():
            tunnel_agents, tunnel_proxies = tunnel_agents[is_counted], tunnel_proxies[is_counted]
    previous = memory
    if count > len(memory):
        previous = np.concatenate([memory, empty_memory(count - len(memory))])
    slots = _slot_weights(previous, tunnel_agents, tunnel_proxies)
    has_tunnel = slots > 0
    had_tunnel = (previous["flags"] & HAD_TUNNEL) != 0
    was_connected = previous["lost_at"] == 0
    has_new_auth = (heartbeats["expires_at"] > 0) & (heartbeats["auth"] != previous["last_auth"])
    has_first_tunnel = has_tunnel & ~had_tunnel
    lacks_home = has_tunnel & (previous["home"] == NO_INSTANCE)
    has_lost_tunnels = had_tunnel & was_connected & ~has_tunnel
    has_regained_tunnels = has_tunnel & ~was_connected
    is_reordered = _is_out_of_order(slots)
    homes_changed = bool(lacks_home.any())
    flags = _count_disagreements(previous["flags"], heartbeats["claimed"], reporting_agents, frame)
    has_new_flags = flags != previous["flags"]
    if not (has_new_auth | has_first_tunnel | lacks_home | has_lost_tunnels | has_regained_tunnels | is_reordered | has_new_flags).any():
        return MemoryUpdate(previous, homes_changed=False)

    new = previous.copy()
    new["last_auth"][has_new_auth] = heartbeats["auth"][has_new_auth]
    new["flags"] = flags
    new["flags"][has_first_tunnel] |= HAD_TUNNEL
    new["lost_at"][has_lost_tunnels] = now
    new["lost_at"][has_regained_tunnels] = 0
    if homes_changed:
        agents, homes = _homes(lacks_home, tunnel_agents, tunnel_proxies)
        new["home"][agents] = homes
    indices = np.flatnonzero(is_reordered)
    new["last_proxies"][indices] = newest_proxies(previous, indices, tunnel_agents, tunnel_proxies)
    return MemoryUpdate(new, homes_changed)


def _count_disagreements(
    flags: npt.NDArray[np.uint8],
    claimed_counts: npt.NDArray[np.uint8],
    reporting_agents: npt.NDArray[np.uint32],
    frame: FleetFrame | None,
) -> npt.NDArray[np.uint8]:
    """Return the flags with the rounds in a row in which each agent has claimed more tunnels than are reported."""
    other_flags = flags & np.uint8(0xFF & ~DISAGREEMENT)
    if frame is None or not frame.has_all_tunnel_reports:
        return other_flags
    reported_counts = np.bincount(reporting_agents, minlength=len(flags))
    # Who has lost every tunnel has another verdict: a fleet that is stranded need not be counted.
    claims_more = (claimed_counts > reported_counts) & (reported_counts > 0)
    if not claims_more.any():
        return other_flags
    max_rounds = frame.timing.disagreement_rounds
    rounds = np.minimum((flags >> DISAGREEMENT_SHIFT) + 1, max_rounds).astype(np.uint8)
    return np.where(claims_more, other_flags | (rounds << DISAGREEMENT_SHIFT), other_flags)


def newest_proxies(
    memory: npt.NDArray[np.void],
    indices: npt.NDArray[np.intp],
    tunnel_agents: npt.NDArray[np.uint32],
    tunnel_proxies: npt.NDArray[np.uint16],
) -> npt.NDArray[np.uint16]:
    """List the newest distinct proxies of some agents (ascending indices), one row each.

    New ones first, then those it still has, then those it had; within each, as remembered, or by index.
    """
    position = np.full(len(memory), -1, np.int64)
    position[indices] = np.arange(len(indices))
    rows = np.flatnonzero(position[tunnel_agents] >= 0)
    row_agent, row_proxy = position[tunnel_agents[rows]], tunnel_proxies[rows]
    old = np.ascontiguousarray(memory["last_proxies"][indices])
    row_slot = old[row_agent] == row_proxy[:, None]
    is_connected = np.zeros((len(indices), LAST_PROXY_COUNT), np.bool_)
    for slot in range(LAST_PROXY_COUNT):
        is_connected[row_agent[row_slot[:, slot]], slot] = True
    fresh = ~row_slot.any(axis=1)

    agent = np.concatenate([row_agent[fresh], np.repeat(np.arange(len(indices)), LAST_PROXY_COUNT)])
    proxy = np.concatenate([row_proxy[fresh], old.ravel()])
    # Rank: 0 new, 1.. still there by slot, 4.. remembered only by slot.
    old_rank = np.where(is_connected, 1, 1 + LAST_PROXY_COUNT) + np.arange(LAST_PROXY_COUNT)
    rank = np.concatenate([np.zeros(int(fresh.sum()), np.int64), old_rank.ravel()])
    is_instance = proxy != NO_INSTANCE
    agent, proxy, rank = agent[is_instance], proxy[is_instance], rank[is_instance]
    order = np.lexsort((proxy, rank, agent))
    agent, proxy = agent[order], proxy[order]
    place = _place_in_group(agent)
    last_proxies = np.full((len(indices), LAST_PROXY_COUNT), NO_INSTANCE, np.uint16)
    head = place < LAST_PROXY_COUNT
    last_proxies[agent[head], place[head]] = proxy[head]
    return last_proxies


def _slot_weights(
    memory: npt.NDArray[np.void],
    tunnel_agents: npt.NDArray[np.uint32],
    tunnel_proxies: npt.NDArray[np.uint16],
) -> npt.NDArray[np.int64]:
    """Sum, per agent, the weights of the slots in which its tunnels' proxies are remembered."""
    code = np.zeros(len(tunnel_agents), np.uint8)
    for slot, weight in enumerate(_SLOT_WEIGHTS):
        last_proxies = np.ascontiguousarray(memory["last_proxies"][:, slot])
        code |= (last_proxies.take(tunnel_agents) == tunnel_proxies).view(np.uint8) * np.uint8(weight)
    weights = np.arange(_SLOT_MASK + 1, dtype=np.float64)
    weights[0] = _NEW_WEIGHT
    return np.bincount(tunnel_agents, weights.take(code), len(memory)).astype(np.int64)


def _is_out_of_order(slots: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Tell whose remembered proxies do not begin with those it has now."""
    full = (slots & _SLOT_MASK) == _SLOT_MASK
    prefix = (slots == 0) | (slots == _SLOT_WEIGHTS[0]) | (slots == _SLOT_WEIGHTS[0] + _SLOT_WEIGHTS[1])
    in_order: npt.NDArray[np.bool_] = full | prefix
    return ~in_order


def _homes(
    homeless: npt.NDArray[np.bool_],
    tunnel_agents: npt.NDArray[np.uint32],
    tunnel_proxies: npt.NDArray[np.uint16],
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16]]:
    """Choose homes among the first tunnels seen.

    Of several the agent's own index chooses: always the lowest would crowd the first block of the map.
    """
    rows = homeless[tunnel_agents]
    order = np.lexsort((tunnel_proxies[rows], tunnel_agents[rows]))
    agent, proxy = tunnel_agents[rows][order], tunnel_proxies[rows][order]
    place = _place_in_group(agent)
    starts = np.flatnonzero(place == 0)
    sizes = np.diff(np.append(starts, len(agent)))
    return agent[starts], proxy[starts + agent[starts] % sizes]


def _place_in_group(groups: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Number the members of each run of equal values from 0."""
    numbers = np.arange(len(groups))
    if len(groups) == 0:
        return numbers
    begins = np.append(True, groups[1:] != groups[:-1])
    return numbers - np.maximum.accumulate(np.where(begins, numbers, 0))
