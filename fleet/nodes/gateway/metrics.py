"""Metrics of a gateway. docs/reference/gateway.md"""

from __future__ import annotations

import time
from collections import Counter as TallyCounter
from collections import defaultdict
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from fleet.nodes.gateway.call_metrics import CallMetrics
from fleet.protocol.destination.health import Health
from fleet.transport.destinations import Destinations


class GatewayMetrics:
    """Counters and gauges of one gateway."""

    def __init__(self, registry: CollectorRegistry) -> None:
        #: Finished calls.
        self.calls = CallMetrics(registry)
        self._retries = Counter(
            "refloat_gateway_retries",
            "Attempts that were retried, by rule and status of the attempt",
            ["rule", "status"],
            registry=registry,
        )
        self._routes_valid = Gauge(
            "refloat_gateway_routes_file_valid", "1 while the routes file is valid", registry=registry
        )
        self._routes_loaded_at = Gauge(
            "refloat_gateway_routes_loaded_timestamp_seconds",
            "Unix time at which the current routes were loaded",
            registry=registry,
        )
        self._certificates_valid = Gauge(
            "refloat_gateway_certificates_valid",
            "1 while the TLS files can be used",
            registry=registry,
        )
        self._certificates_loaded_at = Gauge(
            "refloat_gateway_certificates_loaded_timestamp_seconds",
            "Unix time at which the current certificates were loaded",
            registry=registry,
        )
        #: Retries since the start by rule, and there by status.
        self._retry_counts: defaultdict[str, TallyCounter[str]] = defaultdict(TallyCounter)

    def record_retry(self, rule: str, status: str) -> None:
        """Count an attempt that is retried."""
        self._retries.labels(rule, status).inc()
        self._retry_counts[rule][status] += 1

    def retry_counts_of(self, rule: str) -> dict[str, int]:
        """Return the number of retried attempts of a rule by their status."""
        return dict(sorted(self._retry_counts[rule].items())) if rule in self._retry_counts else {}

    def record_routes_load(self, *, is_valid: bool, is_loaded: bool) -> None:
        """Record an attempt to load the routes."""
        self._routes_valid.set(is_valid)
        if is_loaded:
            self._routes_loaded_at.set(time.time())

    def record_certificates_load(self, *, is_valid: bool, is_loaded: bool) -> None:
        """Record an attempt to load the certificates."""
        self._certificates_valid.set(is_valid)
        if is_loaded:
            self._certificates_loaded_at.set(time.time())


class DestinationHealthCollector(Collector):
    """Health of each destination at the moment of the scrape. Former destinations have no series."""

    def __init__(self, destinations: Destinations, registry: CollectorRegistry) -> None:
        self._destinations = destinations
        registry.register(self)

    @override
    def collect(self) -> Iterable[Metric]:
        family = self._make_family()
        for destination in self._destinations:
            for health in Health:
                family.add_metric(
                    [destination.name, health.value], float(destination.verdict.health is health)
                )
        return [family]

    def _make_family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(
            "refloat_gateway_destination_health",
            "1 for the current health of a destination (unknown, healthy, degraded or unhealthy), 0 for the others",
            labels=["address", "health"],
        )
