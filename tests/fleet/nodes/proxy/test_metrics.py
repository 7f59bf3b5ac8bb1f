"""What a proxy counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from fleet.nodes.proxy.metrics import ProxyMetrics


def test_counters_have_names() -> None:
    """Each is there by its name."""
    registry = CollectorRegistry()
    metrics = ProxyMetrics(registry)
    metrics.closed_tunnels.labels("silent").inc()
    metrics.advisories.labels("asked").inc(2)
    text = generate_latest(registry).decode()
    assert 'refloat_tunnels_closed_total{reason="silent"} 1.0' in text
    assert 'refloat_advisories_total{cause="asked"} 2.0' in text
