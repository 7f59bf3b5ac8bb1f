"""Metrics of the agents in one process, for `/metrics` on its diag port. Teleport has no such metrics."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override


class AgentMetrics:
    """Counters of all agents in a process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.dials = Counter(
            "refloat_agent_dials", "Attempts to open a tunnel, by outcome", ["outcome"], registry=registry
        )
        self.closed_tunnels = Counter(
            "refloat_agent_tunnels_closed", "Closed tunnels, by reason", ["reason"], registry=registry
        )
        self.advisories = Counter(
            "refloat_agent_advisories",
            "Advice to reconnect elsewhere, by reply",
            ["reply"],
            registry=registry,
        )
        self.auth_failovers = Counter(
            "refloat_agent_auth_failovers",
            "Failed or abandoned auth connections, by outcome",
            ["outcome"],
            registry=registry,
        )
        self.auth_moves = Counter(
            "refloat_agent_auth_moves",
            "Advice to connect to another auth, by outcome",
            ["outcome"],
            registry=registry,
        )
        self.terminated_sessions = Counter(
            "refloat_agent_sessions_terminated",
            "User connections that were closed because they outlasted the drain time of their tunnel",
            registry=registry,
        )
        self.discovery_messages = Counter(
            "refloat_agent_discovery_messages", "Discovery messages received", registry=registry
        )
        self.discovery_bytes = Counter(
            "refloat_agent_discovery_bytes", "Bytes of discovery messages received", registry=registry
        )
        self.refused_messages = Counter(
            "refloat_agent_refused_inputs",
            "Messages refused because they could not be used, by kind",
            ["kind"],
            registry=registry,
        )


class AgentAuthCollector(Collector):
    """Number of agents by the auth they send heartbeats to, and by the mode of their auth connections."""

    def __init__(self, name: str, auths_and_modes: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """`auths_and_modes` is called at each scrape: auth id and mode of each agent, empty where unknown."""
        self._name = name
        self._auths_and_modes = auths_and_modes

    @override
    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(self._name, "Agents by auth and mode", labels=["auth", "mode"])
        for label_values, agent_count in sorted(Tally(self._auths_and_modes()).items()):
            family.add_metric(label_values, agent_count)
        yield family
