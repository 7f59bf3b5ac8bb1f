"""The words of the charts of Fleet now and History. Pure; times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fleet.models.moments import to_moment
from fleet.protocol.durations import format_readable


class StatePeaks(Protocol):
    """Maximum numbers of agents in a period that begins at `at`, seconds since the epoch."""

    @property
    def at(self) -> float: ...
    @property
    def stranded_peak(self) -> int: ...
    @property
    def at_risk_peak(self) -> int: ...


@dataclass(frozen=True, slots=True)
class EventCounts:
    """Numbers of markers in a chart."""

    incidents: int = 0
    #: Changes that were carried out.
    changes: int = 0
    #: Networking configs of other programs, version changes, drains and deregistrations.
    other_events: int = 0


def format_minute(at: float) -> str:
    """Return a time in UTC, to the minute: `2026-11-23 10:14`."""
    return f"{to_moment(at):%Y-%m-%d %H:%M}"


def format_clock(at: float) -> str:
    """Return the time of day in UTC, to the minute: `10:14`."""
    return f"{to_moment(at):%H:%M}"


def format_span(start: float, end: float) -> str:
    """Return a period to the minute: `2026-11-23 10:14 to 10:19 UTC`."""
    is_same_day = to_moment(start).date() == to_moment(end).date()
    return f"{format_minute(start)} to {format_clock(end) if is_same_day else format_minute(end)} UTC"


def describe_period(past_at: float | None) -> str:
    """Return the period of the chart; `past_at`: its end, None for the present."""
    return "the last 24 h" if past_at is None else f"the 24 h before {format_minute(past_at)} UTC"


def describe_counts(rows: Sequence[StatePeaks]) -> str:
    """Return the maxima of a period: `12 stranded and 3 at risk at most`."""
    stranded_peak, at_risk_peak = (
        max(row.stranded_peak for row in rows),
        max(row.at_risk_peak for row in rows),
    )
    if not stranded_peak and not at_risk_peak:
        return "no agent stranded or at risk"
    return f"{stranded_peak:,} stranded and {at_risk_peak:,} at risk at most"


def summary_of(
    rows: Sequence[StatePeaks],
    period: str,
    gap_seconds: float,
    event_counts: EventCounts,
    *,
    with_dates: bool,
) -> str:
    """Return the chart in words: its peaks, how much data is missing, and the numbers of incidents, changes and events.

    `with_dates`: the period may be longer than a day.
    """
    format_time = format_minute if with_dates else format_clock
    peaks = [
        f"{_count_agents(getattr(worst, column))} {state} (first at {format_time(worst.at)} UTC)"
        for column, state in (("stranded_peak", "stranded"), ("at_risk_peak", "at risk"))
        for worst in [max(rows, key=lambda row: (getattr(row, column), -row.at))]
        if getattr(worst, column)
    ]
    sentence = (
        f"Peaks in {period}: {', '.join(peaks)}."
        if peaks
        else f"No agent was stranded or at risk in {'the recorded part of ' if gap_seconds else ''}{period}."
    )
    if gap_seconds:
        sentence += f" No data for {format_readable(gap_seconds)}."
    numbers = [
        f"{count:,} {noun}{'' if count == 1 else 's'}"
        for noun, count in (
            ("incident", event_counts.incidents),
            ("change", event_counts.changes),
            ("other event", event_counts.other_events),
        )
        if count
    ]
    *first_numbers, last_number = numbers or [""]
    numbers_text = f"{', '.join(first_numbers)} and {last_number}" if first_numbers else last_number
    return f"{sentence} {numbers_text}." if numbers_text else sentence


def _count_agents(count: int) -> str:
    return f"{count:,} agent{'' if count == 1 else 's'}"
