"""Groups of agents by the version or a label that they report, for the map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleet.monitoring.views import FleetTable
from fleet.vocabulary.natural_order import version_sort_key

#: Group by this, or by `label.KEY`.
BY_VERSION = "version"
LABEL_PREFIX = "label."


class GroupingError(ValueError):
    """An unknown way to group agents; the message is shown to the user."""


@dataclass(frozen=True, slots=True)
class AgentGroups:
    """Groups of all agents of a table."""

    #: Versions or values of the label, in natural order; the empty name is of agents that report none, and is last.
    names: tuple[str, ...]
    #: Index in `names` by agent index.
    numbers: npt.NDArray[np.uint32]


def group_of_agents(table: FleetTable, grouping: str) -> AgentGroups:
    """Return the groups of agents by `version` or `label.KEY`; each group has an agent. Raises GroupingError."""
    attributes, agent_count = table.attributes, len(table.ids)
    if grouping == BY_VERSION:
        names, numbers = attributes.versions, attributes.version_numbers(agent_count)
    elif grouping.startswith(LABEL_PREFIX) and grouping != LABEL_PREFIX:
        key = grouping.removeprefix(LABEL_PREFIX)
        names = tuple(labels.get(key, "") for labels in attributes.label_sets)
        numbers = attributes.label_set_numbers(agent_count)
    else:
        raise GroupingError(f"Unknown grouping {grouping!r}. Available groupings: version, label.KEY.")
    return _merge_groups(names, numbers)


def label_keys_of(table: FleetTable) -> tuple[str, ...]:
    """Return the keys of all labels that agents have, in natural order."""
    numbers = np.flatnonzero(np.bincount(table.attributes.label_set_numbers(len(table.ids))))
    keys = {key for number in numbers.tolist() for key in table.attributes.label_sets[number]}
    return tuple(sorted(keys, key=version_sort_key))


def _merge_groups(names: Sequence[str], numbers: npt.NDArray[np.uint32]) -> AgentGroups:
    """Return groups of equal names, in order, without those that no agent is in."""
    names_in_use = {names[number] for number in np.flatnonzero(np.bincount(numbers)).tolist()}
    ordered_names = tuple(sorted(names_in_use, key=lambda name: (not name, version_sort_key(name))))
    number_by_name = {name: number for number, name in enumerate(ordered_names)}
    new_numbers = np.fromiter((number_by_name.get(name, 0) for name in names), np.uint32, len(names))
    return AgentGroups(ordered_names, new_numbers[numbers])
