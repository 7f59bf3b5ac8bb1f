"""A stock Teleport cluster as a source: docs/how-to/watch-a-teleport-cluster.md."""

from __future__ import annotations

from fleet.source_plugins.declaration import ClusterSource, SourceForm
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.clusters import TLSSource
from fleet.vocabulary.connection_tests import StepName

#: Name in the certificates of auths, for clients inside the cluster.
AUTH_SERVER_NAME = "teleport.cluster.local"

SOURCE = ClusterSource(
    slug="teleport",
    label="Teleport",
    capabilities=frozenset(
        {Capability.INSTANCES, Capability.AGENTS, Capability.LAST_SEEN, Capability.AGENT_TO_AUTH}
    ),
    polling="fleet.monitoring.sources.teleport.polling:POLLING",
    connection_test="fleet.clusters.connection_test.teleport_steps:CHECKS",
    test_steps={
        StepName.RESOLVE: frozenset(),
        StepName.CONNECT: frozenset(),
        StepName.TLS: frozenset(),
        StepName.IDENTITY: frozenset(),
        StepName.INSTANCES: frozenset({Capability.INSTANCES}),
        StepName.AGENTS: frozenset({Capability.AGENTS, Capability.LAST_SEEN}),
        StepName.INVENTORY: frozenset({Capability.AGENT_TO_AUTH}),
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
        default_server_name=AUTH_SERVER_NAME,
    ),
    absence_reasons={
        Capability.TUNNELS_BY_AGENT: "Teleport has no API that names the agents with a tunnel to a proxy.",
        Capability.TUNNEL_COUNTS: "Teleport reports numbers of tunnels only in the metrics of its proxies, which "
        "Refloat does not read.",
        Capability.HEALTH: "Refloat judges auths and proxies of Teleport by their heartbeats: it does not connect to "
        "the addresses that they announce.",
        Capability.NETWORKING_READ: "Refloat does not read the networking config of Teleport clusters.",
        Capability.NETWORKING_WRITE: "Refloat does not change the networking config of Teleport clusters.",
        Capability.POLICIES: "Teleport has no API for the environment variables of its processes.",
        Capability.RECONNECT_ADVICE: "Teleport has no API that asks agents to reconnect.",
        Capability.WATCH: "Refloat reads the complete lists of Teleport clusters in each round.",
    },
)
