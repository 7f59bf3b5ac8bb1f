"""Metrics of a proxy's CONNECT port: user connections, bytes in both directions, and refusals by reason."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from fleet.protocol.tunnel.connect import RefusalReason
from fleet.transport.tunnel.pump import TcpConnection


class ConnectMetrics(Collector):
    """Metrics of the CONNECT port, and the states of the tunnels behind it."""

    def __init__(self, registry: CollectorRegistry, count_by_state: Callable[[], dict[str, int]]) -> None:
        """`count_by_state` returns the number of tunnels in each state."""
        self._connections: set[TcpConnection] = set()
        self._to_agent_bytes = 0
        self._from_agent_bytes = 0
        self._count_by_state = count_by_state
        self._opened_connections = Counter(
            "refloat_connect_connections",
            "User connections that reached an agent's service",
            registry=registry,
        )
        self._refused_requests = Counter(
            "refloat_connect_refused_requests", "Refused CONNECT requests", ["reason"], registry=registry
        )
        for reason in RefusalReason:
            self._refused_requests.labels(reason.label)
        self._peered_connections = Counter(
            "refloat_connect_peered_connections",
            "User connections forwarded to another proxy",
            registry=registry,
        )
        self._aborted_connections = Counter(
            "refloat_connect_aborted_connections",
            "User connections that ended with an error",
            registry=registry,
        )
        Gauge("refloat_connect_open_connections", "Open user connections", registry=registry).set_function(
            lambda: float(len(self._connections))
        )
        tunnels = Gauge("refloat_tunnels", "Reverse tunnels by state", ["state"], registry=registry)
        for state in count_by_state():
            tunnels.labels(state).set_function(functools.partial(self._count_tunnels, state))
        registry.register(self)

    def record_refusal(self, reason: RefusalReason) -> None:
        """Count a refused request."""
        self._refused_requests.labels(reason.label).inc()

    def record_peering(self) -> None:
        """Count a connection that is forwarded to another proxy."""
        self._peered_connections.inc()

    def record_open(self, connection: TcpConnection) -> None:
        """Count a connection that reached its service."""
        self._opened_connections.inc()
        self._connections.add(connection)

    def record_close(self, connection: TcpConnection, *, is_aborted: bool) -> None:
        """Count the end of a connection."""
        self._connections.discard(connection)
        self._to_agent_bytes += connection.received_bytes
        self._from_agent_bytes += connection.sent_bytes
        if is_aborted:
            self._aborted_connections.inc()

    def _count_tunnels(self, state: str) -> float:
        return float(self._count_by_state()[state])

    @override
    def collect(self) -> Iterable[Metric]:
        """Return the bytes, including those of open connections: a transfer may take hours."""
        family = CounterMetricFamily(
            "refloat_connect_bytes", "Bytes of user connections", labels=["direction"]
        )
        family.add_metric(
            ["to-agent"],
            self._to_agent_bytes + sum(connection.received_bytes for connection in self._connections),
        )
        family.add_metric(
            ["from-agent"],
            self._from_agent_bytes + sum(connection.sent_bytes for connection in self._connections),
        )
        yield family

    def describe(self) -> Iterator[Metric]:
        """Return nothing: the metric is created at the scrape."""
        yield from ()
