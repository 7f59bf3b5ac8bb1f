"""What is polled at a Teleport cluster: lists of one auth, a watch in place of that of agents, and diag ports."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from fleet.monitoring.sources.health import HEALTH
from fleet.monitoring.sources.presence import AGENTS, INSTANCES, ListedInstance
from fleet.monitoring.sources.readyz import READYZ
from fleet.monitoring.sources.source import SourceContext, SourcePolling, WatchSource
from fleet.monitoring.sources.teleport.diag_port import CONNECTION_COUNTS, get_process_state
from fleet.monitoring.sources.teleport.instances import list_instances
from fleet.monitoring.sources.teleport.networking import note_networking_access
from fleet.monitoring.sources.teleport.resources import list_agents
from fleet.monitoring.sources.teleport.watch import open_watch
from fleet.vocabulary.capabilities import Capability


async def _list_instances(context: SourceContext) -> tuple[ListedInstance, ...]:
    """Return all auths and proxies, and note what else this cluster does not have. Raises SourceError."""
    # With this list, which each round reads: rounds with a watch read no list of agents.
    instances, _ = await asyncio.gather(list_instances(context), note_networking_access(context))
    return instances


POLLING = SourcePolling(
    instance_sources=(replace(READYZ, query=get_process_state, proves_reachability=True), CONNECTION_COUNTS),
    # Teleport's gRPC health is its process state.
    list_health=replace(HEALTH, is_retried=True),
    list_sources=(
        replace(INSTANCES, query=_list_instances),
        replace(
            AGENTS,
            query=list_agents,
            capabilities=frozenset({Capability.AGENTS, Capability.LAST_SEEN, Capability.AGENT_TO_AUTH}),
        ),
    ),
    watch=WatchSource(open_watch),
)
