"""Charts of one incident: affected agents by home proxy and auth, and their common attributes.

Each chart comes with the same data as a table or a list, for people who cannot see the chart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.alerts.evidence.evidence import count_agents_by_pair
from fleet.monitoring.columns import NO_INSTANCE, REASON_BITS
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.verdicts import Reason, State

#: Rows and columns of the heat map: 800 cells at most.
_MAX_ROWS, _MAX_COLUMNS = 40, 20
#: Most columns whose cells have space for counts besides the share.
_MAX_COLUMNS_WITH_COUNTS = 6
#: Most distinct values in one column of the ribbons (the rest are "others"), and most ribbons.
_MAX_ATTRIBUTE_VALUES = 6
_MAX_RIBBONS = 400
#: Combinations in the list beside the ribbons.
_MAX_LISTED_COMBINATIONS = 10
_OTHERS_LABEL = "others"

Indices = npt.NDArray[np.intp]


def build_figures(
    table: FleetTable,
    indices: Indices,
    agent_count_by_pair: Mapping[tuple[int, int], int] | None = None,
    *,
    is_past: bool = False,
) -> dict[str, Any] | None:
    """Return both charts of the agents at `indices` as JSON; None without agents.

    `heat_map`: home proxies x auths, in percent, with its `table`; `ribbons`: plotly's parcats, with the list
    `combinations`. `agent_count_by_pair`: agents of the fleet by home proxy and auth, if the table has only some of
    them. `is_past`: the incident is over, so nothing is red.
    """
    if not len(indices):
        return None
    return {
        "heat_map": _build_heat_map(
            table,
            indices,
            count_agents_by_pair(table) if agent_count_by_pair is None else agent_count_by_pair,
        ),
        "ribbons": _build_ribbons(table, indices),
        "is_past": is_past,
        # Two stops: amber for at risk, red for stranded.
        "colours": {
            name: [[0, State.AT_RISK.look.colours[theme]], [1, State.STRANDED.look.colours[theme]]]
            for theme, name in enumerate(("light", "dark"))
        },
    }


def list_pairs(
    table: FleetTable, indices: Indices, agent_count_by_pair: Mapping[tuple[int, int], int]
) -> list[dict[str, Any]]:
    """Return the affected agents by home proxy and auth, the pairs with most of them first, for the API."""
    return [
        {
            "home_proxy": _instance_name_of(table, home),
            "auth": _instance_name_of(table, auth),
            "affected_count": affected_count,
            "agent_count": agent_count_by_pair.get((home, auth), 0),
        }
        for (home, auth), affected_count in count_agents_by_pair(table, indices).most_common()
    ]


def _build_heat_map(
    table: FleetTable, indices: Indices, total_count_by_pair: Mapping[tuple[int, int], int]
) -> dict[str, Any]:
    """Return the number of agents per home proxy and auth, and how many of them are affected."""
    affected_count_by_pair = count_agents_by_pair(table, indices)
    rows, columns = (
        _order_by_affected_count(affected_count_by_pair, total_count_by_pair, pair_position)
        for pair_position in (0, 1)
    )
    shown_rows, shown_columns = rows[:_MAX_ROWS], columns[:_MAX_COLUMNS]
    counts = [
        [
            (affected_count_by_pair[row, column], total_count_by_pair.get((row, column), 0))
            for column in shown_columns
        ]
        for row in shown_rows
    ]
    is_narrow = len(shown_columns) > _MAX_COLUMNS_WITH_COUNTS
    text = [[_describe_cell(*cell, is_narrow=is_narrow) for cell in line] for line in counts]
    names = [_instance_name_of(table, row) for row in shown_rows]
    return {
        "rows": names,
        "columns": [_instance_name_of(table, column) for column in shown_columns],
        "z": [
            [
                round(100 * affected_count / total_count, 1) if total_count else None
                for affected_count, total_count in line
            ]
            for line in counts
        ],
        "text": text,
        "table": [
            {"name": name, "cells": [_describe_cell(*cell) for cell in line]}
            for name, line in zip(names, counts, strict=True)
        ],
        "hidden_count": len(rows) - len(shown_rows) + len(columns) - len(shown_columns),
    }


def _describe_cell(affected_count: int, total_count: int, *, is_narrow: bool = False) -> str:
    """Return the share of affected agents, with both counts if there is space; empty without agents."""
    if not total_count:
        return ""
    share = f"{round(100 * affected_count / total_count)} %"
    return share if is_narrow else f"{affected_count} of {total_count} ({share})"


def _order_by_affected_count(
    affected_count_by_pair: Counter[tuple[int, int]],
    total_count_by_pair: Mapping[tuple[int, int], int],
    pair_position: int,
) -> list[int]:
    """Return the instances at one position of the pairs, those with most affected agents first."""
    affected_count_by_index: Counter[int] = Counter()
    for pair, count in affected_count_by_pair.items():
        affected_count_by_index[pair[pair_position]] += count
    return sorted(
        {pair[pair_position] for pair in total_count_by_pair},
        key=lambda index: (-affected_count_by_index[index], index),
    )


def _build_ribbons(table: FleetTable, indices: Indices) -> dict[str, Any]:
    """Return one dimension per attribute and one ribbon per combination of values, the widest first."""
    values_by_attribute, counts = _count_attribute_combinations(table, indices)
    count_by_combination: Counter[tuple[str, ...]] = Counter()
    for combination, count in zip(
        zip(
            *(
                _group_rare_values(attribute_values, counts)
                for attribute_values in values_by_attribute.values()
            ),
            strict=True,
        ),
        counts,
        strict=True,
    ):
        count_by_combination[combination] += count
    top_combinations = count_by_combination.most_common(_MAX_RIBBONS)
    return {
        "dimensions": [
            {"label": title, "values": [combination[attribute_index] for combination, _ in top_combinations]}
            for attribute_index, title in enumerate(values_by_attribute)
        ],
        "counts": [count for _, count in top_combinations],
        "stranded": [int(combination[0] == State.STRANDED.label) for combination, _ in top_combinations],
        "combinations": [
            {"count": count, "values": ", ".join(combination)}
            for combination, count in top_combinations[:_MAX_LISTED_COMBINATIONS]
        ],
        "more": max(0, len(count_by_combination) - _MAX_LISTED_COMBINATIONS),
    }


def _count_attribute_combinations(
    table: FleetTable, indices: Indices
) -> tuple[Mapping[str, Sequence[str]], Sequence[int]]:
    """Return the values of each combination by attribute, and its number of agents.

    Attributes that no instance reports are left out.
    """
    verdicts, memory = table.verdicts[indices], table.memory[indices]
    # Pack the attributes of an agent into one number: names are then looked up per combination, not per agent.
    packed_attributes = (
        verdicts["state"].astype(np.int64) << 40
        | (verdicts["reason_and_recovery"] & REASON_BITS).astype(np.int64) << 32
    )
    packed_attributes |= memory["home_proxy"].astype(np.int64) << 16 | memory["last_auth"].astype(np.int64)
    distinct_combinations, counts = np.unique(packed_attributes, return_counts=True)
    combinations: list[int] = distinct_combinations.tolist()
    homes = [combination >> 16 & 0xFFFF for combination in combinations]
    values_by_attribute = {
        "State": [State(combination >> 40).label for combination in combinations],
        "Reason": [Reason(combination >> 32 & REASON_BITS).label for combination in combinations],
        "Home proxy": [_instance_name_of(table, home) for home in homes],
        "Auth": [_instance_name_of(table, combination & 0xFFFF) for combination in combinations],
    }
    groups = [_read_home_attribute(table, home, "group") for home in homes]
    regions = [_read_home_attribute(table, home, "region") for home in homes]
    versions = [_read_home_attribute(table, home, "version") for home in homes]
    if any(groups):
        values_by_attribute["Proxy group"] = [group or "none" for group in groups]
    if any(regions):
        values_by_attribute["Region"] = [region or "unknown" for region in regions]
    if any(versions):
        values_by_attribute["Proxy version"] = [version or "unknown" for version in versions]
    return values_by_attribute, counts.tolist()


def _read_home_attribute(table: FleetTable, home: int, attribute: str) -> str:
    view: InstanceView | None = table.instances.get(home)
    return "" if view is None else str(getattr(view.facts, attribute))


def _group_rare_values(attribute_values: Sequence[str], counts: Sequence[int]) -> list[str]:
    """Return the values with all but the most frequent ones replaced by `others`."""
    count_by_value: Counter[str] = Counter()
    for attribute_value, count in zip(attribute_values, counts, strict=True):
        count_by_value[attribute_value] += count
    frequent_values = {
        attribute_value for attribute_value, _ in count_by_value.most_common(_MAX_ATTRIBUTE_VALUES)
    }
    return [
        attribute_value if attribute_value in frequent_values else _OTHERS_LABEL
        for attribute_value in attribute_values
    ]


def _instance_name_of(table: FleetTable, index: int) -> str:
    view = table.instances.get(index)
    return "none" if index == NO_INSTANCE or view is None else view.facts.name
