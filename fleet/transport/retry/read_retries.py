"""Retries for programs of ours: what may be said twice is said again, other writes are left alone.

docs/retries.md, "In this project".
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from fleet.protocol.retry.policy import NO_RETRY, RetryPolicy, RetryReason

#: Reads that may be asked twice: they change nothing, and who asks them has no other way to the answer.
READS = frozenset(
    {
        "/fleet.v1.AgentFeed/ListAgents",
        "/teleport.presence.v1.PresenceService/ListAuthServers",
        "/teleport.presence.v1.PresenceService/ListProxyServers",
        "/teleport.clusterconfig.v1.ClusterConfigService/GetClusterNetworkingConfig",
    }
)
#: What agents say again in any case, and each time all of it: an auth that took it twice knows nothing else.
REPORTS = frozenset({"/fleet.v1.HeartbeatService/Heartbeat"})
#: A connection that was lost, once; each call's own deadline bounds it all. Seconds.
DEFAULT = RetryPolicy(frozenset({RetryReason.UNAVAILABLE}), attempts=1, backoff=0.05)


def policy_by_method(policy: RetryPolicy = DEFAULT, methods: Collection[str] = READS) -> Callable[[str], RetryPolicy]:
    """What an interceptor is given: the policy for these methods, no retry for any other."""
    return lambda method: policy if method in methods else NO_RETRY
