"""Counts over time as stepped lines for SVG. Pure.

A count holds from its start for its duration; between two counts that do not touch there is no data, and no line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CountSample:
    """A count that holds for some seconds."""

    #: Start, seconds since the epoch.
    at: float
    duration: float
    count: int

    @property
    def end(self) -> float:
        """End, seconds since the epoch."""
        return self.at + self.duration


@dataclass(frozen=True, slots=True)
class StepScale:
    """How times and counts become coordinates: `since` is at the left, a count of 0 at the bottom."""

    since: float
    until: float
    width: float
    height: float
    #: Count at the top, at least 1.
    peak: int

    def x_of(self, at: float) -> str:
        """Return the abscissa of a time; times outside are at the edge."""
        share = (min(max(at, self.since), self.until) - self.since) / (self.until - self.since)
        return _format(share * self.width)

    def y_of(self, count: int) -> str:
        """Return the ordinate of a count. Half a unit at both edges is left for the line's own width."""
        return _format(self.height - 0.5 - min(count, self.peak) / self.peak * (self.height - 1))

    def line_of(self, run: Sequence[CountSample]) -> str:
        """Return the points of the polyline of samples that touch: one corner pair for each change of the count."""
        points: list[str] = []
        y = ""
        for sample in run:
            new_y = self.y_of(sample.count)
            if new_y != y:
                x = self.x_of(sample.at)
                points += [f"{x},{y}", f"{x},{new_y}"] if y else [f"{x},{new_y}"]
            y = new_y
        return " ".join([*points, f"{self.x_of(run[-1].end)},{y}"])

    def areas_of(self, samples: Iterable[CountSample]) -> tuple[str, ...]:
        """Return the points of a polygon for each run of samples above 0."""
        bottom = _format(self.height)
        return tuple(
            f"{self.x_of(run[0].at)},{bottom} {self.line_of(run)} {self.x_of(run[-1].end)},{bottom}"
            for run in split_at_gaps(sample for sample in samples if sample.count)
        )


def split_at_gaps(samples: Iterable[CountSample]) -> list[list[CountSample]]:
    """Return samples, oldest first, in runs without a gap."""
    runs: list[list[CountSample]] = []
    for sample in samples:
        if runs and sample.at <= runs[-1][-1].end:
            runs[-1].append(sample)
        else:
            runs.append([sample])
    return runs


def _format(coordinate: float) -> str:
    return f"{coordinate:.1f}".removesuffix(".0")
