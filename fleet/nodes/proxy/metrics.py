"""What a proxy counts of its tunnels, beyond what Teleport has."""

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
            "refloat_tunnels_closed", "Tunnels that ended, by reason", ["reason"], registry=registry
        )
        self.advisories = Counter(
            "refloat_advisories",
            "Reconnect advisories sent to agents, by cause",
            ["cause"],
            registry=registry,
        )
        self.advisory_replies = Counter(
            "refloat_advisory_replies", "What agents answered to advisories", ["answer"], registry=registry
        )
        self.auth_advisories = Counter(
            "refloat_auth_advisories",
            "Advisories to connect to another auth sent to agents",
            registry=registry,
        )
        self.auth_advisory_replies = Counter(
            "refloat_auth_advisory_replies",
            "What came of advisories to connect to another auth, as agents answered",
            ["outcome"],
            registry=registry,
        )
