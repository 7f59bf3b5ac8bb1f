"""Remembered values of agents, for the time without evidence: docs/reference/verdicts.md, "Agent memory"."""

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
    LAST_PROXY_COUNT,
    NO_INSTANCE,
    blank_memory,
)
from fleet.vocabulary.verdicts import State

#: Weights of a tunnel whose proxy is in slot 0, 1 or 2 of the remembered proxies, and of a new proxy.
_SLOT_WEIGHTS = (1, 2, 4)
_NEW_PROXY_WEIGHT = 64
_SLOT_MASK = 7


class MemoryUpdate(NamedTuple):
    """The new memory (the same object without changes), and whether any agent got a home."""

    memory: npt.NDArray[np.void]
    homes_changed: bool


def update_memory(
    memory: npt.NDArray[np.void],
    heartbeats: npt.NDArray[np.void],
    tunnel_agents: npt.NDArray[np.uint32],
    tunnel_proxies: npt.NDArray[np.uint16],
    now: float,
    frame: FleetFrame | None = None,
    previous_verdicts: npt.NDArray[np.void] | None = None,
) -> MemoryUpdate:
    """Return the memory with new homes, last auths and proxies, times of lost tunnels, and rounds of disagreement.

    With a frame only live and unread tunnels count: the last report of a dead proxy would name its tunnels forever.
    `memory` is not written to; it and the verdicts of the previous round may be shorter than `heartbeats`.
    """
    agent_count = len(heartbeats)
    reported_tunnel_agents = tunnel_agents
    if frame is not None:
        is_counted = (frame.tables.flags.take(tunnel_proxies) & (LIVE | UNREAD)) != 0
        if not is_counted.all():
            tunnel_agents, tunnel_proxies = tunnel_agents[is_counted], tunnel_proxies[is_counted]
        tunnel_agents, tunnel_proxies = _without_left_proxies(
            tunnel_agents, tunnel_proxies, frame, agent_count
        )
    previous = memory
    if agent_count > len(memory):
        previous = np.concatenate([memory, blank_memory(agent_count - len(memory))])
    weight_sums = _sum_slot_weights(previous, tunnel_agents, tunnel_proxies)
    has_tunnel = weight_sums > 0
    had_tunnel = (previous["flags"] & HAD_TUNNEL) != 0
    was_connected = previous["lost_at"] == 0
    has_new_auth = (heartbeats["expires_at"] > 0) & (heartbeats["auth"] != previous["last_auth"])
    has_first_tunnel = has_tunnel & ~had_tunnel
    lacks_home = has_tunnel & (previous["home_proxy"] == NO_INSTANCE)
    has_lost_tunnels = had_tunnel & was_connected & ~has_tunnel
    has_regained_tunnels = has_tunnel & ~was_connected
    is_reordered = _is_out_of_order(weight_sums)
    homes_changed = bool(lacks_home.any())
    flags = _count_disagreements(
        previous["flags"], heartbeats["claimed_count"], reported_tunnel_agents, frame
    )
    has_new_flags = flags != previous["flags"]
    if not (
        has_new_auth
        | has_first_tunnel
        | lacks_home
        | has_lost_tunnels
        | has_regained_tunnels
        | is_reordered
        | has_new_flags
    ).any():
        return MemoryUpdate(previous, homes_changed=False)

    new = previous.copy()
    new["last_auth"][has_new_auth] = heartbeats["auth"][has_new_auth]
    new["flags"] = flags
    new["flags"][has_first_tunnel] |= HAD_TUNNEL
    new["lost_at"][has_lost_tunnels] = now
    new["lost_at"][has_regained_tunnels] = 0
    if homes_changed:
        agents, homes = _select_homes(lacks_home, tunnel_agents, tunnel_proxies)
        new["home_proxy"][agents] = homes
    indices = np.flatnonzero(is_reordered)
    # The campaign removes its mark as soon as it sees the new tunnel, which may be before this round.
    is_reconnecting = previous["working_until"] > now
    if previous_verdicts is not None:
        is_reconnecting[: len(previous_verdicts)] |= previous_verdicts["state"] == State.WORKING
    new["last_proxies"][indices] = select_newest_proxies(
        previous, indices, tunnel_agents, tunnel_proxies, is_reconnecting[indices]
    )
    return MemoryUpdate(new, homes_changed)


def _without_left_proxies(
    tunnel_agents: npt.NDArray[np.uint32],
    tunnel_proxies: npt.NDArray[np.uint16],
    frame: FleetFrame,
    agent_count: int,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16]]:
    """Return the tunnels without those that agents leave: at a closing proxy, of agents with a tunnel elsewhere."""
    if not frame.closing_proxies:
        return tunnel_agents, tunnel_proxies
    is_closing = np.isin(tunnel_proxies, frame.closing_proxies)
    has_other_tunnel = np.bincount(tunnel_agents[~is_closing], minlength=agent_count) > 0
    is_counted = ~(is_closing & has_other_tunnel[tunnel_agents])
    return tunnel_agents[is_counted], tunnel_proxies[is_counted]


def _count_disagreements(
    flags: npt.NDArray[np.uint8],
    claimed_counts: npt.NDArray[np.uint8],
    reported_tunnel_agents: npt.NDArray[np.uint32],
    frame: FleetFrame | None,
) -> npt.NDArray[np.uint8]:
    """Return the flags with the consecutive rounds in which each agent reported more tunnels than proxies did."""
    other_flags = flags & np.uint8(0xFF & ~DISAGREEMENT)
    if frame is None or not frame.has_all_tunnel_reports:
        return other_flags
    reported_counts = np.bincount(reported_tunnel_agents, minlength=len(flags))
    # Agents without any tunnel have another state, so they are not counted.
    claims_more = (claimed_counts > reported_counts) & (reported_counts > 0)
    if not claims_more.any():
        return other_flags
    max_rounds = frame.timing.min_disagreement_rounds
    rounds = np.minimum((flags >> DISAGREEMENT_SHIFT) + 1, max_rounds).astype(np.uint8)
    return np.where(claims_more, other_flags | (rounds << DISAGREEMENT_SHIFT), other_flags)


