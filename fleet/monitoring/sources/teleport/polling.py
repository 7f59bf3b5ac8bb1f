"""What is polled at a Teleport cluster: lists of one auth, and the diag ports of the instances that have one."""

from __future__ import annotations

from dataclasses import replace

from fleet.monitoring.sources.health import HEALTH
from fleet.monitoring.sources.presence import AGENTS, INSTANCES
from fleet.monitoring.sources.readyz import READYZ
from fleet.monitoring.sources.source import SourcePolling
from fleet.monitoring.sources.teleport.diag_port import CONNECTION_COUNTS, get_process_state
from fleet.monitoring.sources.teleport.instances import list_instances
from fleet.monitoring.sources.teleport.resources import list_agents
from fleet.vocabulary.capabilities import Capability

POLLING = SourcePolling(
    instance_sources=(replace(READYZ, query=get_process_state, proves_reachability=True), CONNECTION_COUNTS),
    # Teleport's gRPC health is its process state.
    list_health=replace(HEALTH, is_retried=True),
    list_sources=(
        replace(INSTANCES, query=list_instances),
        replace(
            AGENTS,
            query=list_agents,
            capabilities=frozenset({Capability.AGENTS, Capability.LAST_SEEN, Capability.AGENT_TO_AUTH}),
        ),
    ),
)
