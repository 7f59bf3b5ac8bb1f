"""Bars of the loads of instances before and after a change, for forms and plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

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
    #: The load when the change ended; None: not known, or not ended.
    actual: int | None = None
    actual_percent: float = 0.0


def load_bars_of(
    loads: Iterable[InstanceLoadForecast], actual_loads: Mapping[str, int] = MappingProxyType({})
) -> list[LoadBar]:
    """Return the bars of a forecast, on one scale: those of auths, then those of proxies, each in its order.

    `actual_loads`: of an ended change, by name.
    """
    rows = sorted(loads, key=lambda load: load.kind is not InstanceKind.AUTH)
    counts = [*actual_loads.values(), *(max(load.before, load.after) for load in rows)]
    largest = max(counts, default=0) or 1
    return [
        LoadBar(
            load.name,
            "agents" if load.kind is InstanceKind.AUTH else "tunnels",
            load.before,
            load.after,
            round(100 * load.before / largest, 1),
            round(100 * load.after / largest, 1),
            load.is_leaving,
            actual_loads.get(load.name),
            round(100 * actual_loads.get(load.name, 0) / largest, 1),
        )
        for load in rows
    ]


def describe_difference(bars: Sequence[LoadBar]) -> str:
    """Return how the actual loads differ from the forecast, as a sentence; empty while they are not known."""
    differences = [(bar.actual - bar.after, bar) for bar in bars if bar.actual is not None]
    if not differences:
        return ""
    difference, bar = max(differences, key=lambda entry: abs(entry[0]))
    if not difference:
        return "As forecast."
    return (
        f"Largest difference from the forecast: {bar.name} has {abs(difference):,} "
        f"{bar.unit.removesuffix('s') if abs(difference) == 1 else bar.unit} {'more' if difference > 0 else 'fewer'}."
    )
