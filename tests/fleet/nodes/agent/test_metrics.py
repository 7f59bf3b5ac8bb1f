"""Metrics of agents."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from fleet.nodes.agent.metrics import AgentAuthCollector, AgentMetrics


def test_counter_is_exposed_by_its_metric_name() -> None:
    """The name and the labels are those of the documented metric."""
    registry = CollectorRegistry()
    AgentMetrics(registry).closed_tunnels.labels("expired").inc()
    assert 'refloat_agent_tunnels_closed_total{reason="expired"} 1.0' in generate_latest(registry).decode()


def test_agents_are_counted_by_auth_and_mode() -> None:
    """Both labels are empty for an agent that has not sent a heartbeat yet."""
    registry = CollectorRegistry()
    registry.register(AgentAuthCollector("x", lambda: [("a", "reconnect"), ("a", "reconnect"), ("", "")]))
    text = generate_latest(registry).decode()
    assert 'x{auth="a",mode="reconnect"} 2.0' in text
    assert 'x{auth="",mode=""} 1.0' in text
