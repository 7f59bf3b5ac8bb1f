"""What a runbook is about: an incident or an instance, with its present state, for the page and its buttons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dashboards.alerts import presenters as alert_presenters
from dashboards.alerts.presenters import IncidentView
from dashboards.shared import record_reader
from dashboards.shared.instance_states import find_stranding_instances
from dashboards.shared.pages import url_prefix_of
from dashboards.shared.presenters import InstanceCard, instance_card_of
from dashboards.shared.rewind import format_at
from fleet.alerts import store
from fleet.alerts.inhibition import JOINT_KINDS
from fleet.alerts.instance_causes import cause_of_instance
from fleet.alerts.runbooks.finder import RunbookFinder, VersionUpdate
from fleet.alerts.runbooks.new_versions import find_member_ids
from fleet.alerts.runbooks.remedies import RemedyScope
from fleet.changes.engine import select_carried_out
from fleet.changes.kinds import kind_of
from fleet.changes.operations import drains
from fleet.changes.policies import desired_state, planner
from fleet.models.incidents import Incident
from fleet.monitoring.history.minute_columns import read_recorded_range
from fleet.monitoring.state import StateError
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.changes import ChangeKind
from fleet.vocabulary.incidents import OPEN_STATES, Cause, CauseKind, IncidentState
from fleet.vocabulary.instances import FAULT_STATES
from fleet.vocabulary.natural_order import natural_sort_key
from fleet.vocabulary.runbooks import RunbookCause

#: Seconds before an incident at which a comparison begins: the state shortly before is that of its beginning.
_COMPARE_BEFORE_SECONDS = 60.0
#: Maximum number of instances on the page, and of changes that are tried.
_MAX_INSTANCES, _MAX_CHANGES = 10, 20
_CHANGE_KINDS = (ChangeKind.POLICY.value, ChangeKind.NETWORKING_CONFIG.value)


@dataclass(frozen=True, slots=True)
class RunbookScope:
    """What a runbook is about now."""

    remedies: RemedyScope
    #: The incident, and the runbook that Refloat chooses for it; None without one.
    row: Incident | None = None
    incident: IncidentView | None = None
    suggestion: RunbookCause | None = None
    #: Failing instances of a cause that is not one instance, and how many more there are.
    failing_instances: tuple[InstanceCard, ...] = ()
    unlisted_count: int = 0
    #: Instances that got another version shortly before the incident.
    updates: tuple[VersionUpdate, ...] = ()


def read_scope(
    cluster: str, runbook: RunbookCause, incident_id: int, instance_id: str, now: float
) -> RunbookScope:
    """Return what a runbook is about; `incident_id` 0 and `instance_id` empty: nothing. An incident has an instance.

    Without an incident, an open one of the instance is taken.
    """
    table = _read_table(cluster, now)
    row = _find_incident(cluster, incident_id, instance_id)
    incident = None if row is None else store.incident_of(row)
    views = {} if table is None else {view.facts.id: view for view in table.instances.values()}
    if incident is not None and incident.cause.kind in (CauseKind.AUTH, CauseKind.PROXY):
        instance_id = incident.cause.id
    view = views.get(instance_id)
    cause = incident.cause if incident is not None else None if view is None else cause_of_instance(view)
    scope = RunbookScope(
        RemedyScope(
            cause=cause,
            incident_number=None if row is None else row.pk,
            is_resolved=incident is not None and incident.state is IncidentState.RESOLVED,
            affected_count=None
            if incident is None or table is None or table.stale
            else incident.affected_count,
            instance=view,
            table=None if table is None or table.stale else table,
            is_drain_requested=view is not None and view.facts.id in drains.read_requested_ids(cluster),
            drifted_instances=_read_drifted_instances(cluster) if runbook is RunbookCause.DRIFT else (),
            undoable_change=_find_undoable_change(cluster),
            compare_at="" if row is None else _find_compare_moment(cluster, row.opened_at),
        )
    )
    if row is None or incident is None:
        return scope
    cards, unlisted_count = _present_failing_instances(cause, table, views, now) if view is None else ((), 0)
    finder = RunbookFinder(cluster, table, incident.opened_at)
    suggestion, is_joint = finder.find(incident), incident.cause.kind in JOINT_KINDS
    return replace(
        scope,
        remedies=replace(
            scope.remedies,
            failing_names=tuple(card.name for card in cards) if is_joint else (),
            agent_version=finder.find_agent_version(incident) if suggestion is RunbookCause.VERSION else "",
        ),
        updates=finder.find_updates(incident),
        row=row,
        incident=alert_presenters.present_incident(
            row,
            now,
            url_prefix_of(cluster),
            active_silences=alert_presenters.read_active_silences(cluster, now),
            describer=alert_presenters.find_describer(cluster, now),
        ),
        suggestion=suggestion,
        failing_instances=cards,
        unlisted_count=unlisted_count,
    )


def _read_table(cluster: str, now: float) -> FleetTable | None:
    try:
        return record_reader.reader().table(cluster, now)
    except StateError:
        return None


def _find_incident(cluster: str, incident_id: int, instance_id: str) -> Incident | None:
    rows = Incident.objects.filter(cluster=cluster)
    if incident_id:
        return rows.filter(pk=incident_id).first()
    if not instance_id:
        return None
    kinds = (CauseKind.AUTH.value, CauseKind.PROXY.value)
    open_states = [state.value for state in OPEN_STATES]
    return (
        rows.filter(cause_kind__in=kinds, cause_id=instance_id, state__in=open_states).order_by("-pk").first()
    )


def _present_failing_instances(
    cause: Cause | None, table: FleetTable | None, views: Mapping[str, InstanceView], now: float
) -> tuple[tuple[InstanceCard, ...], int]:
    """Return the failing instances of a joint cause, of the backend, or of the whole cluster, and how many are left."""
    if cause is None or table is None:
        return (), 0
    member_ids = frozenset(views) if cause.kind is CauseKind.CLUSTER else find_member_ids(cause, table)
    failing_views = [view for key, view in views.items() if key in member_ids and view.state in FAULT_STATES]
    failing_views.sort(key=lambda view: (view.facts.kind, natural_sort_key(view.facts.name)))
    stranding, names = find_stranding_instances(table), {key: view.facts.name for key, view in views.items()}
    cards = tuple(
        instance_card_of(view, now, names, is_stranding=view.facts.index in stranding)
        for view in failing_views[:_MAX_INSTANCES]
    )
    return cards, len(failing_views) - len(cards)


def _read_drifted_instances(cluster: str) -> tuple[tuple[str, str], ...]:
    """Return id and name of the instances that do not match their desired policies; none if that is not known."""
    try:
        rows = planner.instance_rows_of(
            cluster, desired_state.desired_values_of(cluster), record_reader.take_record_snapshot()
        )
    except StateError:
        return ()
    return tuple((row.id, row.name) for row in rows if row.has_drift)


def _find_undoable_change(cluster: str) -> int | None:
    """Return the number of the newest change of policies or the networking config that can be undone."""
    rows = select_carried_out(cluster).filter(kind__in=_CHANGE_KINDS)
    return next(
        (row.pk for row in rows.order_by("-started_at")[:_MAX_CHANGES] if kind_of(row).can_undo(row)), None
    )


def _find_compare_moment(cluster: str, opened_at: float) -> str:
    """Return the moment before an incident as in URLs; empty if the history does not reach back to it."""
    at, recorded = opened_at - _COMPARE_BEFORE_SECONDS, read_recorded_range(cluster)
    return "" if recorded is None or at < recorded[0] else format_at(at)
