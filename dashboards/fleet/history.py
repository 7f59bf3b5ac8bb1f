"""State history from the database: input of backtests of alert rules, and the history of an instance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import F, Min, QuerySet

from dashboards.shared import presenters
from fleet.alerts.backtest import AgentStateChange, InstanceStateChange
from fleet.models.history import BACKEND_CAUSE_KEY, NO_CAUSE_KEY, AgentChange, InstanceChange
from fleet.models.inventory import Agent, Instance
from fleet.models.moments import to_moment
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import State

#: Maximum number of state changes in a backtest: the newest ones.
_CHANGE_LIMIT = 200_000
#: Maximum number of state changes of an instance on its page.
_INSTANCE_ROW_LIMIT = 8
_DAY_SECONDS = 86400.0
#: A list is faster than `State(number)`, for 200,000 changes.
_STATE_SLUGS = [State(number).slug for number in range(len(State))]


@dataclass(frozen=True, slots=True)
class BacktestHistory:
    """Input of a backtest, oldest first, and the number of days that it covers; 0 if there is no history."""

    agent_changes: Sequence[AgentStateChange]
    instance_changes: Sequence[InstanceStateChange]
    days: float


@dataclass(frozen=True, slots=True)
class InstanceStateChangeRow:
    """One change of an instance, as a page shows it."""

    at: datetime
    age_ms: int | None
    #: Labels of the states: `not responding`; `old` is empty if the state did not change.
    old: str
    new: str
    #: Other changes in words: `destination health: degraded`.
    details: tuple[str, ...]
    #: Name of the instance in a history of several; otherwise empty.
    name: str = ""
    #: Id of that instance; empty for the backend and the cluster.
    instance_id: str = ""


def read_backtest_history(cluster: str, now: float, days: float, *, with_instances: bool) -> BacktestHistory:
    """Return the history of the last `days`; state changes of instances only if `with_instances` is set."""
    since = now - days * _DAY_SECONDS
    changes = _read_agent_changes(cluster, since, now)
    if with_instances:
        oldest_at = _find_oldest_at(InstanceChange.objects.filter(cluster=cluster))
    elif len(changes) == _CHANGE_LIMIT:
        oldest_at = changes[0].at
    else:
        oldest_at = _find_oldest_at(AgentChange.objects.filter(agent__cluster=cluster))
    covered_days = 0.0 if oldest_at is None else min(days, (now - oldest_at) / _DAY_SECONDS)
    return BacktestHistory(
        changes,
        _read_instance_changes(cluster, since) if with_instances else (),
        round(covered_days, 1) if covered_days >= 1 else max(covered_days, 0.0),
    )


def _read_agent_changes(cluster: str, since: float, now: float) -> list[AgentStateChange]:
    """Return the newest changes of state after `since`, oldest first."""
    instance_ids = dict(Instance.objects.filter(cluster=cluster).values_list("pk", "instance_id"))
    cause_ids = {NO_CAUSE_KEY: "", BACKEND_CAUSE_KEY: f"backend/{cluster}"} | instance_ids
    agent_ids = dict(Agent.objects.filter(cluster=cluster).values_list("pk", "agent_id"))
    changes: list[AgentStateChange] = []
    # Day by day, because PostgreSQL has a table for each day and no index by time in it.
    end = now + _DAY_SECONDS
    while end > since and len(changes) < _CHANGE_LIMIT:
        start = max(end - _DAY_SECONDS, since)
        rows = AgentChange.objects.filter(at__gte=start, at__lt=end).exclude(old=F("new")).order_by("-at")
        columns = ("at", "agent_id", "old", "new", "cause")
        changes += [
            AgentStateChange(
                at,
                agent_ids[agent],
                _STATE_SLUGS[old],
                _STATE_SLUGS[new],
                cause_ids.get(cause, ""),
                _round_of(at),
            )
            for at, agent, old, new, cause in rows.values_list(*columns)[: _CHANGE_LIMIT - len(changes)]
            if agent in agent_ids
        ]
        end = start
    changes.reverse()
    return changes


def _round_of(at: float) -> int:
    """Return the number of the round that ended at a time, as rounds are numbered."""
    return int(at // settings.REFLOAT_ROUND_INTERVAL)


def _find_oldest_at(rows: QuerySet[Any]) -> float | None:
    """Return the time of the oldest change in `rows`, seconds since the epoch."""
    oldest_at: float | None = rows.aggregate(first=Min("at"))["first"]
    return oldest_at


def _read_instance_changes(cluster: str, since: float) -> list[InstanceStateChange]:
    rows = (
        InstanceChange.objects.filter(cluster=cluster, at__gte=since)
        .exclude(old=F("new"))
        .order_by("at", "pk")
    )
    return [
        InstanceStateChange(at, instance, new, round_number)
        for at, instance, new, round_number in rows.values_list("at", "instance", "new", "round")
    ]


#: Rows that are read for each row that is shown, at most.
_MAX_ROWS_PER_SHOWN_ROW = 4
#: Labels of the states of an instance, by slug.
_STATE_LABELS = {state.slug: state.label for state in InstanceState}


def _state_label_of(slug: str) -> str:
    return _STATE_LABELS.get(slug, slug)


def read_instance_state_changes(
    cluster: str, name_by_instance: Mapping[str, str], now: float, until: float | None = None
) -> list[InstanceStateChangeRow]:
    """Return the recent changes of instances, or of the backend, newest first.

    `name_by_instance`: names by id, shown if there are several. `until`: without later changes.
    """
    query = InstanceChange.objects.filter(cluster=cluster, instance__in=name_by_instance)
    if until is not None:
        query = query.filter(at__lte=until)
    # More than are shown: health and drain show only in the difference to the change before it, and of a change of the
    # reason alone there is nothing to show.
    rows = list(query[: _MAX_ROWS_PER_SHOWN_ROW * _INSTANCE_ROW_LIMIT + len(name_by_instance)])
    return [
        InstanceStateChangeRow(
            to_moment(row.at),
            presenters.age_ms_of(row.at, now),
            "" if row.old == row.new else _state_label_of(row.old),
            _state_label_of(row.new),
            details,
            name_by_instance[row.instance] if len(name_by_instance) > 1 else "",
            "" if "/" in row.instance else row.instance,
        )
        for row, earlier in _pair_with_earlier(rows)
        if (details := tuple(_describe_details(row, earlier))) or row.old != row.new
    ][:_INSTANCE_ROW_LIMIT]


def _pair_with_earlier(
    rows: Sequence[InstanceChange],
) -> list[tuple[InstanceChange, InstanceChange | None]]:
    """Return each row, newest first, with the one before it of the same instance."""
    newest_by_instance: dict[str, InstanceChange] = {}
    pairs = []
    for row in reversed(rows):
        pairs.append((row, newest_by_instance.get(row.instance)))
        newest_by_instance[row.instance] = row
    return pairs[::-1]


def _describe_details(row: InstanceChange, earlier: InstanceChange | None) -> Iterator[str]:
    """Yield what changed besides the state, in words; nothing after a change that was recorded without it."""
    if earlier is None or not row.health or not earlier.health:
        return
    if row.health != earlier.health:
        yield f"destination health: {row.health}"
    if row.is_draining != earlier.is_draining:
        yield "draining started" if row.is_draining else "draining ended"
