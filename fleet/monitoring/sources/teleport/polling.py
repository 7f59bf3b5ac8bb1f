"""What is polled at a Teleport cluster: lists of one auth, and a watch instead of the list of agents."""

from __future__ import annotations

from dataclasses import replace

from fleet.monitoring.sources.presence import AGENTS, INSTANCES
from fleet.monitoring.sources.source import SourcePolling, WatchSource
from fleet.monitoring.sources.teleport.instances import list_instances
from fleet.monitoring.sources.teleport.resources import list_agents
from fleet.monitoring.sources.teleport.watch import open_watch
from fleet.vocabulary.capabilities import Capability

POLLING = SourcePolling(
    instance_sources=(),
    list_sources=(
        replace(INSTANCES, query=list_instances),
        replace(
            AGENTS,
            query=list_agents,
            capabilities=frozenset({Capability.AGENTS, Capability.LAST_SEEN, Capability.AGENT_TO_AUTH}),
        ),
    ),
    watch=WatchSource(open_watch),
)
