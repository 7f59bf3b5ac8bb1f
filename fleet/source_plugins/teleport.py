"""A stock Teleport cluster as a source: docs/how-to/watch-a-teleport-cluster.md."""

from __future__ import annotations

from fleet.protocol.networking.config import OWN_FIELD_NAMES
from fleet.source_plugins.declaration import AddressReach, ClusterSource, SourceForm
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.clusters import TELEPORT_SERVER_NAME, TLSSource
from fleet.vocabulary.connection_tests import StepName

_NO_CLOSING = (
    "Teleport has no GracefulTunnelClosing: this field belongs to clusters of Refloat's own auths, and auths of "
    "Teleport discard it."
)

SOURCE = ClusterSource(
    slug="teleport",
    label="Teleport",
    capabilities=frozenset(
        {
            Capability.INSTANCES,
            Capability.AGENTS,
            Capability.LAST_SEEN,
            Capability.AGENT_TO_AUTH,
            Capability.NETWORKING_READ,
            Capability.NETWORKING_WRITE,
            # Of clusters with diag addresses.
            Capability.HEALTH,
            Capability.TUNNEL_COUNTS,
            Capability.WATCH,
        }
    ),
    polling="fleet.monitoring.sources.teleport.polling:POLLING",
    connection_test="fleet.clusters.connection_test.teleport_steps:CHECKS",
    test_steps={
        StepName.RESOLVE: frozenset(),
        StepName.CONNECT: frozenset(),
        StepName.TLS: frozenset(),
        StepName.IDENTITY: frozenset(),
        StepName.HEALTH: frozenset({Capability.HEALTH}),
        StepName.INSTANCES: frozenset({Capability.INSTANCES}),
        StepName.AGENTS: frozenset({Capability.AGENTS, Capability.LAST_SEEN, Capability.WATCH}),
        StepName.INVENTORY: frozenset({Capability.AGENT_TO_AUTH}),
        StepName.NETWORKING: frozenset({Capability.NETWORKING_READ, Capability.NETWORKING_WRITE}),
        StepName.READYZ: frozenset({Capability.HEALTH, Capability.TUNNEL_COUNTS}),
    },
    form=SourceForm(
        # Auths require a client certificate.
        tls_sources=(
            TLSSource.IDENTITY,
            TLSSource.IDENTITY_UPLOADED,
            TLSSource.FILES,
            TLSSource.UPLOADED,
            TLSSource.SETTINGS,
        ),
        default_server_name=TELEPORT_SERVER_NAME,
        has_diag_addresses=True,
        address_reach=AddressReach.LISTS,
    ),
    tested_with=(
        "Not tested with a real Teleport cluster; built against the API module of Teleport 18.0.0 (January 2025)."
    ),
    absence_reasons={
        Capability.TUNNELS_BY_AGENT: "Teleport has no API that names the agents with a tunnel to a proxy.",
        Capability.POLICIES: "Teleport has no API for the environment variables of its processes.",
        Capability.RECONNECT_ADVICE: "Teleport has no API that asks agents to reconnect.",
    },
    fixed_networking_fields={
        **dict.fromkeys(OWN_FIELD_NAMES, _NO_CLOSING),
        "proxy_listener_mode": "Proxies of Teleport open their ports when they start. Change this field with tctl, "
        "then restart the proxies.",
    },
)
