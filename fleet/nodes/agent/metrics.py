"""What the agents of one process count, for `/metrics` on their diag port: Teleport has nothing of the kind."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override


class AgentMetrics:
    """Counters of all agents of a process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.dials = Counter(
            "refloat_agent_dials", "Dials of tunnels, by outcome", ["outcome"], registry=registry
        )
        self.closed_tunnels = Counter(
            "refloat_agent_tunnels_closed", "Tunnels that ended, by reason", ["reason"], registry=registry
        )
        self.advisories = Counter(
            "refloat_agent_advisories", "Reconnect advisories, by answer", ["answer"], registry=registry
        )
        self.auth_failovers = Counter(
            "refloat_agent_auth_failovers",
            "Auth connections that were left, or tried in vain, by outcome",
            ["outcome"],
            registry=registry,
        )
        self.auth_moves = Counter(
            "refloat_agent_auth_moves",
            "Pieces of advice to connect to another auth, by outcome",
            ["outcome"],
            registry=registry,
        )
        self.sessions_cut = Counter(
            "refloat_agent_sessions_cut",
            "Users' connections that lasted longer than a tunnel may drain",
            registry=registry,
        )
        self.discovery_messages = Counter(
            "refloat_agent_discovery_messages", "Discovery messages received", registry=registry
        )
        self.discovery_bytes = Counter(
            "refloat_agent_discovery_bytes", "Bytes of discovery messages received", registry=registry
        )
        self.refused_messages = Counter(
            "refloat_agent_refused", "Messages that could not be used, by kind", ["kind"], registry=registry
        )


class AgentAuthCollector(Collector):
    """How many agents heartbeat to which auth, and in which mode their auth connections run."""

    def __init__(self, name: str, auths_and_modes: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """`places` tells auth and mode of each agent, empty where it knows none, when somebody looks."""
        self._name = name
        self._auths_and_modes = auths_and_modes

    @override
    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(self._name, "Agents by auth and mode", labels=["auth", "mode"])
        for place, agents in sorted(Tally(self._auths_and_modes()).items()):
            family.add_metric(place, agents)
        yield family
