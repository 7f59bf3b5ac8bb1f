"""What agents count."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from fleet.nodes.agent.metrics import AgentAuthCollector, AgentMetrics


def test_counters_have_names() -> None:
    """Each is there by its name."""
    registry = CollectorRegistry()
    AgentMetrics(registry).closed_tunnels.labels("expired").inc()
    assert 'refloat_agent_tunnels_closed_total{reason="expired"} 1.0' in generate_latest(registry).decode()


def test_auths_are_aggregated_by_count() -> None:
    """A line for each auth and mode; an agent that has not heartbeated yet has neither."""
    registry = CollectorRegistry()
    registry.register(AgentAuthCollector("x", lambda: [("a", "reconnect"), ("a", "reconnect"), ("", "")]))
    text = generate_latest(registry).decode()
    assert 'x{auth="a",mode="reconnect"} 2.0' in text
    assert 'x{auth="",mode=""} 1.0' in text
