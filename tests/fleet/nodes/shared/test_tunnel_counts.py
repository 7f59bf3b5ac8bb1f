"""How many tunnels agents want and have."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from fleet.nodes.shared.tunnel_counts import TunnelCountCollector


def test_places_are_aggregated_by_count() -> None:
    """A line for each pair of wanted and held tunnels, not for each agent."""
    registry = CollectorRegistry()
    registry.register(TunnelCountCollector("x", lambda: [(1, 1), (1, 1), (2, 1)]))
    text = generate_latest(registry).decode()
    assert 'x{actual="1",desired="1"} 2.0' in text
    assert 'x{actual="1",desired="2"} 1.0' in text
