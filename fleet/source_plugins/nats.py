"""Hubs and leaf nodes of NATS as a source: docs/how-to/watch-nats-leaf-nodes.md."""

from __future__ import annotations

from fleet.source_plugins.declaration import AddressReach, ClusterSource, SourceForm
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.clusters import TLSSource
from fleet.vocabulary.connection_tests import StepName

_IN_FILES = "Settings of NATS are in the configuration file of each server: the monitoring port only reads."

SOURCE = ClusterSource(
    slug="nats",
    label="NATS leaf nodes",
    capabilities=frozenset(
        {
            Capability.INSTANCES,
            Capability.AGENTS,
            Capability.TUNNELS_BY_AGENT,
            Capability.TUNNEL_COUNTS,
            Capability.HEALTH,
        }
    ),
    polling="fleet.monitoring.sources.nats.polling:POLLING",
    connection_test="fleet.clusters.connection_test.nats_steps:CHECKS",
    test_steps={
        StepName.RESOLVE: frozenset(),
        StepName.CONNECT: frozenset(),
        StepName.PRODUCT: frozenset(),
        StepName.HEALTH: frozenset({Capability.HEALTH}),
        StepName.INSTANCES: frozenset({Capability.INSTANCES}),
        StepName.AGENTS: frozenset(
            {Capability.AGENTS, Capability.TUNNELS_BY_AGENT, Capability.TUNNEL_COUNTS}
        ),
        StepName.AGENT_PORT: frozenset({Capability.HEALTH}),
        StepName.CLOCK: frozenset(),
    },
    form=SourceForm(
        tls_sources=(TLSSource.NONE,),
        has_server_name=False,
        address_noun="hub",
        default_port=8222,
        address_reach=AddressReach.ITSELF,
    ),
    absence_reasons={
        Capability.LAST_SEEN: "Leaf nodes send no heartbeats with an expiry: a leaf node is seen as long as a hub "
        "lists it.",
        Capability.AGENT_TO_AUTH: "NATS has no auths: leaf nodes depend on hubs only.",
        Capability.NETWORKING_READ: _IN_FILES,
        Capability.NETWORKING_WRITE: _IN_FILES,
        Capability.POLICIES: _IN_FILES,
        Capability.RECONNECT_ADVICE: "Leaf nodes reconnect by themselves: the monitoring port cannot ask them to.",
        Capability.WATCH: "The monitoring port has no changes since the last round: Refloat reads /leafz of each hub.",
    },
)
