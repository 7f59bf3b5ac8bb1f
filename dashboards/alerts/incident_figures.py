"""Charts of one incident: affected agents by home proxy and auth, and their common attributes.

Each chart comes with the same data as a table or a list, for people who cannot see the chart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.monitoring.columns import NO_INSTANCE, REASON_BITS
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.verdicts import Reason, State

#: Rows and columns of the heat map: 800 cells at most.
_ROWS, _COLUMNS = 40, 20
#: Most distinct values in one column of the ribbons (the rest are "others"), and most ribbons.
_MAX_FACT_VALUES = 6
_RIBBONS = 400
#: Combinations in the list beside the ribbons.
_MAX_LISTED = 10
_OTHERS_LABEL = "others"

Indices = npt.NDArray[np.intp]


def build_figures(table: FleetTable, indices: Indices) -> dict[str, Any] | None:
    """Return both charts of the agents at `indices` as JSON; None without agents.

    `crossing`: home proxies x auths, in percent, with its `table`; `ribbons`: plotly's parcats, with the list `said`.
    """
    if not len(indices):
        return None
    return {
        "crossing": _heat_map(table, indices),
        "ribbons": _ribbons(table, indices),
        # Two stops: amber for at risk, red for stranded.
        "colours": {
            name: [[0, State.AT_RISK.look.colours[theme]], [1, State.STRANDED.look.colours[theme]]]
            for theme, name in enumerate(("light", "dark"))
        },
    }


def _heat_map(table: FleetTable, indices: Indices) -> dict[str, Any]:
    """Return the number of agents per home proxy and auth, and how many of them are affected."""
    states = table.verdicts["state"]
    counted_agents = np.flatnonzero((states != State.RETIRED) & (states != State.NEVER))
    affected_pairs = _count_pairs(table, indices)
    all_pairs = _count_pairs(table, counted_agents)
    rows, columns = (_order_by_affected(affected_pairs, all_pairs, position) for position in (0, 1))
    shown_rows, shown_columns = rows[:_ROWS], columns[:_COLUMNS]
    counts = [
        [(affected_pairs[row, column], all_pairs[row, column]) for column in shown_columns]
        for row in shown_rows
    ]
    text = [
        [f"{affected_count} of {total_count}" if total_count else "" for affected_count, total_count in line]
        for line in counts
    ]
    names = [_instance_name(table, row) for row in shown_rows]
    return {
        "rows": names,
        "columns": [_instance_name(table, column) for column in shown_columns],
        "z": [
            [
                round(100 * affected_count / total_count, 1) if total_count else None
                for affected_count, total_count in line
            ]
            for line in counts
        ],
        "text": text,
        "table": [{"name": name, "cells": cells} for name, cells in zip(names, text, strict=True)],
        "left_out": len(rows) - len(shown_rows) + len(columns) - len(shown_columns),
    }


def _count_pairs(table: FleetTable, indices: Indices) -> Counter[tuple[int, int]]:
    """Count agents by home proxy and auth."""
    homes = table.memory["home_proxy"][indices].astype(np.int64)
    auths = table.memory["last_auth"][indices].astype(np.int64)
    pair_codes, counts = np.unique(homes << 16 | auths, return_counts=True)
    pairs = zip(pair_codes.tolist(), counts.tolist(), strict=True)
    return Counter({(pair >> 16, pair & 0xFFFF): count for pair, count in pairs})


def _order_by_affected(
    affected_pairs: Counter[tuple[int, int]], all_pairs: Counter[tuple[int, int]], position: int
) -> list[int]:
    """Return the instances at one position of the pairs, those with most affected agents first."""
    sums: Counter[int] = Counter()
    for pair, count in affected_pairs.items():
        sums[pair[position]] += count
    return sorted({pair[position] for pair in all_pairs}, key=lambda index: (-sums[index], index))


def _ribbons(table: FleetTable, indices: Indices) -> dict[str, Any]:
    """Return one dimension per attribute and one ribbon per combination of values, the widest first."""
    facts, counts = _facts(table, indices)
    combination_counts: Counter[tuple[str, ...]] = Counter()
    for combination, count in zip(
        zip(*(_group_rare_values(fact_values, counts) for fact_values in facts.values()), strict=True),
        counts,
        strict=True,
    ):
        combination_counts[combination] += count
    top_combinations = combination_counts.most_common(_RIBBONS)
    return {
        "dimensions": [
            {"label": title, "values": [combination[position] for combination, _ in top_combinations]}
            for position, title in enumerate(facts)
        ],
        "counts": [count for _, count in top_combinations],
        "stranded": [int(combination[0] == State.STRANDED.label) for combination, _ in top_combinations],
        "said": [
            {"count": count, "what": ", ".join(combination)}
            for combination, count in top_combinations[:_MAX_LISTED]
        ],
        "more": max(0, len(combination_counts) - _MAX_LISTED),
    }


def _facts(table: FleetTable, indices: Indices) -> tuple[Mapping[str, Sequence[str]], Sequence[int]]:
    """Return the values of each combination by attribute, and its number of agents.

    Attributes that no instance reports are left out.
    """
    verdicts, memory = table.verdicts[indices], table.memory[indices]
    # Pack the attributes of an agent into one number: names are then looked up per combination, not per agent.
    packed_facts = (
        verdicts["state"].astype(np.int64) << 40
        | (verdicts["reason_and_recovery"] & REASON_BITS).astype(np.int64) << 32
    )
    packed_facts |= memory["home_proxy"].astype(np.int64) << 16 | memory["last_auth"].astype(np.int64)
    distinct_codes, counts = np.unique(packed_facts, return_counts=True)
    combinations: list[int] = distinct_codes.tolist()
    homes = [combination >> 16 & 0xFFFF for combination in combinations]
    facts = {
        "State": [State(combination >> 40).label for combination in combinations],
        "Reason": [Reason(combination >> 32 & REASON_BITS).slug for combination in combinations],
        "Home proxy": [_instance_name(table, home) for home in homes],
        "Auth": [_instance_name(table, combination & 0xFFFF) for combination in combinations],
    }
    groups = [_home_fact(table, home, "group") for home in homes]
    regions = [_home_fact(table, home, "region") for home in homes]
    versions = [_home_fact(table, home, "version") for home in homes]
    if any(groups):
        facts["Proxy group"] = [group or "none" for group in groups]
    if any(regions):
        facts["Region"] = [region or "unknown" for region in regions]
    if any(versions):
        facts["Proxy version"] = [version or "unknown" for version in versions]
    return facts, counts.tolist()


def _home_fact(table: FleetTable, home: int, fact: str) -> str:
    view: InstanceView | None = table.instances.get(home)
    return "" if view is None else str(getattr(view.facts, fact))


def _group_rare_values(fact_values: Sequence[str], counts: Sequence[int]) -> list[str]:
    """Return the values with all but the most frequent ones replaced by `others`."""
    sums: Counter[str] = Counter()
    for fact_value, count in zip(fact_values, counts, strict=True):
        sums[fact_value] += count
    frequent_values = {fact_value for fact_value, _ in sums.most_common(_MAX_FACT_VALUES)}
    return [fact_value if fact_value in frequent_values else _OTHERS_LABEL for fact_value in fact_values]


def _instance_name(table: FleetTable, index: int) -> str:
    view = table.instances.get(index)
    return "none" if index == NO_INSTANCE or view is None else view.facts.name
