"""The closing curve of a config change: tunnels closed over time, as planned and as seen. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.changes.pictures.curve import Point, cover

#: Room after the last expected closing, so that the end of the forecast can be seen.
_MARGIN = 1.08
#: Points of the expected curve between two moments of the plan.
_SAMPLES = 24


@dataclass(frozen=True, slots=True)
class ClosingChart:
    """A chart of tunnels closed since the config was applied."""

    #: Between the earliest and the latest closings, and the expected number, as `points`.
    band: str
    expected: str
    #: What was seen, as `points`; empty before the change has been applied.
    actual: str
    #: Place of the present moment, 0 to 100; None: the change is not being verified.
    now_x: float | None
    #: Largest number of closings, and the labels of the time axis.
    total_count: int
    tick_labels: tuple[str, ...]
    closed_count: int
    #: Expected number at the present moment; None: the change is not being verified.
    expected_now_count: int | None


def closing_chart_of(
    steps: Sequence[Mapping[str, Any]],
    curve: Sequence[Sequence[float]] = (),
    elapsed_seconds: float | None = None,
) -> ClosingChart | None:
    """Return the chart of a plan; None when no tunnel closes.

    `steps`: tunnel count and earliest and latest seconds. `curve`: seconds since the change was applied and tunnels
    closed by then. `elapsed_seconds`: since the change was applied, while it is being verified.
    """
    total_count = sum(int(step["tunnel_count"]) for step in steps)
    if not total_count:
        return None
    last_seconds = max(float(step["latest_seconds"]) for step in steps)
    seen_points: list[Point] = [(float(seconds), float(count)) for seconds, count in curve]
    end_seconds = max([elapsed_seconds or 0.0, *(seconds for seconds, _ in seen_points)])
    largest_count = max([float(total_count), *(count for _, count in seen_points)])
    scale = cover(max(last_seconds * _MARGIN, end_seconds, 1.0), largest_count)
    moments = _moments_of(steps, scale.seconds)
    earliest = [(at, float(_count_until(steps, at, "earliest_seconds"))) for at in moments]
    latest = [(at, float(_count_until(steps, at, "latest_seconds"))) for at in moments]
    return ClosingChart(
        band=f"{scale.line(earliest)} {scale.line(reversed(latest))}",
        expected=scale.line((at, expected_count_at(steps, at)) for at in moments),
        actual=scale.steps([(0.0, 0.0), *seen_points], end_seconds) if seen_points or elapsed_seconds else "",
        now_x=None if elapsed_seconds is None else scale.x(elapsed_seconds),
        total_count=round(largest_count),
        tick_labels=scale.tick_labels,
        closed_count=round(seen_points[-1][1]) if seen_points else 0,
        expected_now_count=None
        if elapsed_seconds is None
        else round(expected_count_at(steps, elapsed_seconds)),
    )


def expected_count_at(steps: Sequence[Mapping[str, Any]], seconds: float) -> float:
    """Return the expected number of closings by a moment: each tunnel closes at random between its two bounds."""
    count = 0.0
    for step in steps:
        low, high = float(step["earliest_seconds"]), float(step["latest_seconds"])
        share = 1.0 if seconds >= high else 0.0 if seconds <= low else (seconds - low) / (high - low)
        count += share * int(step["tunnel_count"])
    return count


def _count_until(steps: Sequence[Mapping[str, Any]], seconds: float, bound: str) -> int:
    return sum(int(step["tunnel_count"]) for step in steps if float(step[bound]) <= seconds)


def _moments_of(steps: Sequence[Mapping[str, Any]], end_seconds: float) -> list[float]:
    """Return moments at which the curves may bend, in order, each with one just before it for the steps of the band."""
    bends = {float(step[name]) for step in steps for name in ("earliest_seconds", "latest_seconds")}
    before_bends = {max(bend - end_seconds / 1000, 0.0) for bend in bends}
    even = {end_seconds * index / _SAMPLES for index in range(_SAMPLES + 1)}
    return sorted(moment for moment in bends | before_bends | even if moment <= end_seconds)
