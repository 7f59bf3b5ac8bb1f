"""What a sick proxy suffers from when that is not itself: its auth. docs/verdicts.md, "The frame".

A proxy has one resource and one auth that writes it. Without that auth it says that it is unhealthy, and expires.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.monitoring.classify.standings import InstanceCondition
from fleet.monitoring.evidence import Timing
from fleet.protocol.recovery.announce import DEFAULT_TTL, RETRY_AFTER
from fleet.vocabulary.instances import InstanceKind
from fleet.vocabulary.verdicts import BACKEND_CAUSE

#: Heartbeats come every TTL/2 + U[0, TTL/10), so within this share of the TTL.
HEARTBEAT_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Dependency:
    """The cause of a proxy's sickness that is not the proxy."""

    #: Instance index of the auth, or BACKEND_CAUSE.
    cause: int
    #: When the proxy heartbeats through another auth, at the latest; None when no other auth is well.
    moves_at: float | None


def find_dependencies(
    conditions: Mapping[int, InstanceCondition], timing: Timing, *, backend_down: bool
) -> dict[int, Dependency]:
    """Return the sick proxies whose auth is to blame, by index, each with its cause."""
    auths = {s.facts.id: s for s in conditions.values() if s.facts.kind is InstanceKind.AUTH}
    dependency_by_proxy: dict[int, Dependency] = {}
    if not any(auth.sick for auth in auths.values()):
        return dependency_by_proxy
    is_other_well = any(not auth.sick for auth in auths.values())
    for index, proxy in conditions.items():
        # One that does not answer at all does not only lack its auth. Of the resources of auths nobody else has a part.
        if proxy.facts.kind is not InstanceKind.PROXY or not proxy.keeps_connections:
            continue
        auth = auths.get(proxy.facts.heartbeat_auth)
        if auth is not None and _is_to_blame(auth, proxy, timing):
            cause = BACKEND_CAUSE if backend_down else auth.facts.index
            dependency_by_proxy[index] = Dependency(cause, _moves_at(proxy) if is_other_well else None)
    return dependency_by_proxy


def _is_to_blame(auth: InstanceCondition, proxy: InstanceCondition, timing: Timing) -> bool:
    """Tell whether the auth fell sick before the proxy, or so soon after it that polls may have missed the order.

    An auth that lost its backend says so at its own next heartbeat, and a proxy at its own, which may come first.
    """
    margin = max(timing.stale_after, HEARTBEAT_SHARE * _ttl(auth))
    return auth.sick and auth.since <= proxy.since + margin


def _moves_at(proxy: InstanceCondition) -> float:
    """Tell by when a proxy is well through another auth: one more attempt, and a second success that proves it."""
    interval = HEARTBEAT_SHARE * _ttl(proxy)
    return proxy.since + min(RETRY_AFTER, interval) + interval


def _ttl(instance: InstanceCondition) -> float:
    return DEFAULT_TTL if instance.facts.ttl is None else instance.facts.ttl
