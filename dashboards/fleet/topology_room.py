"""Room of the topology on the map, before its script draws it: what is below must not move. Pure."""

from __future__ import annotations

from collections import Counter

from fleet.monitoring.views import FleetTable
from fleet.vocabulary.instances import InstanceState

#: As in topology-layout.js: height of an instance with its gap, gap, and limits of the whole, px.
_INSTANCE_HEIGHT, _GAP = 60, 8
_MIN_HEIGHT, _MAX_HEIGHT = 220, 320


def topology_height_of(table: FleetTable) -> int:
    """Return the height of the drawing of the topology, px: the longer column of instances decides. 0: no instances."""
    count_by_kind = Counter(
        view.facts.kind for view in table.instances.values() if view.state is not InstanceState.GONE
    )
    if not count_by_kind:
        return 0
    height = max(count_by_kind.values()) * _INSTANCE_HEIGHT - _GAP
    return min(_MAX_HEIGHT, max(_MIN_HEIGHT, height))
