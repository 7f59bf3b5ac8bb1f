"""What the database keeps of one instance: its history of 24 h, incidents and changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from dashboards.instances.day_chart import DAY, AgentCounts, DayChart, count_agents, draw_day
from dashboards.shared.presenters import age_ms_of, to_moment_or_none
from fleet.alerts.notifications import headline_of
from fleet.alerts.store import incident_of
from fleet.models.changes import Change
from fleet.models.history import FleetMinute, InstanceChange
from fleet.models.incidents import Incident
from fleet.models.inventory import Instance
from fleet.models.moments import to_moment, to_seconds
from fleet.monitoring.history.minute_columns import group_columns_of
from fleet.monitoring.state.outbox import GroupKind
from fleet.vocabulary.changes import ChangeKind
from fleet.vocabulary.incidents import CauseKind, IncidentState, Severity
from fleet.vocabulary.instances import InstanceFacts, InstanceKind

#: Most changes of the instance in the chart: the newest ones.
_MAX_INSTANCE_CHANGES = 2000
#: Incidents and changes on the page, and campaigns that are searched for the instance: the newest ones.
MAX_INCIDENTS, MAX_CHANGES, _MAX_CAMPAIGNS = 8, 8, 200
_GROUP_KINDS = {InstanceKind.PROXY: GroupKind.PROXY, InstanceKind.AUTH: GroupKind.AUTH}


@dataclass(frozen=True, slots=True)
class CausedIncident:
    """An incident that the instance caused, or its region, proxy group or backend."""

    number: int
    severity: Severity
    summary: str
    is_resolved: bool
    peak_count: int
    opened_at: datetime | None
    opened_age_ms: int | None
    resolved_at: datetime | None


@dataclass(frozen=True, slots=True)
class InstanceChangeSummary:
    """A change to the instance."""

    number: int
    title: str
    state: str
    state_label: str
    actor_name: str
    at: datetime
    age_ms: int | None


def read_instance_row(cluster: str, instance_id: str) -> Instance | None:
    """Return the row of an instance that was ever seen; None: there is none."""
    return Instance.objects.filter(cluster=cluster, instance_id=instance_id).first()


def read_day(cluster: str, instance_id: str, kind: InstanceKind, until: float) -> DayChart:
    """Return the chart of the 24 h up to `until`, in seconds since the epoch."""
    row = read_instance_row(cluster, instance_id)
    agents = AgentCounts((), (), ()) if row is None else _read_agent_counts(cluster, row.pk, kind, until)
    changes = _read_instance_changes(cluster, instance_id, until)
    return draw_day(changes, agents, until, load_noun="agents")


def _read_agent_counts(cluster: str, key: int, kind: InstanceKind, until: float) -> AgentCounts:
    rows = FleetMinute.objects.filter(cluster=cluster, at__gte=until - DAY, at__lt=until).order_by("at")
    columns = group_columns_of(
        [
            (at, duration, bytes(groups))
            for at, duration, groups in rows.values_list("at", "resolution", "groups")
        ]
    )
    return count_agents(columns, _GROUP_KINDS[kind], key)


def _read_instance_changes(cluster: str, instance_id: str, until: float) -> list[InstanceChange]:
    """Return the changes of the 24 h, oldest first, with the last one before them."""
    rows = InstanceChange.objects.filter(cluster=cluster, instance=instance_id)
    earlier = rows.filter(at__lte=until - DAY).first()
    newest = list(rows.filter(at__gt=until - DAY, at__lte=until)[:_MAX_INSTANCE_CHANGES])
    return [*([] if earlier is None else [earlier]), *reversed(newest)]


def read_state_since(cluster: str, instance_id: str, state: str, until: float) -> float | None:
    """Return since when the instance has been in this state, in seconds since the epoch; None: not recorded."""
    rows = InstanceChange.objects.filter(cluster=cluster, instance=instance_id, at__lte=until)
    newest_other = rows.exclude(new=state).first()
    same_rows = rows.filter(new=state)
    if newest_other is not None:
        same_rows = same_rows.filter(at__gte=newest_other.at)
    first = same_rows.order_by("at", "pk").first()
    return None if first is None else first.at


def read_incidents(cluster: str, facts: InstanceFacts, now: float) -> list[CausedIncident]:
    """Return the incidents that the instance caused, and those of its region, proxy group and backend.

    Open ones first, then the newest ones.
    """
    is_cause = Q(cause_kind=facts.kind.value, cause_id=facts.id)
    if facts.region:
        is_cause |= Q(cause_kind=CauseKind.REGION.value, cause_id=facts.region)
    if facts.kind is InstanceKind.AUTH:
        is_cause |= Q(cause_kind=CauseKind.BACKEND.value)
    elif facts.group:
        is_cause |= Q(cause_kind=CauseKind.GROUP.value, cause_id=facts.group)
    rows = Incident.objects.filter(is_cause, cluster=cluster).exclude(state=IncidentState.PENDING.value)
    open_rows = list(rows.exclude(state=IncidentState.RESOLVED.value)[:MAX_INCIDENTS])
    resolved_rows = rows.filter(state=IncidentState.RESOLVED.value)[: MAX_INCIDENTS - len(open_rows)]
    return [_incident_item_of(row, now) for row in [*open_rows, *resolved_rows]]


def _incident_item_of(row: Incident, now: float) -> CausedIncident:
    incident = incident_of(row)
    return CausedIncident(
        number=row.pk,
        severity=incident.severity,
        summary=headline_of(incident),
        is_resolved=incident.state is IncidentState.RESOLVED,
        peak_count=incident.peak_count,
        opened_at=to_moment_or_none(incident.opened_at),
        opened_age_ms=age_ms_of(incident.opened_at, now),
        resolved_at=to_moment_or_none(incident.resolved_at),
    )


def read_changes(cluster: str, instance_id: str, now: float) -> list[InstanceChangeSummary]:
    """Return the newest changes to the instance: of its service and its policies, and campaigns away from it."""
    is_of_instance = (
        Q(kind__in=[ChangeKind.SERVICE.value, ChangeKind.DEGRADE.value], after__instance=instance_id)
        | Q(kind=ChangeKind.POLICY.value, rollout_steps__instance_id=instance_id)
        | Q(kind=ChangeKind.POLICY.value, after__has_key=instance_id)
        | Q(pk__in=_find_campaigns(cluster, instance_id))
    )
    rows = Change.objects.filter(is_of_instance, cluster=cluster).distinct()[:MAX_CHANGES]
    return [
        InstanceChangeSummary(
            row.pk,
            row.title,
            row.state,
            row.state_label,
            row.actor_name,
            row.started_at or row.created_at,
            age_ms_of(to_seconds(row.started_at or row.created_at), now),
        )
        for row in rows
    ]


def _find_campaigns(cluster: str, instance_id: str) -> Sequence[int]:
    """Return the newest campaigns that agents leave the instance in."""
    rows = Change.objects.filter(cluster=cluster, kind=ChangeKind.RECONNECT.value)
    return [
        number
        for number, instances_to_leave in rows.values_list("pk", "parameters__instances_to_leave")[
            :_MAX_CAMPAIGNS
        ]
        if instance_id in (instances_to_leave or ())
    ]


def moment_of_first_sight(row: Instance | None) -> datetime | None:
    """Return when Refloat first saw an instance; None: not recorded."""
    return None if row is None else to_moment(to_seconds(row.first_seen_at))