def select_newest_proxies(
    memory: npt.NDArray[np.void],
    indices: npt.NDArray[np.intp],
    tunnel_agents: npt.NDArray[np.uint32],
    tunnel_proxies: npt.NDArray[np.uint16],
    is_reconnecting: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[np.uint16]:
    """Return the last distinct proxies of some agents (ascending indices), one row each: the current one first.

    An agent keeps its current proxy while it has a tunnel there, except if it is reconnecting and has a new one. Then
    new proxies, then present ones, then previous ones; within each in the remembered order, or by index.
    """
    row_by_agent = np.full(len(memory), -1, np.int64)
    row_by_agent[indices] = np.arange(len(indices))
    rows = np.flatnonzero(row_by_agent[tunnel_agents] >= 0)
    row_agent, row_proxy = row_by_agent[tunnel_agents[rows]], tunnel_proxies[rows]
    previous_proxies = np.ascontiguousarray(memory["last_proxies"][indices])
    is_in_slot = previous_proxies[row_agent] == row_proxy[:, None]
    is_connected = np.zeros((len(indices), LAST_PROXY_COUNT), np.bool_)
    for slot in range(LAST_PROXY_COUNT):
        is_connected[row_agent[is_in_slot[:, slot]], slot] = True
    is_new = ~is_in_slot.any(axis=1)

    agent = np.concatenate([row_agent[is_new], np.repeat(np.arange(len(indices)), LAST_PROXY_COUNT)])
    proxy = np.concatenate([row_proxy[is_new], previous_proxies.ravel()])
    # Rank: -1 current, 0 new, 1.. still there by slot, 4.. remembered only by slot.
    previous_rank = np.where(is_connected, 1, 1 + LAST_PROXY_COUNT) + np.arange(LAST_PROXY_COUNT)
    keeps_current = is_connected[:, 0] if is_reconnecting is None else is_connected[:, 0] & ~is_reconnecting
    previous_rank[keeps_current, 0] = -1
    rank = np.concatenate([np.zeros(int(is_new.sum()), np.int64), previous_rank.ravel()])
    is_instance = proxy != NO_INSTANCE
    agent, proxy, rank = agent[is_instance], proxy[is_instance], rank[is_instance]
    order = np.lexsort((proxy, rank, agent))
    agent, proxy = agent[order], proxy[order]
    place = _place_in_group(agent)
    last_proxies = np.full((len(indices), LAST_PROXY_COUNT), NO_INSTANCE, np.uint16)
    is_kept = place < LAST_PROXY_COUNT
    last_proxies[agent[is_kept], place[is_kept]] = proxy[is_kept]
    return last_proxies


def _sum_slot_weights(
    memory: npt.NDArray[np.void],
    tunnel_agents: npt.NDArray[np.uint32],
    tunnel_proxies: npt.NDArray[np.uint16],
) -> npt.NDArray[np.int64]:
    """Return per agent the sum of the weights of its tunnels' slots."""
    code = np.zeros(len(tunnel_agents), np.uint8)
    for slot, weight in enumerate(_SLOT_WEIGHTS):
        last_proxies = np.ascontiguousarray(memory["last_proxies"][:, slot])
        code |= (last_proxies.take(tunnel_agents) == tunnel_proxies).view(np.uint8) * np.uint8(weight)
    weights = np.arange(_SLOT_MASK + 1, dtype=np.float64)
    weights[0] = _NEW_PROXY_WEIGHT
    return np.bincount(tunnel_agents, weights.take(code), len(memory)).astype(np.int64)


def _is_out_of_order(weight_sums: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which agents' remembered proxies do not begin with their present proxies."""
    full = (weight_sums & _SLOT_MASK) == _SLOT_MASK
    prefix = (
        (weight_sums == 0)
        | (weight_sums == _SLOT_WEIGHTS[0])
        | (weight_sums == _SLOT_WEIGHTS[0] + _SLOT_WEIGHTS[1])
    )
    in_order: npt.NDArray[np.bool_] = full | prefix
    return ~in_order


def _select_homes(
    homeless: npt.NDArray[np.bool_],
    tunnel_agents: npt.NDArray[np.uint32],
    tunnel_proxies: npt.NDArray[np.uint16],
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16]]:
    """Return homes from the first tunnels that were seen.

    With several tunnels the agent's index selects one: always the lowest would crowd the first block of the map.
    """
    rows = homeless[tunnel_agents]
    order = np.lexsort((tunnel_proxies[rows], tunnel_agents[rows]))
    agent, proxy = tunnel_agents[rows][order], tunnel_proxies[rows][order]
    place = _place_in_group(agent)
    starts = np.flatnonzero(place == 0)
    sizes = np.diff(np.append(starts, len(agent)))
    return agent[starts], proxy[starts + agent[starts] % sizes]


def _place_in_group(groups: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Return the position of each element in its run of equal values, from 0."""
    numbers = np.arange(len(groups))
    if len(groups) == 0:
        return numbers
    begins = np.append(True, groups[1:] != groups[:-1])
    return numbers - np.maximum.accumulate(np.where(begins, numbers, 0))
