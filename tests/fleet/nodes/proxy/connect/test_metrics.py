"""What is counted of users."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from fleet.nodes.proxy.connect.metrics import ConnectMetrics
from fleet.protocol.tunnel.connect import RefusalReason
from fleet.transport.tunnel.pump import TcpConnection


async def test_bytes_of_open_and_of_closed_connections() -> None:
    """Both count, and none twice."""
    registry = CollectorRegistry()
    metrics = ConnectMetrics(registry, lambda: {"live": 3})

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    wire, other = TcpConnection(), TcpConnection()
    metrics.record_open(wire)
    metrics.record_open(other)
    wire.received_bytes, wire.sent_bytes, other.received_bytes = 5, 7, 11
    assert value("refloat_connect_bytes_total", direction="to-agent") == 16
    metrics.record_close(wire, is_aborted=True)
    assert value("refloat_connect_open") == 1
    assert value("refloat_connect_opened_total") == 2
    assert value("refloat_connect_aborted_total") == 1
    assert value("refloat_connect_bytes_total", direction="to-agent") == 16
    assert value("refloat_connect_bytes_total", direction="from-agent") == 7
    assert value("refloat_tunnels", state="live") == 3


def test_reasons_are_there_from_the_start() -> None:
    """A rate of what never happened is zero, not nothing."""
    registry = CollectorRegistry()
    metrics = ConnectMetrics(registry, dict)
    assert registry.get_sample_value("refloat_connect_refused_total", {"reason": "timeout"}) == 0
    metrics.record_refusal(RefusalReason.TIMEOUT)
    assert registry.get_sample_value("refloat_connect_refused_total", {"reason": "timeout"}) == 1
