"""Sources of evidence that rounds poll. docs/how-to/add-an-evidence-source.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleet.monitoring.sources.health import HEALTH
from fleet.monitoring.sources.presence import AGENTS, INSTANCES
from fleet.monitoring.sources.readyz import READYZ
from fleet.monitoring.sources.source import EvidenceSource
from fleet.monitoring.sources.trackers import TRACKERS
from fleet.monitoring.sources.tunnels import TUNNELS

#: Polled at every instance, all at the same time. Without a response the first failure of a contact is the error.
INSTANCE_SOURCES: Sequence[EvidenceSource[Any]] = (HEALTH, READYZ, TUNNELS, TRACKERS)
#: Polled at one auth, for the whole cluster.
LIST_SOURCES: Sequence[EvidenceSource[Any]] = (INSTANCES, AGENTS)
