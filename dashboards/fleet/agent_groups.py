"""Groups of agents by the version or a label that they report, for the map; and what agents report, for typeahead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dashboards.shared.agent_filters import format_label_filter, format_version_filter
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
    keys = {key for labels, _ in _label_sets_in_use(table) for key in labels}
    return tuple(sorted(keys, key=version_sort_key))


def suggest_filters(table: FleetTable, limit: int) -> tuple[str, ...]:
    """Return up to `limit` filters of agent_query by version and label, those of most agents first."""
    counts: Counter[str] = Counter()
    version_counts = np.bincount(table.attributes.version_numbers(len(table.ids)))
    for number in np.flatnonzero(version_counts).tolist():
        if version := table.attributes.versions[number]:
            counts[format_version_filter(version)] += int(version_counts[number])
    for labels, agent_count in _label_sets_in_use(table):
        for key, label_value in labels.items():
            if label_filter := format_label_filter(key, label_value):
                counts[label_filter] += agent_count
    sorted_filters = sorted(counts, key=lambda text: (-counts[text], version_sort_key(text)))
    return tuple(sorted_filters[:limit])


def _label_sets_in_use(table: FleetTable) -> list[tuple[dict[str, str], int]]:
    """Return the label sets that agents have, and of how many agents."""
    agent_counts = np.bincount(table.attributes.label_set_numbers(len(table.ids)))
    return [
        (dict(table.attributes.label_sets[number]), int(agent_counts[number]))
        for number in np.flatnonzero(agent_counts).tolist()
    ]


def _merge_groups(names: Sequence[str], numbers: npt.NDArray[np.uint32]) -> AgentGroups:
    """Return groups of equal names, in order, without those that no agent is in."""
    names_in_use = {names[number] for number in np.flatnonzero(np.bincount(numbers)).tolist()}
    ordered_names = tuple(sorted(names_in_use, key=lambda name: (not name, version_sort_key(name))))
    number_by_name = {name: number for number, name in enumerate(ordered_names)}
    new_numbers = np.fromiter((number_by_name.get(name, 0) for name in names), np.uint32, len(names))
    return AgentGroups(ordered_names, new_numbers[numbers])
