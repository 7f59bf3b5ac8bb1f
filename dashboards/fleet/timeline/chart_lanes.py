"""Positions on the time axis of charts, and the lines of bars that overlap. Pure.

Times are seconds since the epoch; positions are percentages of the width.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

#: Width of the narrowest bar.
MIN_BAR_WIDTH = 0.5
#: Lines of a lane; more bars at the same time are only in the table.
MAX_BAR_LINES = 4
#: Height of a line, pixels.
BAR_LINE_HEIGHT = 11


@dataclass(frozen=True, slots=True)
class ChartBar:
    """A period without data, a link to a period, an incident or a change."""

    x: float
    width: float
    title: str
    #: Line of its lane, 0 at the top, as pixels.
    y: int = 0
    #: Path below the prefix of the cluster, or the query string of a page.
    target: str = ""
    #: CSS class of the colours: `critical`, `resolved`; of a change its state.
    tone: str = ""


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Start and end of a chart, in seconds since the epoch."""

    since: float
    until: float

    def x_of(self, at: float) -> float:
        """Return the position of a time; times outside are at the edge."""
        share = (min(max(at, self.since), self.until) - self.since) / (self.until - self.since)
        return round(100 * share, 3)

    def bar_of(self, start: float, end: float, title: str, *, target: str = "", tone: str = "") -> ChartBar:
        """Return the bar of a period, as narrow as it is."""
        x = self.x_of(start)
        return ChartBar(x, round(self.x_of(end) - x, 3), title, target=target, tone=tone)

    def visible_bar_of(
        self, start: float, end: float, title: str, *, target: str = "", tone: str = ""
    ) -> ChartBar:
        """Return the bar of a period, at least MIN_BAR_WIDTH wide; at the right edge it grows to the left."""
        x = min(self.x_of(start), 100 - MIN_BAR_WIDTH)
        return ChartBar(x, max(round(self.x_of(end) - x, 3), MIN_BAR_WIDTH), title, target=target, tone=tone)


def place_on_lines(bars: Iterable[ChartBar]) -> tuple[tuple[ChartBar, ...], int]:
    """Return bars, oldest first, each on the first free line, and the number of lines; the rest is left out."""
    ends_by_line: list[float] = []
    placed_bars = []
    for bar in bars:
        line = next((line for line, end in enumerate(ends_by_line) if end <= bar.x), len(ends_by_line))
        if line == MAX_BAR_LINES:
            continue
        if line == len(ends_by_line):
            ends_by_line.append(0.0)
        ends_by_line[line] = bar.x + bar.width
        placed_bars.append(replace(bar, y=line * BAR_LINE_HEIGHT))
    return tuple(placed_bars), len(ends_by_line)
