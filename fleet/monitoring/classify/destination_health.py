"""Destination health of an instance from its polls: docs/reference/destination-health.md, "Console".

It is independent of the state of an instance. It needs several polls where the quick rule of `instances` needs one or
two, and it detects instances that fail intermittently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fleet.monitoring.classify.instances import READY_CODE, is_fresh
from fleet.monitoring.evidence import Timing
from fleet.protocol.destination.health import (
    RECOMMENDED_SETTINGS,
    ActiveHealth,
    DrainRequest,
    Health,
    HealthReason,
    HealthSettings,
    HealthSignal,
    ProbeOutcome,
)
from fleet.protocol.destination.instance_status import InstanceStatus
from fleet.vocabulary.instances import InstanceFacts, ServingStatus
from fleet.vocabulary.watch import InstanceWatch


def probe_outcome_of(
    *, is_reached: bool, serving_status: ServingStatus | None, readyz: int | None, status: InstanceStatus
) -> ProbeOutcome:
    """Return the outcome of one poll of an instance. Values without a request or a response are None."""
    if not is_reached or serving_status is ServingStatus.NOT_SERVING or readyz not in (None, READY_CODE):
        return ProbeOutcome.FAILURE
    return ProbeOutcome.SUCCESS if status.degraded_reason is None else ProbeOutcome.DEGRADED


def update_watch(
    previous: InstanceWatch,
    outcome: ProbeOutcome,
    status: InstanceStatus | None,
    *,
    address: str,
    at: float,
    settings: HealthSettings = RECOMMENDED_SETTINGS,
) -> InstanceWatch:
    """Return the watch after one poll; `status` is None without a response: the previous report then stays."""
    if previous.address != address:
        previous = InstanceWatch(ActiveHealth(HealthSignal(Health.UNKNOWN, HealthReason.RESET, at)), address)
    active = previous.active.after_probe(outcome, at, settings)
    if status is None:
        return replace(previous, active=active)
    return InstanceWatch(
        active,
        address,
        status.degraded_reason,
        _update_drain_request(previous.drain_request, status.draining_reason, at),
    )


def _update_drain_request(
    previous: DrainRequest | None, reason: str | None, at: float
) -> DrainRequest | None:
    if reason is None:
        return None
    return previous if previous is not None and previous.reason == reason else DrainRequest(reason, at)


def health_of(facts: InstanceFacts, now: float, timing: Timing) -> Health:
    """Return the destination health of an instance; Unknown when no poll of it is recent."""
    active = facts.watch.active
    if facts.gone_at is not None or not is_fresh(active.probed_at, now, timing):
        return Health.UNKNOWN
    return active.signal.health


#: Ranks as in balancers: Unknown counts like Degraded.
_RANKS = {Health.HEALTHY: 0, Health.DEGRADED: 1, Health.UNKNOWN: 1, Health.UNHEALTHY: 2}


def preference_key_of(facts: InstanceFacts, now: float, timing: Timing) -> tuple[bool, bool, int]:
    """Return a sort key for instances, best first; draining ones after others and before Unhealthy ones."""
    health = health_of(facts, now, timing)
    return health is Health.UNHEALTHY, facts.watch.drain_request is not None, _RANKS[health]


def find_degraded_instances(
    instances: Mapping[int, InstanceFacts], now: float, timing: Timing
) -> frozenset[int]:
    """Return the indices of the Degraded instances."""
    return frozenset(
        index for index, facts in instances.items() if health_of(facts, now, timing) is Health.DEGRADED
    )


def health_sentence(facts: InstanceFacts, health: Health) -> str:
    """Return the reason of the destination health as a sentence; empty for Healthy and Unknown."""
    watch = facts.watch
    if health is Health.DEGRADED:
        if watch.degraded_reason is not None and watch.active.streak_outcome in (ProbeOutcome.DEGRADED, None):
            return f"{facts.name} reports that it is degraded" + (
                f": {watch.degraded_reason}." if watch.degraded_reason else "."
            )
        return f"{facts.name} is degraded: {watch.active.signal.reason}."
    if health is Health.UNHEALTHY:
        return f"{facts.name} is unhealthy, so new connections avoid it: {watch.active.signal.reason}."
    return ""
