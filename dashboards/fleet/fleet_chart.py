"""The chart of Fleet now: stranded and at-risk agents in 24 h, with incidents and changes. Pure.

Times are seconds since the epoch; shares of the width are percentages, so that the page stretches the chart without
stretching text and markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dashboards.fleet.chart_lanes import BAR_LINE_HEIGHT, ChartBar, TimeAxis, place_on_lines
from dashboards.fleet.fleet_chart_words import describe_counts, describe_period, format_clock, summary_of
from dashboards.shared.rewind import AT_PARAMETER, format_at, peak_query_of
from dashboards.shared.step_lines import CountSample, StepScale, find_gaps, split_at_gaps
from fleet.protocol.durations import format_readable
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.incidents import Severity

#: Seconds that the chart shows.
CHART_SECONDS = 86_400.0
#: Coordinates of the areas: one unit per minute.
WIDTH, HEIGHT = 1440.0, 120.0
_MINUTE, _BAND, _HOUR = 60.0, 900.0, 3600.0
#: Hours between two labels of the axis, and between two labels on narrow screens.
_LABEL_HOURS, _NARROW_LABEL_HOURS = 3, 6
#: Labels nearer to an edge than this share of the width would be cut off.
_LABEL_MARGIN = 2.0
#: Seconds that the newest minute may be late before the end of the chart counts as a gap.
_MAX_DELAY = 120.0


class PeakCounts(Protocol):
    """The part of `fleet.monitoring.history.minutes.MinuteCounts` that the chart shows."""

    @property
    def at(self) -> float: ...
    @property
    def resolution(self) -> int: ...
    @property
    def stranded_peak(self) -> int: ...
    @property
    def at_risk_peak(self) -> int: ...


@dataclass(frozen=True, slots=True)
class IncidentSpan:
    """An incident that was open in the 24 h."""

    number: int
    summary: str
    severity: Severity
    opened_at: float
    #: None: still open at the end of the chart.
    resolved_at: float | None


@dataclass(frozen=True, slots=True)
class ChangeSpan:
    """A change that was carried out in the 24 h."""

    number: int
    title: str
    state: ChangeState
    started_at: float
    #: None: still in progress at the end of the chart.
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class HourTick:
    """One full hour on the axis."""

    x: float
    #: `09:00`; empty: a line without text.
    label: str
    #: Left out on narrow screens.
    is_minor: bool


@dataclass(frozen=True, slots=True)
class HourRow:
    """One hour in the table of the chart."""

    #: `2026-11-23 09:00`.
    label: str
    stranded_peak: int | None
    at_risk_peak: int | None
    #: `10 min`; empty: complete.
    gap_text: str
    #: Query of Fleet now at the moment with the most affected agents; empty without data.
    query: str


@dataclass(frozen=True, slots=True)
class FleetChart:
    """Everything that the template draws."""

    summary: str
    #: Largest number of agents on the axis; 0: a flat line.
    peak: int
    #: Points of polygons.
    stranded_areas: tuple[str, ...] = ()
    at_risk_areas: tuple[str, ...] = ()
    gaps: tuple[ChartBar, ...] = ()
    ticks: tuple[HourTick, ...] = ()
    bands: tuple[ChartBar, ...] = ()
    incidents: tuple[ChartBar, ...] = ()
    #: Height of the lane of incidents, pixels.
    lane_height: int = BAR_LINE_HEIGHT
    #: Incidents that the lane has no line for.
    undrawn_count: int = 0
    changes: tuple[ChartBar, ...] = ()
    hours: tuple[HourRow, ...] = ()
    #: Incidents and changes of the table: all of them.
    listed_incidents: tuple[ChartBar, ...] = ()

    @property
    def has_data(self) -> bool:
        """Whether there are counts of any minute."""
        return bool(self.hours)


def draw_chart(
    counts: Sequence[PeakCounts],
    incidents: Iterable[IncidentSpan],
    changes: Iterable[ChangeSpan],
    now: float,
    *,
    is_past: bool = False,
) -> FleetChart:
    """Return the chart of the 24 h up to `now`; `counts` oldest first; `is_past`: `now` is a past moment."""
    until = -(-now // _MINUTE) * _MINUTE
    since = until - CHART_SECONDS
    period = describe_period(now if is_past else None)
    counts = [row for row in counts if row.at + row.resolution > since]
    if not counts:
        return FleetChart(f"Refloat has recorded no agent counts in {period}.", 0)
    peak = max(max(row.stranded_peak, row.at_risk_peak) for row in counts)
    scale = StepScale(since, until, WIDTH, HEIGHT, max(peak, 1))
    stranded_samples, at_risk_samples = (
        _samples_of(counts, "stranded_peak"),
        _samples_of(counts, "at_risk_peak"),
    )
    axis = _Axis(since, until)
    gaps = [
        (start, end)
        for start, end in find_gaps(split_at_gaps(stranded_samples), since, until)
        if end < until or end - start > _MAX_DELAY
    ]
    incident_spans, change_spans = list(incidents), list(changes)
    table_bars = tuple(axis.incident_bar_of(incident) for incident in incident_spans)
    lane_bars, line_count = place_on_lines(
        axis.incident_bar_of(incident)
        for incident in sorted(incident_spans, key=lambda span: (span.opened_at, span.number))
    )
    return FleetChart(
        summary=summary_of(counts, period, sum(end - start for start, end in gaps), table_bars, change_spans),
        peak=peak,
        stranded_areas=scale.areas_of(stranded_samples),
        at_risk_areas=scale.areas_of(at_risk_samples),
        gaps=tuple(
            axis.bar_of(start, end, f"No data {format_clock(start)} to {format_clock(end)} UTC")
            for start, end in gaps
        ),
        ticks=tuple(_ticks_of(axis)),
        bands=tuple(_bands_of(counts, axis, now)),
        incidents=lane_bars,
        lane_height=max(line_count, 1) * BAR_LINE_HEIGHT,
        undrawn_count=len(table_bars) - len(lane_bars),
        changes=tuple(axis.change_bar_of(change) for change in change_spans),
        hours=tuple(_hour_rows_of(counts, axis, now)),
        listed_incidents=table_bars,
    )


@dataclass(frozen=True, slots=True)
class _Axis(TimeAxis):
    """The time axis with the words of incidents and changes."""

    def incident_bar_of(self, incident: IncidentSpan) -> ChartBar:
        end = self.until if incident.resolved_at is None else incident.resolved_at
        resolution = (
            "open" if incident.resolved_at is None else f"resolved {format_clock(incident.resolved_at)} UTC"
        )
        return self.visible_bar_of(
            incident.opened_at,
            end,
            f"Incident {incident.number} ({incident.severity.slug}): {incident.summary.rstrip('.')}; "
            f"opened {format_clock(incident.opened_at)} UTC, {resolution}",
            target=f"/incidents/{incident.number}/",
            tone=incident.severity.slug if incident.resolved_at is None else "resolved",
        )

    def change_bar_of(self, change: ChangeSpan) -> ChartBar:
        end = self.until if change.ended_at is None else change.ended_at
        end_text = "in progress" if change.ended_at is None else f"ended {format_clock(end)} UTC"
        return self.bar_of(
            change.started_at,
            end,
            f"Change {change.number} ({change.state.value}): {change.title.rstrip('.')}; "
            f"started {format_clock(change.started_at)} UTC, {end_text}",
            target=f"/changes/{change.number}/",
            tone=change.state.value,
        )


def _samples_of(counts: Sequence[PeakCounts], column: str) -> list[CountSample]:
    return [CountSample(row.at, row.resolution, getattr(row, column)) for row in counts]


def _ticks_of(axis: _Axis) -> Iterable[HourTick]:
    at = -(-axis.since // _HOUR) * _HOUR
    while at < axis.until:
        x, hour = axis.x_of(at), int(at // _HOUR) % 24
        has_label = hour % _LABEL_HOURS == 0 and _LABEL_MARGIN <= x <= 100 - _LABEL_MARGIN
        yield HourTick(x, f"{hour:02d}:00" if has_label else "", hour % _NARROW_LABEL_HOURS != 0)
        at += _HOUR


def _bands_of(counts: Sequence[PeakCounts], axis: _Axis, now: float) -> Iterable[ChartBar]:
    """Yield the quarters of an hour with data; each links to its minute with the most affected agents."""
    for start, rows in _group_by_start(counts, _BAND):
        end = start + _BAND
        if end <= axis.since:
            continue
        first, last = format_clock(max(start, axis.since)), format_clock(min(end, axis.until))
        title = f"{first} to {last} UTC: {describe_counts(rows)}. Open Fleet now at that time."
        yield axis.bar_of(start, end, title, target=_worst_moment_query_of(rows, now))


def _hour_rows_of(counts: Sequence[PeakCounts], axis: _Axis, now: float) -> Iterable[HourRow]:
    """Yield every hour, the newest first."""
    rows_by_hour = dict(_group_by_start(counts, _HOUR))
    hour = (axis.until - 1) // _HOUR * _HOUR
    while hour + _HOUR > axis.since:
        rows = rows_by_hour.get(hour, [])
        start, end = max(hour, axis.since), min(hour + _HOUR, axis.until)
        data_seconds = sum(min(row.at + row.resolution, end) - max(row.at, start) for row in rows)
        gap_seconds = end - start - data_seconds
        # The newest minute may be late.
        is_complete = gap_seconds <= (_MAX_DELAY if end == axis.until and rows else 0)
        yield HourRow(
            label=format_clock(hour, with_date=True),
            stranded_peak=max((row.stranded_peak for row in rows), default=None),
            at_risk_peak=max((row.at_risk_peak for row in rows), default=None),
            gap_text="" if is_complete else format_readable(gap_seconds),
            query=_worst_moment_query_of(rows, now) if rows else "",
        )
        hour -= _HOUR


def _group_by_start(counts: Sequence[PeakCounts], seconds: float) -> Iterable[tuple[float, list[PeakCounts]]]:
    groups: dict[float, list[PeakCounts]] = {}
    for row in counts:
        groups.setdefault(row.at // seconds * seconds, []).append(row)
    return groups.items()


def _worst_moment_query_of(rows: Sequence[PeakCounts], now: float) -> str:
    """Return the query of Fleet now at the moment with the most stranded agents; the server finds it in its minute."""
    worst = max(rows, key=lambda row: (row.stranded_peak, row.at_risk_peak, -row.at))
    if worst.stranded_peak or worst.at_risk_peak:
        return f"?{peak_query_of(worst.at)}"
    return f"?{AT_PARAMETER}={format_at(min(worst.at + worst.resolution, now))}"
