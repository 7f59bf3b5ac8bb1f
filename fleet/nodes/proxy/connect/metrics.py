"""What a proxy counts of its users: connections, bytes both ways, and refusals by reason."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from fleet.protocol.tunnel.connect import Reason
from fleet.transport.tunnel.pump import Wire


class ConnectMetrics(Collector):
    """Counters of the CONNECT port, and the states of the tunnels behind it."""

    def __init__(self, registry: CollectorRegistry, states: Callable[[], dict[str, int]]) -> None:
        """`states` tells how many tunnels are in which state."""
        self._wires: set[Wire] = set()
        self._to_agents = 0
        self._from_agents = 0
        self._states = states
        self._opened = Counter(
            "refloat_connect_opened", "User connections that reached an agent's service", registry=registry
        )
        self._refused = Counter(
            "refloat_connect_refused", "Requests to CONNECT that were refused", ["reason"], registry=registry
        )
        for reason in Reason:
            self._refused.labels(reason.word)
        self._peered = Counter(
            "refloat_connect_peered", "User connections that went on to another proxy", registry=registry
        )
        self._aborted = Counter(
            "refloat_connect_aborted",
            "User connections that did not end in an orderly way",
            registry=registry,
        )
        Gauge("refloat_connect_open", "User connections now", registry=registry).set_function(
            lambda: float(len(self._wires))
        )
        tunnels = Gauge("refloat_tunnels", "Reverse tunnels by state", ["state"], registry=registry)
        for state in states():
            tunnels.labels(state).set_function(functools.partial(self._count, state))
        registry.register(self)

    def refused(self, reason: Reason) -> None:
        """Somebody was not let through."""
        self._refused.labels(reason.word).inc()

    def peered(self) -> None:
        """A connection goes on to a proxy that has the agent."""
        self._peered.inc()

    def opened(self, wire: Wire) -> None:
        """A connection reached its service."""
        self._opened.inc()
        self._wires.add(wire)

    def closed(self, wire: Wire, *, aborted: bool) -> None:
        """It is over."""
        self._wires.discard(wire)
        self._to_agents += wire.taken
        self._from_agents += wire.given
        if aborted:
            self._aborted.inc()

    def _count(self, state: str) -> float:
        return float(self._states()[state])

    @override
    def collect(self) -> Iterable[Metric]:
        """The bytes, those of open connections too: a transfer may take hours."""
        told = CounterMetricFamily("refloat_connect_bytes", "Bytes of user connections", labels=["direction"])
        told.add_metric(["to-agent"], self._to_agents + sum(wire.taken for wire in self._wires))
        told.add_metric(["from-agent"], self._from_agents + sum(wire.given for wire in self._wires))
        yield told

    def describe(self) -> Iterator[Metric]:
        """Nothing before it is asked for."""
        yield from ()
