"""When agents act on a new networking config. Pure; times are seconds.

A proxy finds the new revision when it next reads the list of proxies, and announces it; the agents then fetch it from
their auths, spread over some time. docs/reference/networking-config.md, "How nodes use it".
"""

from __future__ import annotations

from fleet.protocol.recovery import announce, discovery

#: Longest delay before an agent fetches an announced config, whatever a proxy says.
LONGEST_SPREAD_SECONDS = 60.0
#: Agents fetch an announced config within this, plus so much for each tunnel of the proxy: an auth handles about 1,000
#: heartbeats a second.
_MIN_SPREAD_SECONDS = 1.0
_SPREAD_SECONDS_PER_TUNNEL = 0.001
#: Longest time between two looks of an agent at its tunnels.
_TICK_SECONDS = 1.0


def spread_seconds_of(tunnel_count: int) -> float:
    """Return the time over which the agents of a proxy fetch a new config."""
    return min(_MIN_SPREAD_SECONDS + _SPREAD_SECONDS_PER_TUNNEL * tunnel_count, LONGEST_SPREAD_SECONDS)


def reaction_seconds_of(ttl: float | None, tunnel_count: int, proxy_count: int) -> float:
    """Return about the time until the last agent acts on a new config.

    `ttl`, `tunnel_count`: of the slowest proxy; the TTL may be unknown. Proxies read at any moment of their interval:
    the last of several proxies does so near the end of the interval, a single proxy on average in the middle.
    """
    read_interval = announce.CHECK_PERIOD if ttl is None else discovery.read_interval(ttl, compact=True)
    last_read = read_interval * proxy_count / (proxy_count + 1)
    return last_read + spread_seconds_of(tunnel_count) + _TICK_SECONDS / 2
