"""Evidence of clusters of Refloat's own wire: docs/reference/wire.md."""

from __future__ import annotations

from fleet.monitoring.sources.health import HEALTH
from fleet.monitoring.sources.policies import POLICIES
from fleet.monitoring.sources.presence import AGENTS, INSTANCES
from fleet.monitoring.sources.readyz import READYZ
from fleet.monitoring.sources.source import SourcePolling
from fleet.monitoring.sources.trackers import TRACKERS
from fleet.monitoring.sources.tunnels import TUNNELS

POLLING = SourcePolling(
    instance_sources=(HEALTH, READYZ, TUNNELS, TRACKERS),
    list_sources=(INSTANCES, AGENTS),
    policies=POLICIES,
)
