"""Destination health of an instance from repeated polls, and its own report: kept from poll to poll."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.protocol.destination.health import ActiveHealth, DrainRequest, Health, HealthReason, HealthSignal


@dataclass(frozen=True, slots=True)
class InstanceWatch:
    """Destination health and own report of one instance. Times are seconds since the epoch."""

    #: State of the destination health diagram: docs/reference/destination-health.md.
    active: ActiveHealth
    #: gRPC address of the polls; another address is another destination.
    address: str = ""
    #: Why the instance reports itself as degraded; None when it does not.
    degraded_reason: str | None = None
    #: Reason and first sighting of a drain; None when the instance accepts new connections.
    drain_request: DrainRequest | None = None


#: Watch of an instance that was never polled.
INITIAL_WATCH = InstanceWatch(ActiveHealth(HealthSignal(Health.UNKNOWN, HealthReason.NOTHING_SEEN, 0.0)))
