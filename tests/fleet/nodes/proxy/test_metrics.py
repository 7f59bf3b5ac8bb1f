"""Metrics of proxies."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from fleet.nodes.proxy.metrics import ProxyMetrics


def test_counters_are_exposed_by_their_metric_names() -> None:
    """The names and labels are those of the documented metrics."""
    registry = CollectorRegistry()
    metrics = ProxyMetrics(registry)
    metrics.closed_tunnels.labels("keep-alive-timeout").inc()
    metrics.advisories.labels("requested").inc(2)
    text = generate_latest(registry).decode()
    assert 'refloat_tunnels_closed_total{reason="keep-alive-timeout"} 1.0' in text
    assert 'refloat_advisories_total{cause="requested"} 2.0' in text
