"""Failing proxies whose cause is their auth: docs/reference/verdicts.md, "Cluster facts".

One auth writes the resource of a proxy. Without that auth the proxy reports itself as unhealthy, and expires.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.monitoring.classify.instance_conditions import InstanceCondition
from fleet.monitoring.evidence import Timing
from fleet.protocol.recovery.announce import DEFAULT_TTL, RETRY_AFTER
from fleet.vocabulary.instances import InstanceKind
from fleet.vocabulary.verdicts import BACKEND_CAUSE

#: Longest interval between heartbeats as a share of the TTL: they come every TTL/2 + U[0, TTL/10).
HEARTBEAT_INTERVAL_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Dependency:
    """Cause of a failing proxy that is not the proxy itself."""

    #: Instance index of the auth, or BACKEND_CAUSE.
    cause: int
    #: Latest time at which the proxy heartbeats through another auth; None when no other auth is available.
    moves_at: float | None


def find_dependencies(
    conditions: Mapping[int, InstanceCondition], timing: Timing, *, backend_down: bool
) -> dict[int, Dependency]:
    """Return the failing proxies whose auth is the cause, by index."""
    auth_by_id = {
        condition.facts.id: condition
        for condition in conditions.values()
        if condition.facts.kind is InstanceKind.AUTH
    }
    dependency_by_proxy: dict[int, Dependency] = {}
    if not any(auth.is_sick for auth in auth_by_id.values()):
        return dependency_by_proxy
    has_healthy_auth = any(not auth.is_sick for auth in auth_by_id.values())
    for index, proxy in conditions.items():
        # A proxy that does not respond has another problem too. Auths write their own resources.
        if proxy.facts.kind is not InstanceKind.PROXY or not proxy.keeps_connections:
            continue
        auth = auth_by_id.get(proxy.facts.heartbeat_auth)
        if auth is not None and _is_to_blame(auth, proxy, timing):
            cause = BACKEND_CAUSE if backend_down else auth.facts.index
            dependency_by_proxy[index] = Dependency(cause, _predict_move(proxy) if has_healthy_auth else None)
    return dependency_by_proxy


def _is_to_blame(auth: InstanceCondition, proxy: InstanceCondition, timing: Timing) -> bool:
    """Return whether the auth failed before the proxy, or so soon after it that polls may have missed the order.

    An auth that lost its backend reports that at its next heartbeat, and a proxy at its own, which may be earlier.
    """
    margin = max(timing.stale_after, HEARTBEAT_INTERVAL_SHARE * _ttl_of(auth))
    return auth.is_sick and auth.since <= proxy.since + margin


def _predict_move(proxy: InstanceCondition) -> float:
    """Return when a proxy has recovered with another auth: one more attempt, and a second success as a proof."""
    interval = HEARTBEAT_INTERVAL_SHARE * _ttl_of(proxy)
    return proxy.since + min(RETRY_AFTER, interval) + interval


def _ttl_of(instance: InstanceCondition) -> float:
    return DEFAULT_TTL if instance.facts.ttl is None else instance.facts.ttl
