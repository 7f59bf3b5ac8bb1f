"""What a proxy counts of its users: connections, bytes both ways, and refusals by reason."""

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
    """Counters of the CONNECT port, and the states of the tunnels behind it."""

    def __init__(self, registry: CollectorRegistry, states: Callable[[], dict[str, int]]) -> None:
        """`states` tells how many tunnels are in which state."""
        self._connections: set[TcpConnection] = set()
        self._to_agents = 0
        self._from_agents = 0
        self._states = states
        self._opened_connections = Counter(
            "refloat_connect_opened", "User connections that reached an agent's service", registry=registry
        )
        self._refused_requests = Counter(
            "refloat_connect_refused", "Requests to CONNECT that were refused", ["reason"], registry=registry
        )
        for reason in RefusalReason:
            self._refused_requests.labels(reason.label)
        self._peered_connections = Counter(
            "refloat_connect_peered", "User connections that went on to another proxy", registry=registry
        )
        self._aborted_connections = Counter(
            "refloat_connect_aborted",
            "User connections that did not end in an orderly way",
            registry=registry,
        )
        Gauge("refloat_connect_open", "User connections now", registry=registry).set_function(
            lambda: float(len(self._connections))
        )
        tunnels = Gauge("refloat_tunnels", "Reverse tunnels by state", ["state"], registry=registry)
        for state in states():
            tunnels.labels(state).set_function(functools.partial(self._count, state))
        registry.register(self)

    def record_refusal(self, reason: RefusalReason) -> None:
        """Somebody was not let through."""
        self._refused_requests.labels(reason.label).inc()

    def record_peering(self) -> None:
        """A connection goes on to a proxy that has the agent."""
        self._peered_connections.inc()

    def record_open(self, connection: TcpConnection) -> None:
        """A connection reached its service."""
        self._opened_connections.inc()
        self._connections.add(connection)

    def record_close(self, connection: TcpConnection, *, is_aborted: bool) -> None:
        """It is over."""
        self._connections.discard(connection)
        self._to_agents += connection.received_bytes
        self._from_agents += connection.sent_bytes
        if is_aborted:
            self._aborted_connections.inc()

    def _count(self, state: str) -> float:
        return float(self._states()[state])

    @override
    def collect(self) -> Iterable[Metric]:
        """The bytes, those of open connections too: a transfer may take hours."""
        family = CounterMetricFamily("refloat_connect_bytes", "Bytes of user connections", labels=["direction"])
        family.add_metric(["to-agent"], self._to_agents + sum(connection.received_bytes for connection in self._connections))
        family.add_metric(["from-agent"], self._from_agents + sum(connection.sent_bytes for connection in self._connections))
        yield family

    def describe(self) -> Iterator[Metric]:
        """Nothing before it is asked for."""
        yield from ()
