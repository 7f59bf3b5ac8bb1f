"""Pictures of one incident: where its agents stand against the others, and what they have in common.

Each has its numbers in words beside it: whoever does not see the picture reads the table.
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
#: Values of one column of the ribbons by themselves; the rest are "others". And ribbons in all.
_VALUES = 6
_RIBBONS = 400
#: Combinations that are said in words.
_SAID = 10
_OTHERS = "others"

Indices = npt.NDArray[np.intp]


def pictures(table: FleetTable, indices: Indices) -> dict[str, Any] | None:
    """Both pictures of the agents at `indices`, as JSON; None when it harms nobody.

    `crossing`: home proxies x auths, in percent; `ribbons`: plotly's parcats. `table` and `said` are their words.
    """
    if not len(indices):
        return None
    return {
        "crossing": _crossing(table, indices),
        "ribbons": _ribbons(table, indices),
        # Two stops: amber for at risk, red for stranded.
        "colours": {
            name: [[0, State.AT_RISK.look.colours[theme]], [1, State.STRANDED.look.colours[theme]]]
            for theme, name in enumerate(("light", "dark"))
        },
    }


def _crossing(table: FleetTable, indices: Indices) -> dict[str, Any]:
    """Per home proxy and auth: how many agents, and how many of them this harms."""
    states = table.verdicts["state"]
    known = np.flatnonzero((states != State.RETIRED) & (states != State.NEVER))
    harmed = _pairs(table, indices)
    of = _pairs(table, known)
    rows, columns = (_most(harmed, of, place) for place in (0, 1))
    shown_rows, shown_columns = rows[:_ROWS], columns[:_COLUMNS]
    counts = [[(harmed[row, column], of[row, column]) for column in shown_columns] for row in shown_rows]
    text = [[f"{some} of {every}" if every else "" for some, every in line] for line in counts]
    names = [_name(table, row) for row in shown_rows]
    return {
        "rows": names,
        "columns": [_name(table, column) for column in shown_columns],
        "z": [[round(100 * some / every, 1) if every else None for some, every in line] for line in counts],
        "text": text,
        "table": [{"name": name, "cells": cells} for name, cells in zip(names, text, strict=True)],
        "left_out": len(rows) - len(shown_rows) + len(columns) - len(shown_columns),
    }


def _pairs(table: FleetTable, indices: Indices) -> Counter[tuple[int, int]]:
    """How many of these agents have each home proxy and auth."""
    homes = table.memory["home"][indices].astype(np.int64)
    auths = table.memory["last_auth"][indices].astype(np.int64)
    found, counts = np.unique(homes << 16 | auths, return_counts=True)
    pairs = zip(found.tolist(), counts.tolist(), strict=True)
    return Counter({(pair >> 16, pair & 0xFFFF): count for pair, count in pairs})


def _most(harmed: Counter[tuple[int, int]], of: Counter[tuple[int, int]], place: int) -> list[int]:
    """The instances at one place of the pairs, those with most harmed agents first."""
    sums: Counter[int] = Counter()
    for pair, count in harmed.items():
        sums[pair[place]] += count
    return sorted({pair[place] for pair in of}, key=lambda index: (-sums[index], index))


def _ribbons(table: FleetTable, indices: Indices) -> dict[str, Any]:
    """What they have in common: one dimension a fact, one ribbon a combination of facts, the widest first."""
    facts, counts = _facts(table, indices)
    combined: Counter[tuple[str, ...]] = Counter()
    for values, count in zip(
        zip(*(_grouped(one, counts) for one in facts.values()), strict=True), counts, strict=True
    ):
        combined[values] += count
    shown = combined.most_common(_RIBBONS)
    return {
        "dimensions": [
            {"label": title, "values": [values[place] for values, _ in shown]}
            for place, title in enumerate(facts)
        ],
        "counts": [count for _, count in shown],
        "stranded": [int(values[0] == State.STRANDED.label) for values, _ in shown],
        "said": [{"count": count, "what": ", ".join(values)} for values, count in shown[:_SAID]],
        "more": max(0, len(combined) - _SAID),
    }


def _facts(table: FleetTable, indices: Indices) -> tuple[Mapping[str, Sequence[str]], Sequence[int]]:
    """By title what each combination has, and how many agents have it. Facts that no instance tells are left out."""
    verdicts, memory = table.verdicts[indices], table.memory[indices]
    # One number per agent, so that names are looked up once per combination and not once per agent.
    packed = (
        verdicts["state"].astype(np.int64) << 40 | (verdicts["packed"] & REASON_BITS).astype(np.int64) << 32
    )
    packed |= memory["home"].astype(np.int64) << 16 | memory["last_auth"].astype(np.int64)
    found, counts = np.unique(packed, return_counts=True)
    combinations: list[int] = found.tolist()
    homes = [one >> 16 & 0xFFFF for one in combinations]
    facts = {
        "Verdict": [State(one >> 40).label for one in combinations],
        "Reason": [Reason(one >> 32 & REASON_BITS).slug for one in combinations],
        "Home proxy": [_name(table, home) for home in homes],
        "Auth": [_name(table, one & 0xFFFF) for one in combinations],
    }
    groups = [_of_home(table, home, "group") for home in homes]
    regions = [_of_home(table, home, "region") for home in homes]
    versions = [_of_home(table, home, "version") for home in homes]
    if any(groups):
        facts["Proxy group"] = [group or "none" for group in groups]
    if any(regions):
        facts["Region"] = [region or "unknown" for region in regions]
    if any(versions):
        facts["Proxy version"] = [version or "unknown" for version in versions]
    return facts, counts.tolist()


def _of_home(table: FleetTable, home: int, fact: str) -> str:
    view: InstanceView | None = table.instances.get(home)
    return "" if view is None else str(getattr(view.facts, fact))


def _grouped(values: Sequence[str], counts: Sequence[int]) -> list[str]:
    """The most frequent values, and `others`."""
    sums: Counter[str] = Counter()
    for value, count in zip(values, counts, strict=True):
        sums[value] += count
    most = {value for value, _ in sums.most_common(_VALUES)}
    return [value if value in most else _OTHERS for value in values]


def _name(table: FleetTable, index: int) -> str:
    view = table.instances.get(index)
    return "none" if index == NO_INSTANCE or view is None else view.facts.name
