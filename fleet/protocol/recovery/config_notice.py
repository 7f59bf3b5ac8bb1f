"""When agents act on a new networking config. Pure; times are seconds.

A proxy finds the new revision when it next reads the list of proxies, and announces it; the agents then fetch it from
their auths, spread over some time. docs/reference/networking-config.md, "How nodes use it".
"""

from __future__ import annotations

import math

from fleet.protocol.recovery import announce, discovery

#: Longest delay before an agent fetches an announced config, whatever a proxy says.
LONGEST_SPREAD_SECONDS = 60.0
#: Agents fetch an announced config within this, plus so much for each tunnel of the proxy: an auth handles about 1,000
#: heartbeats a second.
_MIN_SPREAD_SECONDS = 1.0
_SPREAD_SECONDS_PER_TUNNEL = 0.001


def spread_seconds_of(tunnel_count: int) -> float:
    """Return the time over which the agents of a proxy fetch a new config."""
    return min(_MIN_SPREAD_SECONDS + _SPREAD_SECONDS_PER_TUNNEL * tunnel_count, LONGEST_SPREAD_SECONDS)


def reaction_seconds_of(
    ttl: float | None, tunnel_count: int, proxy_count: int, tunnels_per_agent: int = 1
) -> float:
    """Return about the time until the last agent acts on a new config.

    `ttl`, `tunnel_count`: of the slowest proxy; the TTL may be unknown. `tunnels_per_agent`: the fewest of an agent.
    Proxies read at any moment of their interval, and an agent hears of the config from the first of its proxies.
    """
    read_interval = announce.CHECK_PERIOD if ttl is None else discovery.read_interval(ttl, compact=True)
    # Of n moments, the last k are too late to matter to an agent with k + 1 tunnels.
    last_read = read_interval * max(proxy_count - tunnels_per_agent + 1, 1) / (proxy_count + 1)
    return last_read + _last_fetch_seconds_of(spread_seconds_of(tunnel_count), tunnel_count)


def _last_fetch_seconds_of(spread: float, agent_count: int) -> float:
    """Return the mean time from the notice of a proxy until the last of its agents has fetched the config.

    Each agent waits U[0, spread) until its heartbeat is due, and U[delay, 2 * delay) until it sends the heartbeat. The
    sum of two uniform numbers is within x of its maximum with chance x^2 / (2 * spread * delay).
    """
    delay = announce.NEWS_DELAY
    distance_to_maximum = math.sqrt(math.pi * spread * delay / (2 * max(agent_count, 1)))
    return max(spread + 2 * delay - distance_to_maximum, spread / 2 + 1.5 * delay)
