"""Groups of agents that the map cannot derive from its live columns: by home proxy, version or label."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dashboards.fleet.agent_query import QueryError
from fleet.monitoring.columns import NO_INSTANCE
from fleet.monitoring.views import FleetTable

#: Value of an agent without a group.
NO_GROUP = 0xFFFF


@dataclass(frozen=True, slots=True)
class MapGroup:
    """One group of agents."""

    name: str
    #: Index of the instance that the group stands for, whose state the map shows; None: the group is no instance.
    instance: int | None = None


@dataclass(frozen=True, slots=True)
class MapGrouping:
    """Every agent's group."""

    groups: tuple[MapGroup, ...]
    #: Index in `groups` by agent index, or NO_GROUP.
    column: npt.NDArray[np.uint16]


def group_by_home(table: FleetTable) -> MapGrouping:
    """Return the agents grouped by home proxy, the first proxy that they were seen on."""
    homes = table.memory["home_proxy"]
    # By instance index: instances are numbered in the order in which they were first recorded.
    instances = [int(index) for index in np.unique(homes) if index != NO_INSTANCE]
    group_indices = np.full(NO_INSTANCE + 1, NO_GROUP, np.uint16)
    group_indices[instances] = np.arange(len(instances), dtype=np.uint16)
    groups = tuple(MapGroup(table.instances[index].facts.name, index) for index in instances)
    return MapGrouping(groups, group_indices[homes])


#: Label and function by the name of the grouping. The map offers every entry.
_GROUPINGS: Mapping[str, tuple[str, Callable[[FleetTable], MapGrouping]]] = {
    "home": ("home proxy", group_by_home)
}


def list_groupings() -> list[tuple[str, str]]:
    """Return name and label of every grouping."""
    return [(name, label) for name, (label, _) in _GROUPINGS.items()]


def group_agents(table: FleetTable, attribute: str) -> MapGrouping:
    """Return the agents grouped by an attribute. Raises QueryError for an unknown one."""
    if attribute not in _GROUPINGS:
        raise QueryError(f"Unknown group {attribute!r}. Available groups: {', '.join(_GROUPINGS)}.")
    _, group = _GROUPINGS[attribute]
    return group(table)


def grouping_as_json(grouping: MapGrouping) -> dict[str, Any]:
    """Return a grouping for the map; `column`: two bytes per agent, little-endian, compressed with zlib, in base64."""
    column = zlib.compress(grouping.column.astype("<u2").tobytes())
    return {
        "groups": [{"name": group.name, "instance": group.instance} for group in grouping.groups],
        "agents": len(grouping.column),
        "column": base64.b64encode(column).decode(),
    }
