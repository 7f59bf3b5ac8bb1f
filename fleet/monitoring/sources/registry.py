"""Every source that rounds ask. docs/howto/add-an-evidence-source.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleet.monitoring.sources.health import HEALTH
from fleet.monitoring.sources.presence import AGENTS, INSTANCES
from fleet.monitoring.sources.readyz import READYZ
from fleet.monitoring.sources.source import EvidenceSource
from fleet.monitoring.sources.trackers import TRACKERS
from fleet.monitoring.sources.tunnels import TUNNELS

#: Of every instance, all at once. When nobody was reached, the failure of the first contact is the reason.
INSTANCE_SOURCES: Sequence[EvidenceSource[Any]] = (HEALTH, READYZ, TUNNELS, TRACKERS)
#: Of one auth, for the whole cluster.
LIST_SOURCES: Sequence[EvidenceSource[Any]] = (INSTANCES, AGENTS)
