"""The sparkline of rounds: how long each took, against the interval. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.management.data_health.facts import RoundsPart

#: Size of the picture, and most bars in it.
WIDTH, HEIGHT, MAX_BARS = 360, 56, 120
_HOUR_SECONDS = 3600.0
#: Height of the shortest bar: a round of some milliseconds is a round.
_MIN_HEIGHT = 1.5


@dataclass(frozen=True, slots=True)
class RoundBar:
    """The longest round of a stretch of time."""

    x: float
    y: float
    width: float
    height: float
    is_late: bool


@dataclass(frozen=True, slots=True)
class RoundChart:
    """Rounds of the last hour, or of the shorter time that is known."""

    bars: tuple[RoundBar, ...]
    #: Height of the line of the interval.
    interval_y: float
    #: Seconds that the picture covers.
    seconds: float
    count: int
    late_count: int
    incomplete_count: int
    rounds_per_minute: float
    longest_seconds: float
    median_seconds: float


def make_chart(part: RoundsPart, now: float) -> RoundChart | None:
    """Return the chart; None without rounds. Stretches of time without a round stay empty."""
    if not part.rounds:
        return None
    span = min(_HOUR_SECONDS, max(now - part.rounds[-1].started_at, part.interval * 10))
    durations = sorted(entry.seconds for entry in part.rounds)
    scale = max(durations[-1], part.interval * 1.25)
    bar_seconds, width = span / MAX_BARS, WIDTH / MAX_BARS
    longest: dict[int, float] = {}
    for entry in part.rounds:
        position = MAX_BARS - 1 - int((now - entry.ended_at) / bar_seconds)
        if 0 <= position < MAX_BARS:
            longest[position] = max(longest.get(position, 0.0), entry.seconds)
    bars = [
        _make_bar(position * width, width, seconds / scale * HEIGHT, is_late=seconds > part.interval)
        for position, seconds in sorted(longest.items())
    ]
    last_minute = sum(now - entry.ended_at <= 60.0 for entry in part.rounds)
    return RoundChart(
        bars=tuple(bars),
        interval_y=round(HEIGHT - part.interval / scale * HEIGHT, 1),
        seconds=span,
        count=len(durations),
        late_count=sum(seconds > part.interval for seconds in durations),
        incomplete_count=sum(not entry.is_complete for entry in part.rounds),
        rounds_per_minute=float(last_minute),
        longest_seconds=durations[-1],
        median_seconds=durations[len(durations) // 2],
    )


def _make_bar(x: float, width: float, height: float, *, is_late: bool) -> RoundBar:
    height = max(_MIN_HEIGHT, min(height, HEIGHT))
    return RoundBar(round(x, 2), round(HEIGHT - height, 1), round(width * 0.75, 2), round(height, 1), is_late)
