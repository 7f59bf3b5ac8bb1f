"""Metrics of CONNECT users."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from fleet.nodes.proxy.connect.metrics import ConnectMetrics
from fleet.protocol.tunnel.connect import RefusalReason
from fleet.transport.tunnel.pump import TcpConnection


async def test_bytes_of_open_and_closed_connections_are_counted_once() -> None:
    """The counter covers both kinds of connections."""
    registry = CollectorRegistry()
    metrics = ConnectMetrics(registry, lambda: {"live": 3})

    def sample(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    connection, other_connection = TcpConnection(), TcpConnection()
    metrics.record_open(connection)
    metrics.record_open(other_connection)
    connection.received_bytes, connection.sent_bytes, other_connection.received_bytes = 5, 7, 11
    assert sample("refloat_connect_bytes_total", direction="to-agent") == 16
    metrics.record_close(connection, is_aborted=True)
    assert sample("refloat_connect_open_connections") == 1
    assert sample("refloat_connect_connections_total") == 2
    assert sample("refloat_connect_aborted_connections_total") == 1
    assert sample("refloat_connect_bytes_total", direction="to-agent") == 16
    assert sample("refloat_connect_bytes_total", direction="from-agent") == 7
    assert sample("refloat_tunnels", state="live") == 3


def test_refusal_reasons_start_at_zero() -> None:
    """A rate of a reason that never occurred is 0 instead of missing."""
    registry = CollectorRegistry()
    metrics = ConnectMetrics(registry, dict)
    assert registry.get_sample_value("refloat_connect_refused_requests_total", {"reason": "timeout"}) == 0
    metrics.record_refusal(RefusalReason.TIMEOUT)
    assert registry.get_sample_value("refloat_connect_refused_requests_total", {"reason": "timeout"}) == 1
