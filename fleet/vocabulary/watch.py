"""What repeated polls make of an instance as a destination, and what it says of itself: kept from poll to poll."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.protocol.destination.health import ActiveHealth, DrainRequest, Health, HealthReason, HealthSignal


@dataclass(frozen=True, slots=True)
class InstanceWatch:
    """One instance. Times are seconds since the epoch."""

    #: The diagram of destination health: docs/destination-health.md.
    active: ActiveHealth
    #: The gRPC address at which it was seen: another one is another destination.
    address: str = ""
    #: Why it says that it is degraded; None when it does not say so.
    degraded_reason: str | None = None
    #: That it takes nobody new, why, and since when that was seen.
    drain_request: DrainRequest | None = None


#: Of an instance that was never polled.
INITIAL_WATCH = InstanceWatch(ActiveHealth(HealthSignal(Health.UNKNOWN, HealthReason.NOTHING_SEEN, 0.0)))
