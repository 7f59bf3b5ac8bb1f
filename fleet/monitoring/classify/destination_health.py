"""From polls of an instance to its destination health. docs/destination-health.md, "In the console".

Another vocabulary than the state of an instance, beside it: it needs several polls for what the quick rule of
`instances` says after one or two, and says what that rule cannot, that an instance fails now and then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fleet.monitoring.classify.instances import READY, is_fresh
from fleet.monitoring.evidence import Timing
from fleet.protocol.destination.health import (
    RECOMMENDED_SETTINGS,
    ActiveHealth,
    DrainRequest,
    Health,
    ProbeOutcome,
    HealthReason,
    HealthSettings,
    HealthSignal,
)
from fleet.protocol.destination.instance_status import InstanceStatus
from fleet.vocabulary.instances import InstanceFacts, ServingStatus
from fleet.vocabulary.watch import InstanceWatch


def probe_outcome_of(*, is_reached: bool, serving_status: ServingStatus | None, readyz: int | None, status: InstanceStatus) -> ProbeOutcome:
    """Tell how one poll of an instance ended. What it was not asked, or did not answer, is None."""
    if not is_reached or serving_status is ServingStatus.NOT_SERVING or readyz not in (None, READY):
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
    """Take in one poll; `said` is None when the instance did not answer: what it said before then stands."""
    if previous.address != address:
        previous = InstanceWatch(ActiveHealth(HealthSignal(Health.UNKNOWN, HealthReason.RESET, at)), address)
    active = previous.active.after_probe(outcome, at, settings)
    if status is None:
        return replace(previous, active=active)
    return InstanceWatch(active, address, status.degraded_reason, _drain_request_after(previous.drain_request, status.draining_reason, at))


def _drain_request_after(previous: DrainRequest | None, reason: str | None, at: float) -> DrainRequest | None:
    if reason is None:
        return None
    return previous if previous is not None and previous.reason == reason else DrainRequest(reason, at)


def health_of(facts: InstanceFacts, now: float, timing: Timing) -> Health:
    """Tell its destination health; Unknown when no poll of it is fresh."""
    active = facts.watch.active
    if facts.gone_at is not None or not is_fresh(active.probed_at, now, timing):
        return Health.UNKNOWN
    return active.signal.health


#: As in picking: Unknown ones are with the Degraded ones.
_RANKS = {Health.HEALTHY: 0, Health.DEGRADED: 1, Health.UNKNOWN: 1, Health.UNHEALTHY: 2}


def preference_key_of(facts: InstanceFacts, now: float, timing: Timing) -> tuple[bool, bool, int]:
    """Sort those that could be asked, best first; those that drain come after others, before Unhealthy ones."""
    health = health_of(facts, now, timing)
    return health is Health.UNHEALTHY, facts.watch.drain_request is not None, _RANKS[health]


def find_degraded_instances(instances: Mapping[int, InstanceFacts], now: float, timing: Timing) -> frozenset[int]:
    """Tell who is Degraded, by index."""
    return frozenset(
        index for index, facts in instances.items() if health_of(facts, now, timing) is Health.DEGRADED
    )


def health_sentence(facts: InstanceFacts, health: Health) -> str:
    """Say why its destination health is what it is; empty for Healthy and Unknown."""
    watch = facts.watch
    if health is Health.DEGRADED:
        if watch.degraded_reason is not None and watch.active.streak_of in (ProbeOutcome.DEGRADED, None):
            return f"{facts.name} says that it is degraded" + (f": {watch.degraded_reason}." if watch.degraded_reason else ".")
        return f"{facts.name} is degraded: {watch.active.signal.reason}."
    if health is Health.UNHEALTHY:
        return f"{facts.name} is no destination for anything new: {watch.active.signal.reason}."
    return ""
