"""The last 24 h of one instance: its state, destination health, drains and agents, on one time axis. Pure.

Times are seconds since the epoch; positions are percentages of the width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Protocol

import numpy as np

from dashboards.fleet.timeline.buckets import find_gaps
from dashboards.fleet.timeline.chart_lanes import ChartBar, TimeAxis
from dashboards.fleet.timeline.chart_words import format_span
from dashboards.fleet.timeline.line_chart import WIDTH, TimeTick, ticks_of
from dashboards.shared.step_lines import CountSample, StepScale, split_at_gaps
from fleet.monitoring.history.minute_columns import MAX_ROW_DELAY, GroupColumns
from fleet.monitoring.state.outbox import GroupKind
from fleet.protocol.destination.health import Health
from fleet.protocol.durations import format_readable
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import State

#: Seconds that the chart shows at most, and those that it shows of a younger history.
DAY = 86_400.0
_SHORTER_RANGES = (3600.0, 21_600.0)
#: Height of the drawing of agents, pixels.
AGENTS_HEIGHT = 72
#: A shorter time without a state is the time until the first poll.
_MIN_UNKNOWN_SECONDS = 60.0
#: States of the agents that the area counts.
_AFFECTED_STATES = (State.STRANDED, State.AT_RISK)
#: CSS classes of the lanes.
_HEALTH_CLASSES = {
    Health.HEALTHY.value: "state-healthy",
    Health.DEGRADED.value: "state-degraded",
    Health.UNHEALTHY.value: "state-at_risk",
    Health.UNKNOWN.value: "state-unknown",
}
_QUIET_CLASSES = frozenset({"instance-ok", "state-healthy"})
_STATES = {state.slug: state for state in InstanceState}


class InstanceChangeRow(Protocol):
    """The part of an InstanceChange that the lanes are made from."""

    @property
    def at(self) -> float: ...
    @property
    def new(self) -> str: ...
    @property
    def health(self) -> str: ...
    @property
    def is_draining(self) -> bool | None: ...


@dataclass(frozen=True, slots=True)
class LanePeriod:
    """A period in which the instance was in one state."""

    start: float
    end: float
    #: `not responding`, `degraded`, `draining`.
    label: str
    bar: ChartBar
    #: A thin line: nothing is wrong.
    is_quiet: bool


@dataclass(frozen=True, slots=True)
class Lane:
    """One row of the chart."""

    name: str
    periods: tuple[LanePeriod, ...]

    @property
    def problem_seconds(self) -> float:
        """The time in which something was wrong."""
        return sum(period.end - period.start for period in self.periods if not period.is_quiet)


@dataclass(frozen=True, slots=True)
class AgentCounts:
    """Agents of the instance in the rows of counts, oldest first."""

    #: Start of each row, and the seconds that it covers.
    samples: tuple[tuple[float, float], ...]
    totals: tuple[int, ...]
    affected: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DayChart:
    """Everything that the template draws."""

    #: Time that it shows: `24 h`.
    range_text: str
    summary: str
    lanes: tuple[Lane, ...]
    #: Largest number of agents; 0: no agents.
    peak: int
    #: Points of polylines and polygons: all agents, and the stranded and at-risk ones.
    lines: tuple[str, ...]
    areas: tuple[str, ...]
    gaps: tuple[ChartBar, ...]
    ticks: tuple[TimeTick, ...]
    height: int = AGENTS_HEIGHT

    @property
    def has_data(self) -> bool:
        """Whether anything was recorded."""
        return bool(self.lines) or any(lane.periods for lane in self.lanes)


def count_agents(columns: GroupColumns, kind: GroupKind, key: int) -> AgentCounts:
    """Return the agents of the instance with this key (`Instance.pk`) in each row of counts."""
    groups = columns.groups
    is_own = (groups["kind"] == kind) & (groups["instance"] == key)
    positions, counts = columns.positions[is_own], groups["count"][is_own]
    is_affected = np.isin(groups["state"][is_own], _AFFECTED_STATES)
    size = len(columns.starts)
    totals = np.bincount(positions, counts, size).astype(int).tolist()
    affected = np.bincount(positions, counts * is_affected, size).astype(int).tolist()
    samples = tuple(zip(columns.starts.tolist(), columns.durations.tolist(), strict=True))
    return AgentCounts(samples, tuple(totals), tuple(affected))


def draw_day(
    changes: Sequence[InstanceChangeRow], agents: AgentCounts, until: float, *, load_noun: str
) -> DayChart:
    """Return the chart of the 24 h up to `until`.

    `changes`: oldest first, with the last one before the 24 h; `load_noun`: what the instance has, `agents`.
    """
    axis = TimeAxis(until - _choose_range(changes, agents, until), until)
    starts = np.array([at for at, _ in agents.samples])
    ends = starts + np.array([duration for _, duration in agents.samples])
    gaps = [
        (start, end)
        for start, end in find_gaps(starts, ends, axis.since, axis.until, 1.0)
        # The newest minute may be late.
        if end < axis.until or end - start > MAX_ROW_DELAY
    ]
    lanes = tuple(_lanes_of(changes, axis))
    peak = max(agents.totals, default=0)
    scale = StepScale(axis.since, axis.until, WIDTH, AGENTS_HEIGHT, max(peak, 1))
    totals, affected = (
        [
            CountSample(at, duration, count)
            for (at, duration), count in zip(agents.samples, counts, strict=True)
        ]
        for counts in (agents.totals, agents.affected)
    )
    return DayChart(
        range_text=format_readable(axis.until - axis.since),
        summary=_summary_of(lanes[0], agents, load_noun),
        lanes=lanes,
        peak=peak,
        lines=tuple(map(scale.line_of, split_at_gaps(totals))),
        areas=scale.areas_of(affected),
        gaps=tuple(axis.bar_of(start, end, f"No data from {format_span(start, end)}") for start, end in gaps),
        ticks=tuple(ticks_of(axis)),
    )


def _choose_range(changes: Sequence[InstanceChangeRow], agents: AgentCounts, until: float) -> float:
    """Return the seconds that the chart shows: as much of the 24 h as the history may fill."""
    first = min(
        (
            moments[0]
            for moments in ([change.at for change in changes], [at for at, _ in agents.samples])
            if moments
        ),
        default=until,
    )
    return next((seconds for seconds in _SHORTER_RANGES if until - first <= seconds), DAY)


def _lanes_of(changes: Sequence[InstanceChangeRow], axis: TimeAxis) -> Iterator[Lane]:
    yield _lane_of("State", changes, axis, lambda change: change.new, _look_of_state)
    yield _lane_of("Health", changes, axis, lambda change: change.health, _look_of_health)
    drains = _lane_of(
        "Drain",
        changes,
        axis,
        lambda change: "draining" if change.is_draining else "",
        lambda slug: (slug, "state-working"),
    )
    if drains.periods:
        yield drains


def _lane_of(
    name: str,
    changes: Sequence[InstanceChangeRow],
    axis: TimeAxis,
    slug_of: Callable[[InstanceChangeRow], str],
    look_of: Callable[[str], tuple[str, str]],
) -> Lane:
    """Return a lane; `slug_of`: the state after a change, empty for none; `look_of`: its label and CSS class."""
    periods = []
    for slug, start, end in _list_periods([(change.at, slug_of(change)) for change in changes], axis.until):
        if not slug or end <= axis.since or start >= axis.until:
            continue
        label, css_class = look_of(slug)
        shown_start = max(start, axis.since)
        title = f"{label}: {format_span(shown_start, end)}, {format_readable(round(end - shown_start))}"
        bar = axis.visible_bar_of(shown_start, end, title, tone=css_class)
        periods.append(LanePeriod(shown_start, end, label, bar, css_class in _QUIET_CLASSES))
    return Lane(name, tuple(periods))


def _list_periods(moments: Sequence[tuple[float, str]], until: float) -> Iterator[tuple[str, float, float]]:
    """Yield (state, start, end) of the periods without a change of the state."""
    turns = [next(group) for _, group in groupby(moments, key=lambda moment: moment[1])]
    for (start, slug), (end, _) in pairwise([*turns, (until, "")]):
        yield slug, start, min(end, until)


def _look_of_state(slug: str) -> tuple[str, str]:
    state = _STATES.get(slug)
    return (slug, "instance-unknown") if state is None else (state.label, f"instance-{slug}")


def _look_of_health(slug: str) -> tuple[str, str]:
    return slug, _HEALTH_CLASSES.get(slug, "state-unknown")


def _summary_of(states: Lane, agents: AgentCounts, load_noun: str) -> str:
    parts = [_describe_problems(states)] if states.periods else ["No state was recorded"]
    if agents.totals:
        low, high = min(agents.totals), max(agents.totals)
        parts.append(f"{low:,} {load_noun}" if low == high else f"{low:,} to {high:,} {load_noun}")
        if affected := max(agents.affected):
            parts.append(f"up to {affected:,} stranded or at risk")
    return f"{'; '.join(parts)}."


def _describe_problems(states: Lane) -> str:
    problems: dict[str, float] = {}
    for period in states.periods:
        if not period.is_quiet and not _is_first_poll(period):
            problems[period.label] = problems.get(period.label, 0.0) + period.end - period.start
    if not problems:
        return "OK the whole time"
    text = ", ".join(_describe_problem(label, seconds) for label, seconds in problems.items())
    return f"{text[:1].upper()}{text[1:]}"


def _is_first_poll(period: LanePeriod) -> bool:
    return period.label == InstanceState.UNKNOWN.label and period.end - period.start < _MIN_UNKNOWN_SECONDS


def _describe_problem(label: str, seconds: float) -> str:
    return f"{label} for {format_readable(max(round(seconds), 1))}"


def lane_rows_of(chart: DayChart) -> Iterable[tuple[str, LanePeriod]]:
    """Return (name of the lane, period) of all problems, newest first, for the table below the chart."""
    rows = [(lane.name, period) for lane in chart.lanes for period in lane.periods if not period.is_quiet]
    return sorted(rows, key=lambda row: row[1].start, reverse=True)
