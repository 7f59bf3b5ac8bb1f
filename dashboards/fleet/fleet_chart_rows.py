"""Rows for Fleet now from the history: the chart of 24 h, and the trends of instances."""

from __future__ import annotations

from dashboards.fleet.fleet_chart import CHART_SECONDS, ChangeSpan, FleetChart, IncidentSpan, draw_chart
from dashboards.shared.instance_trends import TREND_SECONDS, InstanceTrend, instance_trends_of
from fleet.alerts.notifications import headline_of
from fleet.alerts.store import incident_of, select_open_between
from fleet.changes.engine import select_carried_out_between
from fleet.models.inventory import Instance
from fleet.models.moments import to_moment, to_seconds
from fleet.monitoring.history.minutes import minute_of, read_instance_groups, read_minutes
from fleet.vocabulary.changes import ChangeState

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
    rows = select_open_between(cluster, since, until).order_by("-opened_at", "-pk")
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
    """Return the changes that were carried out between two times, the newest first."""
    rows = (
        select_carried_out_between(cluster, to_moment(since), to_moment(until))
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
