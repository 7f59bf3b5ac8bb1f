"""States of one agent over the last 24 h, as a strip. Times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from dashboards.fleet.timeline.buckets import find_gaps
from dashboards.fleet.timeline.chart_lanes import ChartBar, TimeAxis
from dashboards.fleet.timeline.chart_words import format_span
from dashboards.fleet.timeline.line_chart import TimeTick, ticks_of
from fleet.models.history import AgentChange
from fleet.models.inventory import Agent
from fleet.monitoring.history.minute_columns import MAX_ROW_DELAY, read_count_columns
from fleet.protocol.durations import format_readable
from fleet.vocabulary.name_lists import join_names
from fleet.vocabulary.verdicts import STATES_BY_URGENCY, State

_DAY = 86_400.0
#: Changes that are drawn; an agent that changes more often has its newest ones.
_CHANGE_LIMIT = 2000
#: States that the summary does not name.
_QUIET_STATES = frozenset({State.HEALTHY, State.RETIRED})


@dataclass(frozen=True, slots=True)
class StripChange:
    """A change of an agent's state."""

    at: float
    old: State
    new: State


@dataclass(frozen=True, slots=True)
class AgentStrip:
    """What the template draws; positions and widths in percent."""

    #: Periods in the order of time; their tone is the slug of the state, their target the query string of a moment.
    periods: tuple[ChartBar, ...]
    gaps: tuple[ChartBar, ...]
    ticks: tuple[TimeTick, ...]
    #: `Stranded for 12 min, at risk for 40 s.`
    summary: str


def read_agent_strip(cluster: str, agent_id: str, state: State, now: float) -> AgentStrip | None:
    """Return the states of an agent in the 24 h up to `now`; None: nothing of it is recorded.

    state: of the agent at `now`, for an agent that has not changed since.
    """
    agent = Agent.objects.filter(cluster=cluster, agent_id=agent_id).first()
    if agent is None:
        return None
    since = now - _DAY
    query = AgentChange.objects.filter(agent=agent, at__lte=now).values_list("at", "old", "new")
    newest = list(query.filter(at__gt=since).order_by("-at")[:_CHANGE_LIMIT])
    earlier = list(query.filter(at__lte=since).order_by("-at")[:1])
    counts = read_count_columns(cluster, since, now)
    gaps = find_gaps(counts.starts, counts.ends, since, now, MAX_ROW_DELAY)
    changes = [StripChange(at, State(old), State(new)) for at, old, new in (*earlier, *newest[::-1])]
    return draw_strip(changes, state, gaps, since, now)


def draw_strip(
    changes: Sequence[StripChange],
    state: State,
    gaps: Sequence[tuple[float, float]],
    since: float,
    until: float,
) -> AgentStrip:
    """Return the strip of a time range. `changes`: oldest first, one of them before the range if there was one.

    state: of the agent without changes. gaps: start and end of times without data.
    """
    axis = TimeAxis(since, until)
    # An agent is unknown until it is seen for the first time: nothing is drawn of that.
    is_new = bool(changes) and changes[0].at > since and changes[0].old is State.UNKNOWN
    moments = [changes[0].at if is_new else since, *(change.at for change in changes), until]
    states = [changes[0].old if changes else state, *(change.new for change in changes)]
    periods = list[tuple[float, float, State]]()
    clipped_moments = (min(max(moment, since), until) for moment in moments)
    for (start, end), period_state in zip(pairwise(clipped_moments), states, strict=True):
        if periods and periods[-1][2] is period_state:
            periods[-1] = (periods[-1][0], end, period_state)
        elif end > start:
            periods.append((start, end, period_state))
    seconds: dict[State, float] = {}
    for start, end, period_state in periods:
        without_data = sum(max(0.0, min(end, gap[1]) - max(start, gap[0])) for gap in gaps)
        seconds[period_state] = seconds.get(period_state, 0.0) + end - start - without_data
    return AgentStrip(
        periods=tuple(
            axis.visible_bar_of(
                start,
                end,
                f"{period_state.label.capitalize()}, {format_span(start, end)}, {format_readable(round(end - start))}",
                target=f"?at={datetime.fromtimestamp(start + (end - start) / 2, UTC):%Y-%m-%dT%H:%M:%SZ}",
                tone=period_state.slug,
            )
            for start, end, period_state in periods
        ),
        gaps=tuple(axis.bar_of(start, end, f"No data, {format_span(start, end)}") for start, end in gaps),
        ticks=tuple(ticks_of(axis)),
        summary=_summarize(seconds, sum(end - start for start, end in gaps)),
    )


def _summarize(seconds: Mapping[State, float], seconds_without_data: float) -> str:
    parts = [
        f"{state.label} for {format_readable(round(seconds[state]))}"
        for state in STATES_BY_URGENCY
        if state not in _QUIET_STATES and seconds.get(state, 0.0) >= 1
    ]
    text = join_names(parts) if parts else "healthy" if seconds.get(State.HEALTHY, 0.0) else "no data"
    suffix = (
        f" No data for {format_readable(round(seconds_without_data))}." if seconds_without_data >= 1 else ""
    )
    return f"{text[:1].upper()}{text[1:]}.{suffix}"
