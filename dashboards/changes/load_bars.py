"""Bars of the loads of instances before and after a change, for forms and plans."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleet.changes.load_forecast import InstanceLoadForecast
from fleet.vocabulary.instances import InstanceKind


@dataclass(frozen=True, slots=True)
class LoadBar:
    """One instance: its load before and after, and the widths of their bars, 0 to 100."""

    name: str
    #: `agents` or `tunnels`.
    unit: str
    before: int
    after: int
    before_percent: float
    after_percent: float
    is_leaving: bool


def load_bars_of(loads: Iterable[InstanceLoadForecast]) -> list[LoadBar]:
    """Return the bars of a forecast, in its order, on one scale."""
    rows = list(loads)
    largest = max((max(load.before, load.after) for load in rows), default=0) or 1
    return [
        LoadBar(
            load.name,
            "agents" if load.kind is InstanceKind.AUTH else "tunnels",
            load.before,
            load.after,
            round(100 * load.before / largest, 1),
            round(100 * load.after / largest, 1),
            load.is_leaving,
        )
        for load in rows
    ]
