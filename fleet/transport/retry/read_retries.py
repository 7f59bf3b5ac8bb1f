"""Retry policies for Refloat's own programs: calls that are safe to repeat are retried, other writes are not.

docs/reference/retries.md, "Retries in Refloat".
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from fleet.protocol.retry.policy import NO_RETRY, RetryPolicy, RetryReason

#: Reads that are safe to repeat: they change nothing, and their callers have no other source.
READ_METHODS = frozenset(
    {
        "/fleet.v1.AgentFeed/ListAgents",
        "/teleport.presence.v1.PresenceService/ListAuthServers",
        "/teleport.presence.v1.PresenceService/ListProxyServers",
        "/teleport.clusterconfig.v1.ClusterConfigService/GetClusterNetworkingConfig",
    }
)
#: One retry after a lost connection, within the deadline of the call. Seconds.
DEFAULT_READ_RETRIES = RetryPolicy(frozenset({RetryReason.UNAVAILABLE}), attempts=1, backoff=0.05)
#: Of heartbeats: they are complete reports, repeated anyway, and an auth that receives one twice stores the same.
HEARTBEAT_RETRIES = DEFAULT_READ_RETRIES


def policy_by_method(
    policy: RetryPolicy = DEFAULT_READ_RETRIES, methods: Collection[str] = READ_METHODS
) -> Callable[[str], RetryPolicy]:
    """Return the policy function for an interceptor: `policy` for these methods, no retry for others."""
    return lambda method: policy if method in methods else NO_RETRY
