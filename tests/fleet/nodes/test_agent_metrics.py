"""What agents count."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from fleet.nodes.agent_metrics import AgentMetrics, TunnelPlaces


def test_places_are_aggregated_by_count() -> None:
    """A line for each pair of wanted and held tunnels, not for each agent."""
    registry = CollectorRegistry()
    registry.register(TunnelPlaces("x", lambda: [(1, 1), (1, 1), (2, 1)]))
    text = generate_latest(registry).decode()
    assert 'x{actual="1",desired="1"} 2.0' in text
    assert 'x{actual="1",desired="2"} 1.0' in text


def test_counters_have_names() -> None:
    """Each is there by its name."""
    registry = CollectorRegistry()
    AgentMetrics(registry).closed.labels("expired").inc()
    assert 'refloat_agent_tunnels_closed_total{reason="expired"} 1.0' in generate_latest(registry).decode()
