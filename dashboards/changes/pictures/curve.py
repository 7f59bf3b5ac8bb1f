"""Curves of counts over time, scaled to a plot of 100 by 100. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.protocol import durations

#: A moment, seconds since the start, and a count.
Point = tuple[float, float]
#: Labels below the plot: at the start, at the end and between them.
_TICK_COUNT = 5


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
        return tuple(_format_tick(step * index) for index in range(_TICK_COUNT))


def _format_tick(seconds: float) -> str:
    return "0" if not seconds else durations.format_readable(_round_tick(seconds))


def _round_tick(seconds: float) -> float:
    """Return a time with few digits: labels name about when."""
    for limit, unit in ((10.0, 0.1), (120.0, 1.0), (7200.0, 60.0)):
        if seconds < limit:
            return round(seconds / unit) * unit if unit >= 1 else round(seconds, 1)
    return round(seconds / 600.0) * 600.0
