"""Groups of agents that the map cannot derive from its live columns: by home proxy, version or label."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dashboards.fleet.agent_groups import (
    BY_VERSION,
    LABEL_PREFIX,
    GroupingError,
    group_of_agents,
    label_keys_of,
)
from dashboards.fleet.agent_query import QueryError
from fleet.monitoring.columns import NO_INSTANCE
from fleet.monitoring.views import FleetTable

#: Value of an agent without a group.
NO_GROUP = 0xFFFF
#: Name of the grouping by home proxy.
BY_HOME = "home"
#: Maximum number of groups: more blocks than that cannot be told apart.
MAX_GROUPS = 1000
#: Maximum number of labels to choose from.
_MAX_LISTED_KEYS = 30


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


def group_by_attribute(table: FleetTable, attribute: str) -> MapGrouping:
    """Return the agents grouped by `version` or `label.KEY`. Raises GroupingError."""
    agent_groups = group_of_agents(table, attribute)
    # The group without a name is of agents that report none, and is last.
    groups = tuple(MapGroup(name) for name in agent_groups.names if name)
    numbers = agent_groups.numbers.astype(np.uint16)
    return MapGrouping(groups, np.where(agent_groups.numbers < len(groups), numbers, np.uint16(NO_GROUP)))


def list_groupings(table: FleetTable) -> list[tuple[str, str]]:
    """Return name and label of every grouping that agents of the table have, `("label.env", "label env")`."""
    keys = label_keys_of(table)[:_MAX_LISTED_KEYS]
    return [
        (BY_HOME, "home proxy"),
        (BY_VERSION, "version"),
        *((f"{LABEL_PREFIX}{key}", f"label {key}") for key in keys),
    ]


def group_agents(table: FleetTable, attribute: str) -> MapGrouping:
    """Return the agents grouped by an attribute. Raises QueryError for an unknown one, or for too many groups."""
    if attribute == BY_HOME:
        return group_by_home(table)
    try:
        grouping = group_by_attribute(table, attribute)
    except GroupingError:
        raise QueryError(
            f"Unknown group {attribute!r}. Available groups: {BY_HOME}, {BY_VERSION}, {LABEL_PREFIX}KEY."
        ) from None
    if len(grouping.groups) > MAX_GROUPS:
        raise QueryError(
            f"{attribute} has {len(grouping.groups):,} values: the map shows up to {MAX_GROUPS:,} groups."
        )
    return grouping


def grouping_as_json(grouping: MapGrouping) -> dict[str, Any]:
    """Return a grouping for the map; `column`: two bytes per agent, little-endian, compressed with zlib, in base64."""
    column = zlib.compress(grouping.column.astype("<u2").tobytes())
    return {
        "groups": [{"name": group.name, "instance": group.instance} for group in grouping.groups],
        "agents": len(grouping.column),
        "column": base64.b64encode(column).decode(),
    }
