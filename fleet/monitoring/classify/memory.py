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
    REMEMBERED,
    empty_memory,
)

#: Weight of a row whose proxy is in slot 0, 1 or 2 of what is remembered, and of one that is in none.
_SLOT = (1, 2, 4)
_NEW = 64
_SLOTS = 7


class Remembered(NamedTuple):
    """The new memory (the same object when nothing changed), and whether any agent has got a home."""

    memory: npt.NDArray[np.void]
    homes_changed: bool


def remember(
    memory: npt.NDArray[np.void],
    heartbeats: npt.NDArray[np.void],
    tunnel_agents: npt.NDArray[np.uint32],
    tunnel_proxies: npt.NDArray[np.uint16],
    now: float,
    frame: FleetFrame | None = None,
) -> Remembered:
    """Take note of homes, last auths and proxies, of when tunnels were lost, and how long views have disagreed.

    With a frame only tunnels that are live, or were merely not read, count: the last report of a dead proxy names
    tunnels for ever, and is no news. `memory` is not written to; it may be shorter than `heartbeats`.
    """
    count = len(heartbeats)
    reporting = tunnel_agents
    if frame is not None:
        counts = (frame.tables.flags.take(tunnel_proxies) & (LIVE | UNREAD)) != 0
        if not counts.all():
            tunnel_agents, tunnel_proxies = tunnel_agents[counts], tunnel_proxies[counts]
    known = memory
    if count > len(memory):
        known = np.concatenate([memory, empty_memory(count - len(memory))])
    slots = _slots(known, tunnel_agents, tunnel_proxies)
    has = slots > 0
    had = (known["flags"] & HAD_TUNNEL) != 0
    whole = known["lost_at"] == 0
    moved = (heartbeats["expires_at"] > 0) & (heartbeats["auth"] != known["last_auth"])
    first = has & ~had
    homeless = has & (known["home"] == NO_INSTANCE)
    lost = had & whole & ~has
    found = has & ~whole
    reordered = _out_of_order(slots)
    homes_changed = bool(homeless.any())
    flags = _disagreeing(known["flags"], heartbeats["claimed"], reporting, frame)
    counted = flags != known["flags"]
    if not (moved | first | homeless | lost | found | reordered | counted).any():
        return Remembered(known, homes_changed=False)

    new = known.copy()
    new["last_auth"][moved] = heartbeats["auth"][moved]
    new["flags"] = flags
    new["flags"][first] |= HAD_TUNNEL
    new["lost_at"][lost] = now
    new["lost_at"][found] = 0
    if homes_changed:
        agents, homes = _homes(homeless, tunnel_agents, tunnel_proxies)
        new["home"][agents] = homes
    which = np.flatnonzero(reordered)
    new["last_proxies"][which] = newest_proxies(known, which, tunnel_agents, tunnel_proxies)
    return Remembered(new, homes_changed)


def _disagreeing(
    flags: npt.NDArray[np.uint8],
    claimed: npt.NDArray[np.uint8],
    reporting: npt.NDArray[np.uint32],
    frame: FleetFrame | None,
) -> npt.NDArray[np.uint8]:
    """Return the flags with the rounds in a row in which each agent has claimed more tunnels than are reported."""
    others = flags & np.uint8(0xFF & ~DISAGREEMENT)
    if frame is None or not frame.covered:
        return others
    reported = np.bincount(reporting, minlength=len(flags))
    # Who has lost every tunnel has another verdict: a fleet that is stranded need not be counted.
    more = (claimed > reported) & (reported > 0)
    if not more.any():
        return others
    enough = frame.timing.disagreement_rounds
    rounds = np.minimum((flags >> DISAGREEMENT_SHIFT) + 1, enough).astype(np.uint8)
    return np.where(more, others | (rounds << DISAGREEMENT_SHIFT), others)


def newest_proxies(
    memory: npt.NDArray[np.void],
    which: npt.NDArray[np.intp],
    tunnel_agents: npt.NDArray[np.uint32],
    tunnel_proxies: npt.NDArray[np.uint16],
) -> npt.NDArray[np.uint16]:
    """List the newest distinct proxies of some agents (ascending indices), one row each.

    New ones first, then those it still has, then those it had; within each, as remembered, or by index.
    """
    position = np.full(len(memory), -1, np.int64)
    position[which] = np.arange(len(which))
    rows = np.flatnonzero(position[tunnel_agents] >= 0)
    row_agent, row_proxy = position[tunnel_agents[rows]], tunnel_proxies[rows]
    old = np.ascontiguousarray(memory["last_proxies"][which])
    row_slot = old[row_agent] == row_proxy[:, None]
    kept = np.zeros((len(which), REMEMBERED), np.bool_)
    for slot in range(REMEMBERED):
        kept[row_agent[row_slot[:, slot]], slot] = True
    fresh = ~row_slot.any(axis=1)

    agent = np.concatenate([row_agent[fresh], np.repeat(np.arange(len(which)), REMEMBERED)])
    proxy = np.concatenate([row_proxy[fresh], old.ravel()])
    # Rank: 0 new, 1.. still there by slot, 4.. remembered only by slot.
    old_rank = np.where(kept, 1, 1 + REMEMBERED) + np.arange(REMEMBERED)
    rank = np.concatenate([np.zeros(int(fresh.sum()), np.int64), old_rank.ravel()])
    named = proxy != NO_INSTANCE
    agent, proxy, rank = agent[named], proxy[named], rank[named]
    order = np.lexsort((proxy, rank, agent))
    agent, proxy = agent[order], proxy[order]
    place = _place_in_group(agent)
    result = np.full((len(which), REMEMBERED), NO_INSTANCE, np.uint16)
    head = place < REMEMBERED
    result[agent[head], place[head]] = proxy[head]
    return result


def _slots(
    memory: npt.NDArray[np.void],
    tunnel_agents: npt.NDArray[np.uint32],
    tunnel_proxies: npt.NDArray[np.uint16],
) -> npt.NDArray[np.int64]:
    """Sum, per agent, the weights of the slots in which its tunnels' proxies are remembered."""
    code = np.zeros(len(tunnel_agents), np.uint8)
    for slot, weight in enumerate(_SLOT):
        remembered = np.ascontiguousarray(memory["last_proxies"][:, slot])
        code |= (remembered.take(tunnel_agents) == tunnel_proxies).view(np.uint8) * np.uint8(weight)
    weights = np.arange(_SLOTS + 1, dtype=np.float64)
    weights[0] = _NEW
    return np.bincount(tunnel_agents, weights.take(code), len(memory)).astype(np.int64)


def _out_of_order(slots: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Tell whose remembered proxies do not begin with those it has now."""
    full = (slots & _SLOTS) == _SLOTS
    prefix = (slots == 0) | (slots == _SLOT[0]) | (slots == _SLOT[0] + _SLOT[1])
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
