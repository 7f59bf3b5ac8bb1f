"""State history from the database: input of backtests of alert rules, and the history of an instance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Min, QuerySet

from dashboards.shared import presenters
from fleet.alerts.backtest import AgentStateChange, InstanceStateChange
from fleet.models.moments import to_moment, to_seconds
from fleet.models.transitions import InstanceTransition, Transition
from fleet.vocabulary.instances import InstanceState

#: Maximum number of state changes in a backtest: the newest ones.
_CHANGE_LIMIT = 200_000
#: Maximum number of state changes of an instance on its page.
_INSTANCE_ROW_LIMIT = 8
_DAY_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class BacktestHistory:
    """Input of a backtest, oldest first, and the number of days that it covers; 0 if there is no history."""

    agent_changes: Sequence[AgentStateChange]
    instance_changes: Sequence[InstanceStateChange]
    days: float


@dataclass(frozen=True, slots=True)
class InstanceStateChangeRow:
    """One state change of an instance, as a page shows it."""

    at: datetime
    age_ms: int | None
    #: Labels of the states: `not responding`.
    old: str
    new: str


def read_backtest_history(cluster: str, now: float, days: float, *, with_instances: bool) -> BacktestHistory:
    """Return the history of the last `days`; state changes of instances only if `with_instances` is set."""
    since = to_moment(now - days * _DAY_SECONDS)
    agent_transitions = Transition.objects.filter(cluster=cluster)
    rows = agent_transitions.filter(at__gte=since).order_by("-at", "-pk")
    columns = ("at", "agent", "old", "new", "cause", "round")
    changes = [
        AgentStateChange(to_seconds(at), agent, old, new, cause, round_number)
        for at, agent, old, new, cause, round_number in rows.values_list(*columns)[:_CHANGE_LIMIT]
    ]
    changes.reverse()
    if with_instances:
        oldest_at = _find_oldest_at(InstanceTransition.objects.filter(cluster=cluster))
    else:
        oldest_at = changes[0].at if len(changes) == _CHANGE_LIMIT else _find_oldest_at(agent_transitions)
    covered_days = 0.0 if oldest_at is None else min(days, (now - oldest_at) / _DAY_SECONDS)
    return BacktestHistory(
        changes,
        _read_instance_changes(cluster, since) if with_instances else (),
        round(covered_days, 1) if covered_days >= 1 else max(covered_days, 0.0),
    )


def _find_oldest_at(rows: QuerySet[Any]) -> float | None:
    """Return the time of the oldest state change in `rows`, seconds since the epoch."""
    at: datetime | None = rows.aggregate(first=Min("at"))["first"]
    return None if at is None else to_seconds(at)


def _read_instance_changes(cluster: str, since: datetime) -> list[InstanceStateChange]:
    rows = InstanceTransition.objects.filter(cluster=cluster, at__gte=since).order_by("at", "pk")
    return [
        InstanceStateChange(to_seconds(at), instance, new, round_number)
        for at, instance, new, round_number in rows.values_list("at", "instance", "new", "round")
    ]


#: Labels of the states of an instance, by slug.
_STATE_LABELS = {state.slug: state.label for state in InstanceState}


def _state_label_of(slug: str) -> str:
    return _STATE_LABELS.get(slug, slug)


def read_instance_state_changes(cluster: str, instance: str, now: float) -> list[InstanceStateChangeRow]:
    """Return the recent state changes of an instance, or of the backend, newest first."""
    rows = InstanceTransition.objects.filter(cluster=cluster, instance=instance)[:_INSTANCE_ROW_LIMIT]
    return [
        InstanceStateChangeRow(
            row.at,
            presenters.age_ms_of(to_seconds(row.at), now),
            _state_label_of(row.old),
            _state_label_of(row.new),
        )
        for row in rows
    ]
