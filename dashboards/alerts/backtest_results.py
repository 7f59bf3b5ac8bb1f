"""The backtest of a rule for its page: a sentence, a picture of the history, and what explained each time.

docs/reference/alerts.md, "Backtest".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Q

from dashboards.fleet import history as fleet_history
from dashboards.shared import record_reader
from fleet.alerts import backtest, store
from fleet.alerts.backtest import FiringPeriod
from fleet.alerts.instance_causes import backend_cause_of, cluster_cause_of
from fleet.alerts.matchers import match_names
from fleet.alerts.rules import Rule, describe_condition
from fleet.models.incidents import Incident
from fleet.models.inventory import Agent, Instance
from fleet.models.moments import to_moment
from fleet.protocol.durations import format_readable
from fleet.vocabulary import incidents as incident_values

#: Days of history that the backtest uses.
_BACKTEST_DAYS = 7
#: Times in the table: the newest ones.
_MAX_ROWS = 20
#: Causes with a line of their own in the picture; the others share one.
_MAX_LINES = 8
_WIDTH, _MIN_BAR_WIDTH = 1000.0, 3.0


@dataclass(frozen=True, slots=True)
class BacktestRow:
    """A time at which the rule would have fired."""

    at: datetime
    duration: str
    peak_count: int
    #: Name of the cause; empty for none.
    cause: str
    #: The incident of that time; None if there was none.
    incident_number: int | None = None
    incident_text: str = ""
    #: Name of the cause that inhibited the incident; empty for none.
    inhibited_by: str = ""


@dataclass(frozen=True, slots=True)
class BacktestBar:
    """A time in the picture, in the units of its width of 1000."""

    x: float
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class BacktestLine:
    """The times of one cause, from top to bottom."""

    cause: str
    bars: tuple[BacktestBar, ...]


@dataclass(frozen=True, slots=True)
class BacktestPicture:
    """The last days, with a line for each cause."""

    lines: tuple[BacktestLine, ...]
    #: Place of each midnight (UTC), and its date.
    day_marks: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class RuleBacktest:
    """The result of a backtest."""

    summary: str
    #: The condition that was tried, as a sentence.
    condition: str = ""
    #: The rule can be backtested.
    is_supported: bool = True
    rows: tuple[BacktestRow, ...] = ()
    #: Number of times that are not in `rows`.
    omitted_count: int = 0
    picture: BacktestPicture | None = None


def backtest_rule(rule: Rule, cluster: str) -> RuleBacktest:
    """Return when a rule would have fired in the last days."""
    if rule.kind in backtest.UNSUPPORTED_REASONS:
        return RuleBacktest(backtest.UNSUPPORTED_REASONS[rule.kind], is_supported=False)
    now = record_reader.current_time()
    history = fleet_history.read_backtest_history(
        cluster, now, _BACKTEST_DAYS, with_instances=rule.kind in backtest.INSTANCE_RULE_KINDS
    )
    if not history.days:
        return RuleBacktest("The history is still empty, so this rule cannot be backtested yet.")
    firing_periods = backtest.run_backtest(
        rule,
        history.agent_changes,
        Agent.objects.filter(cluster=cluster, is_retired=False).count(),
        now,
        _find_agents_of_set(rule, cluster),
        history.instance_changes,
    )
    names = dict(Instance.objects.filter(cluster=cluster).values_list("instance_id", "name"))
    names |= {cause.key: cause.name for cause in (backend_cause_of(cluster), cluster_cause_of(cluster))}
    newest_periods = firing_periods[::-1][:_MAX_ROWS]
    return RuleBacktest(
        backtest.summary_of(firing_periods, history.days),
        condition=f"{describe_condition(rule)}.",
        rows=_make_rows(rule, cluster, newest_periods, names, now),
        omitted_count=len(firing_periods) - len(newest_periods),
        picture=draw_backtest(firing_periods, names, now - _BACKTEST_DAYS * 86400.0, now),
    )


def draw_backtest(
    firing_periods: Sequence[FiringPeriod], names: Mapping[str, str], since: float, until: float
) -> BacktestPicture | None:
    """Return the picture of the times; None without any. Causes with the most time come first."""
    if not firing_periods:
        return None
    seconds_by_cause: dict[str, float] = {}
    for period in firing_periods:
        seconds_by_cause[period.cause] = seconds_by_cause.get(period.cause, 0.0) + period.duration_seconds
    causes = sorted(seconds_by_cause, key=lambda cause: -seconds_by_cause[cause])
    own_causes = causes if len(causes) <= _MAX_LINES else causes[: _MAX_LINES - 1]
    labels = {cause: names.get(cause, cause) or "whole fleet" for cause in own_causes}
    other_count = len(causes) - len(own_causes)
    groups = [(labels[cause], {cause}) for cause in own_causes]
    if other_count:
        groups.append((f"{other_count} more causes", set(causes[len(own_causes) :])))
    scale = _WIDTH / (until - since)
    lines = tuple(
        BacktestLine(
            label,
            tuple(
                _make_bar(period, names, since, scale)
                for period in firing_periods
                if period.cause in line_causes
            ),
        )
        for label, line_causes in groups
    )
    return BacktestPicture(lines, _find_day_marks(since, until, scale))


def _make_bar(period: FiringPeriod, names: Mapping[str, str], since: float, scale: float) -> BacktestBar:
    # A short time at the end must not lie outside.
    x = min(max(period.began_at - since, 0.0) * scale, _WIDTH - _MIN_BAR_WIDTH)
    width = min(max(period.duration_seconds * scale, _MIN_BAR_WIDTH), _WIDTH - x)
    cause = names.get(period.cause, period.cause)
    counts = f", {period.peak_count} agent{'s' if period.peak_count != 1 else ''} at the peak"
    duration = format_readable(round(period.duration_seconds))
    start_text = f"{datetime.fromtimestamp(period.began_at, UTC):%Y-%m-%d %H:%M} UTC"
    return BacktestBar(
        round(x, 1), round(width, 1), f"{cause + ': ' if cause else ''}{start_text}, {duration}{counts}"
    )


def _find_day_marks(since: float, until: float, scale: float) -> tuple[tuple[float, str], ...]:
    first = datetime.fromtimestamp(since, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    midnights = (first + timedelta(days=number) for number in range(1, _BACKTEST_DAYS + 1))
    return tuple(
        (round((midnight.timestamp() - since) * scale, 1), f"{midnight:%m-%d}")
        for midnight in midnights
        if midnight.timestamp() < until
    )


def _make_rows(
    rule: Rule, cluster: str, firing_periods: Sequence[FiringPeriod], names: Mapping[str, str], now: float
) -> tuple[BacktestRow, ...]:
    """Return the rows of the table, each with the incident of its cause, or of its rule, at that time."""
    if not firing_periods:
        return ()
    oldest_at = min(period.began_at for period in firing_periods)
    rows = Incident.objects.filter(Q(resolved_at=None) | Q(resolved_at__gte=oldest_at), cluster=cluster)
    incidents = {row.pk: store.incident_of(row) for row in rows}
    cause_names = {incident.key: incident.cause.name for incident in incidents.values()}
    backtest_rows = []
    for period in firing_periods:
        number = _find_incident(rule, period, incidents)
        incident = None if number is None else incidents[number]
        inhibiting_key = "" if incident is None else incident.inhibited_by
        backtest_rows.append(
            BacktestRow(
                to_moment(period.began_at),
                describe_duration(period, now),
                period.peak_count,
                names.get(period.cause, period.cause),
                number,
                "" if incident is None else incident.cause.name,
                cause_names.get(inhibiting_key, inhibiting_key),
            )
        )
    return tuple(backtest_rows)


def describe_duration(period: FiringPeriod, now: float) -> str:
    """Return how long the rule held; `so far` if it still holds."""
    duration = format_readable(round(period.duration_seconds))
    return f"{duration} so far" if period.ended_at >= now else duration


def _find_incident(
    rule: Rule, period: FiringPeriod, incidents: Mapping[int, incident_values.Incident]
) -> int | None:
    """Return the number of the incident of a time: the one of its cause, else one that the rule was part of."""
    overlapping = {
        number: incident
        for number, incident in incidents.items()
        if incident.opened_at <= period.ended_at and (incident.resolved_at or float("inf")) >= period.began_at
    }
    same_cause = [
        number
        for number, incident in overlapping.items()
        if period.cause and period.cause in (incident.cause.id, incident.key)
    ]
    same_rule = [number for number, incident in overlapping.items() if rule.name in incident.fired_rule_names]
    return next(iter((*same_cause, *same_rule)), None)


def _find_agents_of_set(rule: Rule, cluster: str) -> set[str] | None:
    if not rule.agent_set:
        return None
    patterns = store.read_agent_set_patterns(cluster).get(rule.agent_set, ())
    agents = list(Agent.objects.filter(cluster=cluster).values_list("agent_id", "name"))
    mask = match_names([name for _, name in agents], patterns)
    return {agent_id for (agent_id, _), is_match in zip(agents, mask.tolist(), strict=True) if is_match}
