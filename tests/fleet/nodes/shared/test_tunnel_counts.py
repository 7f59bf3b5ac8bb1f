"""Counts of agents by desired and actual tunnels."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from fleet.nodes.shared.tunnel_counts import TunnelCountCollector


def test_agents_are_counted_by_desired_and_actual_tunnels() -> None:
    """There is one sample for each pair of numbers, not for each agent."""
    registry = CollectorRegistry()
    registry.register(TunnelCountCollector("x", lambda: [(1, 1), (1, 1), (2, 1)]))
    text = generate_latest(registry).decode()
    assert 'x{actual="1",desired="1"} 2.0' in text
    assert 'x{actual="1",desired="2"} 1.0' in text
