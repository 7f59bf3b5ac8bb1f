"""Metrics of a proxy's tunnels, in addition to Teleport's."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter


class ProxyMetrics:
    """Counters of one proxy."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.discovery_messages = Counter(
            "refloat_discovery_messages", "Discovery messages sent to agents", registry=registry
        )
        self.discovery_bytes = Counter(
            "refloat_discovery_bytes", "Bytes of discovery messages sent to agents", registry=registry
        )
        self.closed_tunnels = Counter(
            "refloat_tunnels_closed", "Closed tunnels, by reason", ["reason"], registry=registry
        )
        self.advisories = Counter(
            "refloat_advisories",
            "Advice to reconnect sent to agents, by cause",
            ["cause"],
            registry=registry,
        )
        self.advisory_replies = Counter(
            "refloat_advisory_replies",
            "Replies of agents to the advice to reconnect",
            ["reply"],
            registry=registry,
        )
        self.auth_advisories = Counter(
            "refloat_auth_advisories",
            "Advice to connect to another auth sent to agents",
            registry=registry,
        )
        self.auth_advisory_replies = Counter(
            "refloat_auth_advisory_replies",
            "Replies of agents to the advice to connect to another auth, by outcome",
            ["outcome"],
            registry=registry,
        )
