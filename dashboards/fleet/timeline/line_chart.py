"""The chart of the History page: stranded and at-risk agents over time, with incidents and changes. Pure.

Times are seconds since the epoch; positions are percentages of the width. The page draws it without a script; plotly
draws `data` over it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dashboards.fleet.chart_lanes import BAR_LINE_HEIGHT, ChartBar, TimeAxis, place_on_lines
from dashboards.fleet.fleet_chart_words import describe_counts, summary_of
from dashboards.fleet.replay_markers import Marker
from dashboards.fleet.timeline.buckets import NO_DATA, Buckets, find_first_maxima, find_gaps, split_range
from dashboards.shared.rewind import format_at
from dashboards.shared.step_lines import CountSample, StepScale
from fleet.models.moments import to_moment
from fleet.monitoring.history.minute_columns import CountColumns
from fleet.protocol.durations import format_readable

#: Coordinates of the areas.
WIDTH, HEIGHT = 1440.0, 180.0
#: Most rows of the table, and most parts of the drawing that are links.
MAX_ROWS = 48
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
#: Labels nearer to an edge than this share of the width would be cut off.
_LABEL_MARGIN = 2.5
_DAY = 86_400
#: Seconds that the newest minute may be late before the end of the chart counts as a gap.
_MAX_DELAY = 120.0
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
class PeriodRow:
    """One period in the table of the chart."""

    #: Start: `2026-11-23 09:00`.
    label: str
    stranded_peak: int | None
    at_risk_peak: int | None
    #: `10 min`; empty: complete.
    gap_text: str
    #: Moment of `?at=` with the most affected agents; empty without data.
    at_text: str


@dataclass(frozen=True, slots=True)
class HistoryChart:
    """Everything that the template draws."""

    summary: str
    #: Largest number of agents on the axis; 0: a flat line.
    peak: int
    #: Moment with the most affected agents; None without data.
    worst_at: float | None
    #: Length of a period of the table: `30 min`.
    period_text: str
    #: Points of polygons.
    stranded_areas: tuple[str, ...]
    at_risk_areas: tuple[str, ...]
    gaps: tuple[ChartBar, ...]
    ticks: tuple[TimeTick, ...]
    #: Periods with data; each links to its moment with the most affected agents.
    bands: tuple[ChartBar, ...]
    incidents: tuple[ChartBar, ...]
    #: Height of the lane of incidents, pixels.
    lane_height: int
    #: Incidents that the lane has no line for.
    undrawn_count: int
    changes: tuple[ChartBar, ...]
    #: Incidents of the table: all of them.
    listed_incidents: tuple[ChartBar, ...]
    rows: tuple[PeriodRow, ...]
    #: For the script: `since`, `until` and `step` in milliseconds; by bucket `stranded` and `at_risk` (null: no data)
    #: and `moments` (milliseconds since the epoch) with the most affected agents.
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Period:
    """Maxima of a part of the chart."""

    at: float
    stranded_peak: int
    at_risk_peak: int


def draw_history(
    counts: CountColumns,
    buckets: Buckets,
    incidents: Sequence[Marker],
    changes: Sequence[Marker],
    now: float,
) -> HistoryChart:
    """Return the chart of the time range of `buckets`; counts and markers oldest first."""
    axis = TimeAxis(buckets.since, buckets.until)
    gaps = [
        (start, end)
        for start, end in find_gaps(counts.starts, counts.ends, buckets.since, buckets.until, 1.0)
        # The newest minute may be late.
        if end < buckets.until or end - start > _MAX_DELAY
    ]
    stranded_peaks, at_risk_peaks, moments = _find_peaks(counts, buckets, now)
    peak = max(int(stranded_peaks.max(initial=0)), int(at_risk_peaks.max(initial=0)))
    scale = StepScale(buckets.since, buckets.until, WIDTH, HEIGHT, max(peak, 1))
    incident_bars = tuple(_incident_bar_of(incident, axis) for incident in incidents)
    lane_bars, line_count = place_on_lines(incident_bars)
    rows, bands = _list_periods(counts, buckets, axis, gaps, now)
    return HistoryChart(
        summary=_describe(counts, buckets, gaps, incidents, changes),
        peak=peak,
        worst_at=_find_worst_moment(counts, now),
        period_text=format_readable(_periods_of(buckets).step),
        stranded_areas=scale.areas_of(_samples_of(buckets, stranded_peaks)),
        at_risk_areas=scale.areas_of(_samples_of(buckets, at_risk_peaks)),
        gaps=tuple(
            axis.bar_of(start, end, f"No data from {format_minute(start)} to {format_minute(end)} UTC")
            for start, end in gaps
        ),
        ticks=tuple(ticks_of(axis)),
        bands=bands,
        incidents=lane_bars,
        lane_height=max(line_count, 1) * BAR_LINE_HEIGHT,
        undrawn_count=len(incident_bars) - len(lane_bars),
        changes=tuple(_change_bar_of(change, axis) for change in changes),
        listed_incidents=incident_bars[::-1],
        rows=rows,
        data={
            **range_as_json(buckets),
            "stranded": [None if count == NO_DATA else count for count in stranded_peaks.tolist()],
            "at_risk": [None if count == NO_DATA else count for count in at_risk_peaks.tolist()],
            "moments": np.round(moments * 1000).astype(np.int64).tolist(),
        },
    )


def range_as_json(buckets: Buckets) -> dict[str, int]:
    """Return a time range for a script, in milliseconds since the epoch."""
    return {
        "since": round(buckets.since * 1000),
        "until": round(buckets.until * 1000),
        "step": round(buckets.step * 1000),
    }


def format_minute(at: float) -> str:
    """Return a time in UTC, to the minute: `2026-11-23 10:14`."""
    return f"{to_moment(at):%Y-%m-%d %H:%M}"


def _find_peaks(counts: CountColumns, buckets: Buckets, now: float) -> tuple[Any, Any, Any]:
    """Return the maxima of stranded and of at-risk agents in each bucket, and the moment of the worse one."""
    rows, cells = buckets.spread(counts.starts, counts.ends)
    ends = np.minimum(counts.ends, now)
    moments = np.minimum(ends[rows], buckets.ends[cells])
    stranded_peaks, _ = find_first_maxima(cells, counts.stranded_peaks[rows], moments, buckets.count)
    at_risk_peaks, _ = find_first_maxima(cells, counts.at_risk_peaks[rows], moments, buckets.count)
    ranks = (counts.stranded_peaks[rows] << _AT_RISK_BITS) + counts.at_risk_peaks[rows]
    # At the start of a minute its agents may not be stranded yet: the moment is its end.
    _, worst_moments = find_first_maxima(cells, ranks, moments, buckets.count)
    return stranded_peaks, at_risk_peaks, worst_moments


def _find_worst_moment(counts: CountColumns, now: float) -> float | None:
    if not len(counts.starts):
        return None
    ranks = (counts.stranded_peaks << _AT_RISK_BITS) + counts.at_risk_peaks
    return float(min(counts.ends[int(np.argmax(ranks))], now))


def _samples_of(buckets: Buckets, maxima: Any) -> list[CountSample]:
    return [
        CountSample(start, end - start, count)
        for start, end, count in zip(
            buckets.starts.tolist(), buckets.ends.tolist(), maxima.tolist(), strict=True
        )
        if count != NO_DATA
    ]


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
    end_text = (
        ", in progress"
        if change.end is None
        else ""
        if change.end == change.start
        else f" to {format_minute(change.end)} UTC"
    )
    end = axis.until if change.end is None else change.end
    title = f"{change.title}; {format_minute(change.start)} UTC{end_text}"
    return axis.bar_of(change.start, end, title, target=change.path)


def ticks_of(axis: TimeAxis) -> Iterable[TimeTick]:
    """Yield the labels of a time axis: times of day, and the date at midnight."""
    seconds = axis.until - axis.since
    step = next((step for step in _TICK_STEPS if seconds / step <= _MAX_LABELS), _LONGEST_TICK_STEP)
    at = -(-axis.since // step) * step
    while at < axis.until:
        x, moment = axis.x_of(at), to_moment(at)
        label = f"{moment:%b} {moment.day}" if at % _DAY == 0 else f"{moment:%H:%M}"
        yield TimeTick(
            x, label if _LABEL_MARGIN <= x <= 100 - _LABEL_MARGIN else "", int(at // step) % 2 == 1
        )
        at += step


def _periods_of(buckets: Buckets) -> Buckets:
    return split_range(buckets.since, buckets.until, MAX_ROWS)


def _list_periods(
    counts: CountColumns,
    buckets: Buckets,
    axis: TimeAxis,
    gaps: Sequence[tuple[float, float]],
    now: float,
) -> tuple[tuple[PeriodRow, ...], tuple[ChartBar, ...]]:
    """Return the table, the newest period first, and the links of the drawing."""
    periods = _periods_of(buckets)
    stranded_peaks, at_risk_peaks, moments = _find_peaks(counts, periods, now)
    rows, bands = [], []
    for position in range(periods.count):
        start, end = max(float(periods.starts[position]), axis.since), float(periods.ends[position])
        if end <= axis.since:
            continue
        gap_seconds = sum(max(0.0, min(end, gap[1]) - max(start, gap[0])) for gap in gaps)
        label = format_minute(start)
        gap_text = format_readable(gap_seconds) if gap_seconds else ""
        if stranded_peaks[position] == NO_DATA:
            rows.append(PeriodRow(label, None, None, gap_text or format_readable(end - start), ""))
            continue
        period = _Period(start, int(stranded_peaks[position]), int(at_risk_peaks[position]))
        at_text = format_at(float(moments[position]))
        rows.append(PeriodRow(label, period.stranded_peak, period.at_risk_peak, gap_text, at_text))
        title = (
            f"{label} to {format_minute(end)} UTC: {describe_counts([period])}. Open the map at that time."
        )
        bands.append(axis.bar_of(start, end, title, target=at_text))
    return tuple(rows[::-1]), tuple(bands)


def _describe(
    counts: CountColumns,
    buckets: Buckets,
    gaps: Sequence[tuple[float, float]],
    incidents: Sequence[Marker],
    changes: Sequence[Marker],
) -> str:
    period = "this range"
    if not len(counts.starts):
        return f"Refloat has recorded no agent counts in {period}."
    worst_rows = {int(np.argmax(peaks)) for peaks in (counts.stranded_peaks, counts.at_risk_peaks)}
    rows = [
        _Period(float(counts.starts[row]), int(counts.stranded_peaks[row]), int(counts.at_risk_peaks[row]))
        for row in sorted(worst_rows)
    ]
    gap_seconds = sum(end - start for start, end in gaps)
    return summary_of(rows, period, gap_seconds, incidents, changes, with_date=True)
