"""The history as alerts look at it: what a back-test plays, and how an instance fared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Min, QuerySet

from dashboards.shared import presenters
from fleet.alerts.backtest import Change, Turn
from fleet.models.moments import to_moment, to_seconds
from fleet.models.transitions import InstanceTransition, Transition

#: So many changes are played at most: of a history that is longer the newest part.
_CHANGES = 200_000
#: So many turns of one instance are shown.
_SHOWN = 8
_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class History:
    """What is played, oldest first, and over how many days it goes back; 0: there is none."""

    changes: Sequence[Change]
    turns: Sequence[Turn]
    days: float


@dataclass(frozen=True, slots=True)
class TurnLine:
    """One turn of an instance, as a page shows it."""

    at: datetime
    ms: int | None
    old: str
    new: str


def read(cluster: str, now: float, days: float, *, turns: bool) -> History:
    """Read the last so many days; of instances only when they are asked for."""
    since = to_moment(now - days * _DAY)
    agents = Transition.objects.filter(cluster=cluster)
    rows = agents.filter(at__gte=since).order_by("-at", "-pk")
    columns = ("at", "agent", "old", "new", "cause", "round")
    found = [
        Change(to_seconds(at), agent, old, new, cause, number)
        for at, agent, old, new, cause, number in rows.values_list(*columns)[:_CHANGES]
    ]
    found.reverse()
    if turns:
        began = _first(InstanceTransition.objects.filter(cluster=cluster))
    else:
        began = found[0].at if len(found) == _CHANGES else _first(agents)
    span = 0.0 if began is None else min(days, (now - began) / _DAY)
    return History(
        found, _turns(cluster, since) if turns else (), round(span, 1) if span >= 1 else max(span, 0.0)
    )


def _first(rows: QuerySet[Any]) -> float | None:
    """When the oldest change that is kept was."""
    at: datetime | None = rows.aggregate(first=Min("at"))["first"]
    return None if at is None else to_seconds(at)


def _turns(cluster: str, since: datetime) -> list[Turn]:
    rows = InstanceTransition.objects.filter(cluster=cluster, at__gte=since).order_by("at", "pk")
    return [
        Turn(to_seconds(at), instance, new, number)
        for at, instance, new, number in rows.values_list("at", "instance", "new", "round")
    ]


def turns_of(cluster: str, instance: str, now: float) -> list[TurnLine]:
    """How an instance, or the backend, fared lately, newest first."""
    rows = InstanceTransition.objects.filter(cluster=cluster, instance=instance)[:_SHOWN]
    return [TurnLine(row.at, presenters.age_ms(to_seconds(row.at), now), row.old, row.new) for row in rows]
