"""What a gateway counts. docs/gateway.md"""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fleet.protocol.destination import Health
from fleet.transport.destinations import Change


class GatewayMetrics:
    """Counters and gauges of one gateway."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            "gateway_calls", "Calls that ended, by rule and status", ["rule", "status"], registry=registry
        )
        self._seconds = Histogram(
            "gateway_call_seconds", "How long calls took, retries and all", ["rule"], registry=registry
        )
        self._retries = Counter(
            "gateway_retries",
            "Tries that another one followed, by rule and their status",
            ["rule", "status"],
            registry=registry,
        )
        self._health = Gauge(
            "gateway_destination_health",
            "1 for what a destination is: unknown, healthy, degraded, unhealthy",
            ["address", "health"],
            registry=registry,
        )
        self._valid = Gauge(
            "gateway_routes_file_valid", "1 while the routes file reads well", registry=registry
        )
        self._loaded = Gauge(
            "gateway_routes_loaded_timestamp_seconds",
            "When the routes in force were read",
            registry=registry,
        )
        self._ended: dict[tuple[str, str], tuple[Counter, Histogram]] = {}

    def ended(self, rule: str, status: str, seconds: float) -> None:
        """Count a call."""
        found = self._ended.get((rule, status))
        if found is None:  # looking children up by labels costs more than counting
            found = self._calls.labels(rule, status), self._seconds.labels(rule)
            self._ended[rule, status] = found
        found[0].inc()
        found[1].observe(seconds)

    def retried(self, rule: str, status: str) -> None:
        """Count a retry."""
        self._retries.labels(rule, status).inc()

    def changed(self, change: Change) -> None:
        """A destination became something else."""
        for health in Health:
            self._health.labels(change.name, health.value).set(change.after.health is health)

    def routes(self, *, valid: bool, loaded: bool) -> None:
        """The routes file was read."""
        self._valid.set(valid)
        if loaded:
            self._loaded.set(time.time())
