"""How often agents reconnected in a period, from the recorded places of agents.

A round records the connections of an agent as the pollers found them: an agent that leaves and comes back between two
rounds is not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleet.models.history import LAST_PROXY_BIT, NO_AUTH_KEY
from fleet.monitoring.history.past import Changes, columns_at, read_changes
from fleet.monitoring.history.past_columns import PastColumns


@dataclass(frozen=True, slots=True)
class ReconnectCounts:
    """The reconnects of all agents of a cluster in a period."""

    #: Connections of agents to another auth.
    auth_count: int = 0
    #: Tunnels that ended. Agents opened most of them again, to the same or another proxy.
    tunnel_count: int = 0


def read_reconnect_counts(cluster: str, since: float, until: float) -> ReconnectCounts | None:
    """Return the reconnects after `since` up to `until`, seconds since the epoch; None: the history begins later."""
    start = columns_at(cluster, since)
    return None if start is None else count_reconnects(start, read_changes(cluster, since, until))


def count_reconnects(start: PastColumns, changes: Changes) -> ReconnectCounts:
    """Return the reconnects in changes, oldest first, of agents that were as in `start` before."""
    auths = dict(zip(start.agents.tolist(), start.auths.tolist(), strict=True))
    proxies = _proxies_of(start)
    auth_count = tunnel_count = 0
    for agent, auth, packed_proxies in zip(
        changes.rows["agent"].tolist(), changes.rows["auth"].tolist(), changes.proxies, strict=True
    ):
        # An agent between two auths keeps its last one.
        if auth > NO_AUTH_KEY:
            auth_count += auths.get(agent, auth) not in (auth, NO_AUTH_KEY)
            auths[agent] = auth
        if packed_proxies is not None:
            live_proxies = _unpack(packed_proxies)
            tunnel_count += len(proxies.get(agent, frozenset()) - live_proxies)
            proxies[agent] = live_proxies
    return ReconnectCounts(auth_count, tunnel_count)


def _proxies_of(columns: PastColumns) -> dict[int, frozenset[int]]:
    lengths = np.maximum(columns.tunnel_counts, 0).astype(np.int64)
    ends = np.cumsum(lengths)
    keys = columns.tunnel_proxies.tolist()
    return {
        agent: frozenset(keys[end - length : end])
        for agent, end, length in zip(columns.agents.tolist(), ends.tolist(), lengths.tolist(), strict=True)
    }


def _unpack(packed_proxies: bytes) -> frozenset[int]:
    """Return the keys of the proxies with a tunnel; the last proxy of an agent without tunnels is none."""
    return frozenset(key for key in np.frombuffer(packed_proxies, "<u4").tolist() if key < LAST_PROXY_BIT)
