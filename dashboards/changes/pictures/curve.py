"""Curves of counts over time, scaled to a plot of 100 by 100. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.protocol import durations

#: A moment, seconds since the start, and a count.
Point = tuple[float, float]
#: Labels below the plot: at the start, at the end and between them.
_TICK_COUNT = 5
_DAY = 86400.0
#: Seconds between two labels; beyond them whole days.
_STEPS = (
    *(0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0),
    *(60.0 * minutes for minutes in (1, 2, 5, 10, 15, 20, 30)),
    *(3600.0 * hours for hours in (1, 2, 3, 6, 12, 24)),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """The duration and the largest count of a plot, both more than 0."""

    seconds: float
    count: float

    def x(self, seconds: float) -> float:
        """Return the horizontal place of a moment, 0 to 100."""
        return round(100 * min(max(seconds / self.seconds, 0.0), 1.0), 2)

    def y(self, count: float) -> float:
        """Return the vertical place of a count, 100 (none) to 0 (the largest)."""
        return round(100 - 100 * min(max(count / self.count, 0.0), 1.0), 2)

    def line(self, points: Iterable[Point]) -> str:
        """Return points as the `points` of a polyline."""
        return " ".join(f"{self.x(seconds):g},{self.y(count):g}" for seconds, count in points)

    def steps(self, points: Sequence[Point], end_seconds: float) -> str:
        """Return counts that hold until the next point, as the `points` of a polyline up to `end_seconds`."""
        corners: list[Point] = []
        for seconds, count in points:
            if corners:
                corners.append((seconds, corners[-1][1]))
            corners.append((seconds, count))
        if corners and end_seconds > corners[-1][0]:
            corners.append((end_seconds, corners[-1][1]))
        return self.line(corners)

    @property
    def tick_labels(self) -> tuple[str, ...]:
        """The labels of the time axis, evenly spaced."""
        step = self.seconds / (_TICK_COUNT - 1)
        return ("0", *(durations.format_readable(step * index) for index in range(1, _TICK_COUNT)))


def cover(seconds: float, count: float) -> Scale:
    """Return the scale of a plot of at least so many seconds, whose labels are at times that a person reads."""
    exact_step = seconds / (_TICK_COUNT - 1)
    step = next((step for step in _STEPS if step >= exact_step), math.ceil(exact_step / _DAY) * _DAY)
    return Scale(step * (_TICK_COUNT - 1), count)
