"""The time that agents need to find proxies for their missing tunnels through a load balancer. Pure; seconds.

The load balancer leads each dial to any of the proxies. A dial that reaches a proxy with a tunnel of the same agent is
repeated, as `agent_pool` schedules it: with the last missing proxies, most dials are.
"""

from __future__ import annotations

import functools

from fleet.protocol.recovery import agent_pool

#: Dials of an agent after which the forecast stops counting: some hours.
_MAX_DIALS = 5_000
_NEGLIGIBLE_CHANCE = 1e-12


@functools.lru_cache(maxsize=256)
def dial_seconds_of(held_count: int, missing_count: int, proxy_count: int, agent_count: int) -> float:
    """Return about the pauses of the slowest of `agent_count` agents until it has its missing tunnels.

    `held_count`: the tunnels of each agent before. The dials themselves are not counted: each takes some round trips.
    """
    target_count = min(held_count + missing_count, proxy_count)
    if target_count <= held_count or agent_count <= 0:
        return 0.0
    dial_count = _dial_count_of(held_count, target_count, proxy_count, agent_count)
    opened_count = target_count - held_count
    free_count = min(dial_count - opened_count, agent_pool.free_duplicates_of(proxy_count))
    # No pause follows the last dial.
    attempts = range(dial_count - free_count - 1)
    return sum((agent_pool.mean_pause_of(attempt) for attempt in attempts), 0.0)


def _dial_count_of(held_count: int, target_count: int, proxy_count: int, agent_count: int) -> int:
    """Return the median number of dials of the agent that needs most of them."""
    enough_chance = 0.5 ** (1 / agent_count)
    # Chance of each number of tunnels, from `held_count` on; the last one is absorbing.
    chances = [1.0] + [0.0] * (target_count - held_count)
    last, lowest = len(chances) - 1, 0
    for dial_count in range(1, _MAX_DIALS + 1):
        while lowest < last and chances[lowest] < _NEGLIGIBLE_CHANCE:
            lowest += 1
        for position in range(min(last, dial_count) - 1, lowest - 1, -1):
            opening_chance = chances[position] * (1 - (held_count + position) / proxy_count)
            chances[position] -= opening_chance
            chances[position + 1] += opening_chance
        if chances[-1] >= enough_chance:
            return dial_count
    return _MAX_DIALS
