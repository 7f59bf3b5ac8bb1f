"""The chart of Fleet now and History: stranded and at-risk agents over time, with incidents and changes. Pure.

Times are seconds since the epoch; positions are percentages of the width, so that the page stretches the chart without
stretching text and markers. Pages draw it without a script; on History, plotly draws `plot_data_of` over it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dashboards.fleet.replay_markers import Marker
from dashboards.fleet.timeline.buckets import (
    NO_DATA,
    Buckets,
    Moments,
    Numbers,
    find_first_maxima,
    find_gaps,
    split_range,
)
from dashboards.fleet.timeline.chart_lanes import BAR_LINE_HEIGHT, ChartBar, TimeAxis, place_on_lines
from dashboards.fleet.timeline.chart_words import (
    EventCounts,
    describe_counts,
    format_clock,
    format_minute,
    format_span,
    summary_of,
)
from dashboards.shared.rewind import peak_query_of
from dashboards.shared.step_lines import CountSample, StepScale
from fleet.models.moments import to_moment
from fleet.monitoring.history.minute_columns import MAX_ROW_DELAY, CountColumns
from fleet.protocol.durations import format_readable

#: Width of the areas in their coordinates: in a chart of 24 h, one unit per minute.
WIDTH = 1440.0
#: Most rows of the table, and most parts of the drawing that are links: of 24 h, hours and quarters of an hour, also if
#: the first one is not complete.
MAX_ROWS, MAX_LINKS = 47, 97
#: Most labels of the time axis.
_MAX_LABELS = 10
_TICK_STEPS = (
    60,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10_800,
    21_600,
    43_200,
    86_400,
    172_800,
    604_800,
    1_209_600,
)
_LONGEST_TICK_STEP = 2_419_200
#: Labels nearer to an edge than this share of the width would be cut off, on wide and on narrow screens.
_LABEL_MARGIN, _NARROW_LABEL_MARGIN = 2.5, 6.0
_DAY = 86_400
#: Digits of the order of peaks: the number of stranded agents comes first.
_AT_RISK_BITS = 32


@dataclass(frozen=True, slots=True)
class TimeTick:
    """One label of the time axis."""

    x: float
    #: `09:00`, or `Nov 23`; empty: a line without text.
    label: str
    #: Left out on narrow screens.
    is_minor: bool


@dataclass(frozen=True, slots=True)
class PresentPoint:
    """The point at which an area ends: a number of agents now."""

    #: CSS class: `stranded` or `at_risk`.
    state: str
    #: Position in percent of the width, and in pixels.
    x: float
    y: str
    title: str


@dataclass(frozen=True, slots=True)
class PeriodRow:
    """One period in the table of the chart."""

    #: Start: `2026-11-23 09:00`.
    label: str
    stranded_peak: int | None
    at_risk_peak: int | None
    #: `10 min`; empty: complete.
    gap_text: str
    #: Query string of a page at the moment with the most affected agents; empty without data.
    query: str


@dataclass(frozen=True, slots=True)
class BucketPeaks:
    """Maxima of each bucket, NO_DATA without counts."""

    stranded_counts: Numbers
    at_risk_counts: Numbers
    #: Start of the counts with the most affected agents.
    starts: Moments


@dataclass(frozen=True, slots=True)
class HistoryChart:
    """Everything that the template draws."""

    summary: str
    #: Largest number of agents on the axis; 0: a flat line.
    peak: int
    #: Start of the counts with the most affected agents; None without data.
    worst_start: float | None
    #: Height of the drawing, pixels.
    height: int
    #: Length of a period of the table: `30 min`.
    period_text: str
    #: Points of polygons.
    stranded_areas: tuple[str, ...]
    at_risk_areas: tuple[str, ...]
    #: Points at the end of the areas; only with the counts of the newest round.
    present_points: tuple[PresentPoint, ...]
    gaps: tuple[ChartBar, ...]
    ticks: tuple[TimeTick, ...]
    #: Periods with data; the target of each is the query string of a page at its moment with the most affected agents.
    bands: tuple[ChartBar, ...]
    incidents: tuple[ChartBar, ...]
    #: Height of the lane of incidents, pixels.
    lane_height: int
    #: Incidents that the lane has no line for.
    undrawn_count: int
    #: Changes, and other events where the chart has some.
    changes: tuple[ChartBar, ...]
    #: Lists of the table, newest first: all incidents, the changes that were carried out, and other events.
    listed_incidents: tuple[ChartBar, ...]
    listed_changes: tuple[ChartBar, ...]
    listed_events: tuple[ChartBar, ...]
    rows: tuple[PeriodRow, ...]
    peaks: BucketPeaks

    @property
    def has_data(self) -> bool:
        """Return whether there are any counts."""
        return self.worst_start is not None


@dataclass(frozen=True, slots=True)
class _Period:
    """Maxima of a period."""

    at: float
    stranded_peak: int
    at_risk_peak: int


def draw_history(
    counts: CountColumns,
    buckets: Buckets,
    incidents: Sequence[Marker],
    changes: Sequence[Marker],
    *,
    height: int = 180,
    period: str = "this range",
    with_dates: bool = True,
    has_present: bool = False,
) -> HistoryChart:
    """Return the chart of the time range of `buckets`; counts and markers oldest first.

    height: of the drawing, pixels; period: the time range in the words of the summary; with_dates: whether times in the
    summary have a date; has_present: the last counts are those of the newest round.
    """
    axis = TimeAxis(buckets.since, buckets.until)
    gaps = [
        (start, end)
        for start, end in find_gaps(counts.starts, counts.ends, buckets.since, buckets.until, 1.0)
        # The newest minute may be late.
        if end < buckets.until or end - start > MAX_ROW_DELAY
    ]
    peaks = _find_peaks(counts, buckets)
    peak = max(int(peaks.stranded_counts.max(initial=0)), int(peaks.at_risk_counts.max(initial=0)))
    scale = StepScale(buckets.since, buckets.until, WIDTH, height, max(peak, 1))
    incident_bars = tuple(_incident_bar_of(incident, axis) for incident in incidents)
    lane_bars, line_count = place_on_lines(incident_bars)
    listed_changes, listed_events = (
        tuple(_change_bar_of(change, axis) for change in reversed(changes) if change.is_change is is_change)
        for is_change in (True, False)
    )
    row_periods = split_range(buckets.since, buckets.until, MAX_ROWS)
    return HistoryChart(
        summary=f"Refloat has recorded no agent counts in {period}."
        if not len(counts.starts)
        else summary_of(
            _list_worst_periods(counts),
            period,
            sum(end - start for start, end in gaps),
            EventCounts(len(incidents), len(listed_changes), len(listed_events)),
            with_dates=with_dates,
        ),
        peak=peak,
        worst_start=_find_worst_start(counts),
        height=height,
        period_text=format_readable(row_periods.step),
        stranded_areas=scale.areas_of(_samples_of(buckets, peaks.stranded_counts)),
        at_risk_areas=scale.areas_of(_samples_of(buckets, peaks.at_risk_counts)),
        present_points=tuple(_present_points_of(counts, axis, scale)) if has_present else (),
        gaps=tuple(axis.bar_of(start, end, f"No data from {format_span(start, end)}") for start, end in gaps),
        ticks=tuple(ticks_of(axis)),
        bands=tuple(_bands_of(counts, axis)),
        incidents=lane_bars,
        lane_height=max(line_count, 1) * BAR_LINE_HEIGHT,
        undrawn_count=len(incident_bars) - len(lane_bars),
        changes=tuple(_change_bar_of(change, axis) for change in changes),
        listed_incidents=incident_bars[::-1],
        listed_changes=listed_changes,
        listed_events=listed_events,
        rows=tuple(_rows_of(counts, row_periods, axis, gaps))[::-1],
        peaks=peaks,
    )


def plot_data_of(chart: HistoryChart) -> dict[str, Any]:
    """Return the chart for its script, by bucket.

    `stranded` and `at_risk`: maxima, null without data; `peak_starts`: start of the counts with the most affected
    agents, milliseconds since the epoch.
    """
    peaks = chart.peaks
    return {
        "stranded": [None if count == NO_DATA else count for count in peaks.stranded_counts.tolist()],
        "at_risk": [None if count == NO_DATA else count for count in peaks.at_risk_counts.tolist()],
        "peak_starts": np.round(peaks.starts * 1000).astype(np.int64).tolist(),
    }


def range_as_json(buckets: Buckets) -> dict[str, int]:
    """Return a time range for a script, in milliseconds since the epoch."""
    return {
        "since": round(buckets.since * 1000),
        "until": round(buckets.until * 1000),
        "step": round(buckets.step * 1000),
    }


def _ranks_of(counts: CountColumns) -> Numbers:
    """Return a number for each row, larger for more affected agents."""
    ranks: Numbers = (counts.stranded_peaks << _AT_RISK_BITS) + counts.at_risk_peaks
    return ranks


def _find_peaks(counts: CountColumns, buckets: Buckets) -> BucketPeaks:
    rows, cells = buckets.spread(counts.starts, counts.ends)
    starts = counts.starts[rows]
    stranded_peaks, _ = find_first_maxima(cells, counts.stranded_peaks[rows], starts, buckets.count)
    at_risk_peaks, _ = find_first_maxima(cells, counts.at_risk_peaks[rows], starts, buckets.count)
    _, worst_starts = find_first_maxima(cells, _ranks_of(counts)[rows], starts, buckets.count)
    return BucketPeaks(stranded_peaks, at_risk_peaks, worst_starts)


def _find_worst_start(counts: CountColumns) -> float | None:
    return float(counts.starts[int(np.argmax(_ranks_of(counts)))]) if len(counts.starts) else None


def _samples_of(buckets: Buckets, maxima: Numbers) -> list[CountSample]:
    return [
        CountSample(start, end - start, count)
        for start, end, count in zip(
            buckets.starts.tolist(), buckets.ends.tolist(), maxima.tolist(), strict=True
        )
        if count != NO_DATA
    ]


def _present_points_of(counts: CountColumns, axis: TimeAxis, scale: StepScale) -> Iterable[PresentPoint]:
    """Yield the points at which the areas end; an area of 0 agents has none."""
    x, clock = axis.x_of(float(counts.ends[-1])), format_clock(float(counts.starts[-1]))
    for state, label, peaks in (
        ("stranded", "stranded", counts.stranded_peaks),
        ("at_risk", "at risk", counts.at_risk_peaks),
    ):
        if count := int(peaks[-1]):
            yield PresentPoint(state, x, scale.y_of(count), f"{count:,} {label} at {clock} UTC")


def _incident_bar_of(incident: Marker, axis: TimeAxis) -> ChartBar:
    end_text = "open" if incident.end is None else f"resolved {format_minute(incident.end)} UTC"
    return axis.visible_bar_of(
        incident.start,
        axis.until if incident.end is None else incident.end,
        f"{incident.title} ({incident.severity}); opened {format_minute(incident.start)} UTC, {end_text}",
        target=incident.path,
        tone=incident.severity if incident.end is None else "resolved",
    )


def _change_bar_of(change: Marker, axis: TimeAxis) -> ChartBar:
    if change.end is None:
        end, period = axis.until, f"{format_minute(change.start)} UTC, in progress"
    elif change.end == change.start:
        end, period = change.end, f"{format_minute(change.start)} UTC"
    else:
        end, period = change.end, format_span(change.start, change.end)
    state = f" ({change.state})" if change.state else ""
    return axis.bar_of(
        change.start, end, f"{change.title}{state}; {period}", target=change.path, tone=change.state
    )


def ticks_of(axis: TimeAxis) -> Iterable[TimeTick]:
    """Yield the labels of a time axis: times of day, and the date at midnight."""
    seconds = axis.until - axis.since
    step = next((step for step in _TICK_STEPS if seconds / step <= _MAX_LABELS), _LONGEST_TICK_STEP)
    at = -(-axis.since // step) * step
    while at < axis.until:
        x, moment = axis.x_of(at), to_moment(at)
        label = f"{moment:%b} {moment.day}" if at % _DAY == 0 else f"{moment:%H:%M}"
        distance = min(x, 100 - x)
        yield TimeTick(
            x,
            label if distance >= _LABEL_MARGIN else "",
            int(at // step) % 2 == 1 or distance < _NARROW_LABEL_MARGIN,
        )
        at += step


def _bands_of(counts: CountColumns, axis: TimeAxis) -> Iterable[ChartBar]:
    """Yield the links of the drawing."""
    periods = split_range(axis.since, axis.until, MAX_LINKS)
    peaks = _find_peaks(counts, periods)
    for position in np.flatnonzero(peaks.stranded_counts != NO_DATA).tolist():
        start, end = max(float(periods.starts[position]), axis.since), float(periods.ends[position])
        period = _period_at(position, start, peaks)
        title = f"{format_span(start, end)}: {describe_counts([period])}."
        yield axis.bar_of(start, end, title, target=peak_query_of(float(peaks.starts[position])))


def _rows_of(
    counts: CountColumns, periods: Buckets, axis: TimeAxis, gaps: Sequence[tuple[float, float]]
) -> Iterable[PeriodRow]:
    """Yield the rows of the table, the oldest first."""
    peaks = _find_peaks(counts, periods)
    for position in range(periods.count):
        start, end = max(float(periods.starts[position]), axis.since), float(periods.ends[position])
        if end <= axis.since:
            continue
        gap_seconds = sum(max(0.0, min(end, gap[1]) - max(start, gap[0])) for gap in gaps)
        label = format_minute(start)
        gap_text = format_readable(gap_seconds) if gap_seconds else ""
        if peaks.stranded_counts[position] == NO_DATA:
            yield PeriodRow(label, None, None, gap_text or format_readable(end - start), "")
            continue
        period = _period_at(position, start, peaks)
        query = peak_query_of(float(peaks.starts[position]))
        yield PeriodRow(label, period.stranded_peak, period.at_risk_peak, gap_text, query)


def _period_at(position: int, start: float, peaks: BucketPeaks) -> _Period:
    return _Period(start, int(peaks.stranded_counts[position]), int(peaks.at_risk_counts[position]))


def _list_worst_periods(counts: CountColumns) -> list[_Period]:
    """Return the first rows with the most stranded and with the most at-risk agents."""
    worst_rows = {int(np.argmax(peaks)) for peaks in (counts.stranded_peaks, counts.at_risk_peaks)}
    return [
        _Period(float(counts.starts[row]), int(counts.stranded_peaks[row]), int(counts.at_risk_peaks[row]))
        for row in sorted(worst_rows)
    ]
