"""The wire of Refloat's own auths, proxies and agents as a source: docs/reference/wire.md."""

from __future__ import annotations

from fleet.source_plugins.declaration import ClusterSource
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.connection_tests import StepName

SOURCE = ClusterSource(
    slug="refloat",
    label="Refloat",
    capabilities=frozenset(Capability),
    polling="fleet.monitoring.sources.refloat:POLLING",
    connection_test="fleet.clusters.connection_test.refloat_steps:CHECKS",
    test_steps={
        StepName.RESOLVE: frozenset(),
        StepName.CONNECT: frozenset(),
        StepName.TLS: frozenset(),
        # The role of Refloat's certificate decides whether instances accept its changes.
        StepName.IDENTITY: frozenset({Capability.NETWORKING_WRITE, Capability.RECONNECT_ADVICE}),
        StepName.HEALTH: frozenset({Capability.HEALTH}),
        StepName.INSTANCES: frozenset({Capability.INSTANCES}),
        StepName.AGENTS: frozenset(
            {Capability.AGENTS, Capability.LAST_SEEN, Capability.AGENT_TO_AUTH, Capability.WATCH}
        ),
        StepName.TUNNELS: frozenset({Capability.TUNNELS_BY_AGENT, Capability.TUNNEL_COUNTS}),
        StepName.READYZ: frozenset({Capability.HEALTH}),
        StepName.NETWORKING: frozenset({Capability.NETWORKING_READ}),
        StepName.POLICIES: frozenset({Capability.POLICIES}),
        StepName.CLOCK: frozenset(),
    },
)
