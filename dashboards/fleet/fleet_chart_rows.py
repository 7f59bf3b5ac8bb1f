"""Rows for Fleet now from the history: the chart of 24 h, and the trends of instances."""

from __future__ import annotations

from django.db.models import Q

from dashboards.fleet.fleet_chart import CHART_SECONDS, ChangeSpan, FleetChart, IncidentSpan, draw_chart
from dashboards.shared.instance_trends import TREND_SECONDS, InstanceTrend, instance_trends_of
from fleet.alerts.notifications import headline_of
from fleet.alerts.store import incident_of
from fleet.models.changes import Change
from fleet.models.incidents import Incident
from fleet.models.inventory import Instance
from fleet.models.moments import to_moment, to_seconds
from fleet.monitoring.history.minutes import minute_of, read_instance_groups, read_minutes
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.incidents import IncidentState

#: Maximum number of incidents, and of changes: the newest ones.
_ROW_LIMIT = 100


def read_chart(cluster: str, now: float, *, is_past: bool) -> FleetChart:
    """Return the chart of the 24 h up to a moment, in seconds since the epoch."""
    since = now - CHART_SECONDS
    return draw_chart(
        # An old row covers an hour, and may begin before the chart.
        read_minutes(cluster, minute_of(since) - 3600, now),
        read_incidents(cluster, since, now),
        read_changes(cluster, since, now),
        now,
        is_past=is_past,
    )


def read_incidents(cluster: str, since: float, until: float) -> list[IncidentSpan]:
    """Return the incidents that were open between two times, the newest first; what happened later is left out."""
    rows = (
        Incident.objects.filter(cluster=cluster, opened_at__lte=until)
        .filter(Q(resolved_at=None) | Q(resolved_at__gte=since))
        .exclude(state=IncidentState.PENDING.value)
        .order_by("-opened_at", "-pk")
    )
    spans = []
    for row in rows[:_ROW_LIMIT]:
        incident = incident_of(row)
        resolved_at = incident.resolved_at
        if resolved_at is not None and resolved_at > until:
            resolved_at = None
        spans.append(
            IncidentSpan(row.pk, headline_of(incident), incident.severity, incident.opened_at, resolved_at)
        )
    return spans


def read_changes(cluster: str, since: float, until: float) -> list[ChangeSpan]:
    """Return the changes that were carried out between two times, the newest first.

    Refloat sets `started_at` when it begins to carry out a change; plans and cancelled plans have none.
    """
    rows = (
        Change.objects.filter(cluster=cluster, started_at__lte=to_moment(until))
        .filter(Q(ended_at=None) | Q(ended_at__gte=to_moment(since)))
        .order_by("-started_at", "-pk")
        .values_list("pk", "title", "state", "started_at", "ended_at")
    )
    spans = []
    for number, title, state, started_at, ended_at in rows[:_ROW_LIMIT]:
        if started_at is None:
            continue
        end = None if ended_at is None or to_seconds(ended_at) > until else to_seconds(ended_at)
        # At a past moment, a change that ended later was running.
        was_running = ended_at is not None and end is None
        spans.append(
            ChangeSpan(
                number,
                title,
                ChangeState.RUNNING if was_running else ChangeState(state),
                to_seconds(started_at),
                end,
            )
        )
    return spans


def read_instance_trends(cluster: str, now: float) -> dict[str, InstanceTrend]:
    """Return the last hour of every auth and proxy by id."""
    until = minute_of(now) + 60
    since = until - TREND_SECONDS
    instance_by_key = dict(Instance.objects.filter(cluster=cluster).values_list("pk", "instance_id"))
    return instance_trends_of(read_instance_groups(cluster, since, until), instance_by_key, since, until)
