"""Read and write the values of alerting in the database: incidents with timelines, rules, silences, routes.

The results of one evaluation and its notifications are written in one transaction, so a crash loses none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from enum import Enum
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import Q, QuerySet

from fleet.alerts.evaluation import PreviousIncident
from fleet.alerts.headlines.headline import OpenIncident
from fleet.alerts.matchers import parse_matchers
from fleet.alerts.routing.tree import QUIET_HOURS_REASON_PREFIX, QuietHours, Route
from fleet.alerts.rules import Rule, RuleKind, select_effective_rules
from fleet.alerts.silences import Silence, Window
from fleet.models import alerting
from fleet.models.incidents import Incident, IncidentEvent, VersionChange
from fleet.vocabulary import incidents as incident_values
from fleet.vocabulary.incidents import (
    OPEN_STATES,
    Cause,
    CauseKind,
    IncidentState,
    NotificationKind,
    RuleMark,
    Severity,
    TimelineEntry,
)

#: Fields that identify an incident, and those that people write; an evaluation writes all others.
_FIXED_COLUMNS = ("generation", "opened_at", "acknowledged_at", "acknowledged_by")
#: Columns of an incident: named like the fields of its value, without cluster and cause.
_COLUMNS = tuple(
    field.name for field in fields(incident_values.Incident) if field.name not in ("cluster", "cause")
)
_WRITABLE_COLUMNS = tuple(name for name in _COLUMNS if name not in _FIXED_COLUMNS)
_writable_values_of, _all_values_of = attrgetter(*_WRITABLE_COLUMNS), attrgetter(*_COLUMNS)
_rule_mark_values_of = attrgetter(*(field.name for field in fields(RuleMark)))
_BATCH_SIZE = 500
AcknowledgementFingerprint = tuple[int, dict[int, float | None]]


def incident_of(row: Incident) -> incident_values.Incident:
    """Return the value of an incident row."""
    value_by_field = {
        name: _FIELD_CONVERTERS[name](column) if name in _FIELD_CONVERTERS and column is not None else column
        for name, column in zip(_COLUMNS, _all_values_of(row), strict=True)
    }
    cause = Cause(CauseKind(row.cause_kind), row.cause_id, row.cause_name)
    return incident_values.Incident(cluster=row.cluster_id, cause=cause, **value_by_field)


def load_incident_rows(cluster: str) -> dict[str, Incident]:
    """Return the rows of all unresolved incidents of a cluster, by key."""
    rows = Incident.objects.filter(~Q(state=IncidentState.RESOLVED.value), cluster=cluster)
    return {row.key: row for row in rows}


def read_open_incidents(cluster: str) -> tuple[OpenIncident, ...]:
    """Return the open incidents of a cluster, for its headline."""
    rows = Incident.objects.filter(cluster=cluster, state__in=[state.value for state in OPEN_STATES])
    return tuple(OpenIncident(number, key) for number, key in rows.order_by("pk").values_list("pk", "key"))


def select_effective_incidents() -> QuerySet[Incident]:
    """Return the open incidents of all clusters that are neither inhibited nor silenced."""
    return Incident.objects.filter(state__in=OPEN_STATES, inhibited_by="", silenced_by="").order_by()


def select_open_between(cluster: str, since: float, until: float) -> QuerySet[Incident]:
    """Return the incidents that were open at any time from `since` to `until`, in seconds since the epoch."""
    rows = Incident.objects.filter(cluster=cluster, opened_at__lte=until)
    return rows.exclude(state=IncidentState.PENDING.value).filter(
        Q(resolved_at=None) | Q(resolved_at__gt=since)
    )


def read_incidents_open_at(cluster: str, at: float) -> tuple[OpenIncident, ...]:
    """Return the incidents that were open at a past moment, in seconds since the epoch."""
    rows = select_open_between(cluster, at, at)
    return tuple(OpenIncident(number, key) for number, key in rows.order_by("pk").values_list("pk", "key"))


def read_acknowledgement_fingerprint(cluster: str) -> AcknowledgementFingerprint:
    """Return the number of unresolved incidents, and the acknowledgement times by id."""
    rows = Incident.objects.filter(~Q(state=IncidentState.RESOLVED.value), cluster=cluster)
    return rows.count(), dict(
        rows.exclude(acknowledged_at=None).order_by().values_list("pk", "acknowledged_at")
    )


def read_previous_incident(cluster: str, key: str) -> PreviousIncident | None:
    """Return the last incident of a cause; None if there was none."""
    columns = (
        Incident.objects.filter(cluster=cluster, key=key)
        .order_by("-generation")
        .values_list("generation", "flap_times")
        .first()
    )
    return None if columns is None else PreviousIncident(columns[0], tuple(columns[1]))


def save_outcome(
    rows_by_key: dict[str, Incident],
    changed_incidents: Iterable[incident_values.Incident],
    dropped_incidents: Iterable[incident_values.Incident],
    timeline_entries: Iterable[tuple[incident_values.Incident, TimelineEntry]],
    incidents_before: Mapping[str, incident_values.Incident] = MappingProxyType({}),
) -> None:
    """Write the results of an evaluation and add new incidents to `rows_by_key`. Call it in a transaction.

    `incidents_before`: the incidents as read from the rows; only columns that differ are written.
    """
    rows_by_columns: dict[tuple[str, ...], list[Incident]] = {}
    for incident in changed_incidents:
        row = rows_by_key.get(incident.key)
        if row is None:
            row = rows_by_key[incident.key] = _new_row(incident)
            row.save(force_insert=True)
        else:
            column_names = _find_changed_columns(incidents_before.get(incident.key), incident)
            _write_columns(row, incident, column_names)
            rows_by_columns.setdefault(column_names, []).append(row)
    for columns, updated_rows in rows_by_columns.items():
        _update_rows(updated_rows, columns)
    dropped_ids = [rows_by_key.pop(incident.key).pk for incident in dropped_incidents]
    if dropped_ids:
        Incident.objects.filter(pk__in=dropped_ids, state=IncidentState.PENDING.value).delete()
    IncidentEvent.objects.bulk_create(
        [
            IncidentEvent(
                incident=rows_by_key[incident.key], at=entry.at, kind=entry.kind.value, text=entry.text
            )
            for incident, entry in timeline_entries
        ],
        batch_size=_BATCH_SIZE,
    )


def _find_changed_columns(
    before: incident_values.Incident | None, after: incident_values.Incident
) -> tuple[str, ...]:
    """Return the columns in which two values of an incident differ."""
    if before is None:
        return _WRITABLE_COLUMNS
    pairs = zip(_WRITABLE_COLUMNS, _writable_values_of(before), _writable_values_of(after), strict=True)
    return tuple(name for name, old, new in pairs if old != new)


def _update_rows(rows: Sequence[Incident], column_names: Sequence[str]) -> None:
    """Write columns of many rows with one prepared statement, because `bulk_update` builds an expression per cell."""
    columns_by_name = {column.name: column for column in Incident._meta.concrete_fields}  # noqa: SLF001 - Django documents it
    columns = [columns_by_name[name] for name in column_names]
    # Not `connection`, which looks up the connection of this thread at each use, several times per cell.
    database = connections[DEFAULT_DB_ALIAS]
    assignments = ", ".join(f"{database.ops.quote_name(str(column.column))} = %s" for column in columns)
    parameter_rows = [
        [*(column.get_db_prep_save(getattr(row, column.attname), database) for column in columns), row.pk]
        for row in rows
    ]
    if parameter_rows and columns:
        with database.cursor() as cursor:
            cursor.executemany(f"UPDATE fleet_incident SET {assignments} WHERE id = %s", parameter_rows)  # noqa: S608 - our own names


def record_version_changes(cluster: str, current_versions: Mapping[str, tuple[str, str]], now: float) -> int:
    """Record the instances whose version changed since they were last seen; return their number."""
    last_versions = dict(VersionChange.objects.filter(cluster=cluster).values_list("instance_id", "new"))
    version_changes = [
        VersionChange(
            cluster_id=cluster,
            instance_id=key,
            name=name,
            old=last_versions.get(key, ""),
            new=version[:64],
            at=now,
        )
        for key, (name, version) in current_versions.items()
        if last_versions.get(key, "") != version[:64]
    ]
    VersionChange.objects.bulk_create(version_changes, batch_size=_BATCH_SIZE)
    return len(version_changes)


def read_rules(cluster: str) -> tuple[Rule, ...]:
    """Return the rules that apply to a cluster."""
    rows = alerting.filter_applicable_to(alerting.AlertRule.objects.all(), cluster)
    return select_effective_rules((rule_of(row) for row in rows), cluster)


def rule_of(row: alerting.AlertRule) -> Rule:
    """Return the value of a rule row."""
    column_values: dict[str, Any] = {field.name: getattr(row, field.name) for field in fields(Rule)}
    return Rule(**column_values | {"kind": RuleKind(row.kind), "severity": Severity(row.severity)})


def read_silences(now: float) -> list[Silence]:
    """Return the silences that have not ended."""
    return [silence_of(row) for row in alerting.Silence.objects.filter(ends_at__gt=now)]


def silence_of(row: alerting.Silence) -> Silence:
    """Return the value of a silence row."""
    # Incidents store the name in a column of 300 characters.
    name = f"{row.reason} ({row.creator})"[:300]
    return Silence(name, parse_matchers(row.matchers), row.starts_at, row.ends_at, row.cluster, row.creator)


def read_maintenance_windows() -> list[Window]:
    """Return the enabled maintenance windows."""
    return [window_of(row) for row in alerting.MaintenanceWindow.objects.filter(enabled=True)]


def window_of(row: alerting.MaintenanceWindow) -> Window:
    """Return the value of a maintenance window row."""
    first = datetime.combine(row.first_day, row.start_time)
    return Window(
        row.name, parse_matchers(row.matchers), row.rule, first, row.length, row.time_zone, row.cluster
    )


def read_agent_set_patterns(cluster: str) -> dict[str, tuple[str, ...]]:
    """Return the patterns of agent names by agent set."""
    patterns_by_agent_set: dict[str, list[str]] = {}
    for agent_set, pattern in alerting.AgentSet.objects.filter(cluster=cluster).values_list(
        "name", "pattern"
    ):
        patterns_by_agent_set.setdefault(agent_set, []).append(pattern)
    return {agent_set: tuple(patterns) for agent_set, patterns in patterns_by_agent_set.items()}


def read_routes(cluster: str) -> tuple[Route, ...]:
    """Return the root routes for incidents of a cluster, without routes and channels of other clusters."""
    children: dict[int | None, list[alerting.Route]] = {}
    for row in alerting.filter_applicable_to(alerting.Route.objects.all(), cluster):
        children.setdefault(row.parent_id, []).append(row)
    channel_ids = _read_channel_ids(alerting.Route.channels.through.objects.all(), cluster)
    escalation_ids = _read_channel_ids(alerting.Route.escalate_to.through.objects.all(), cluster)
    return _build_route_branch(None, children, channel_ids, escalation_ids)


def _read_channel_ids(links: QuerySet[Any], cluster: str) -> dict[int, tuple[int, ...]]:
    """Return the enabled channels of each route, those of other clusters left out.

    Their ids only: an evaluation reads the routes every second while an incident may escalate.
    """
    ids_by_route: dict[int, tuple[int, ...]] = {}
    applicable_links = links.filter(channel__enabled=True, channel__cluster__in=("", cluster))
    ordered_links = applicable_links.order_by("channel__name", "channel__cluster")
    for route_id, channel_id in ordered_links.values_list("route", "channel"):
        ids_by_route[route_id] = (*ids_by_route.get(route_id, ()), channel_id)
    return ids_by_route


def enqueue_deliveries(
    row: Incident,
    kind: NotificationKind,
    key: str,
    payload: Mapping[str, Any],
    receivers: Mapping[int, tuple[float, str]],
    now: float,
) -> None:
    """Add one delivery per receiver to the outbox, unless it is already there.

    A delivery that is sent at once also releases those that quiet hours delay, so that notifications of one incident
    keep their order.
    """
    alerting.Delivery.objects.bulk_create(
        [
            alerting.Delivery(
                channel_id=channel,
                cluster=row.cluster_id,
                incident=row,
                key=key,
                kind=kind.value,
                payload=payload,
                created_at=now,
                next_attempt_at=at,
                delay_reason=reason,
            )
            for channel, (at, reason) in receivers.items()
        ],
        ignore_conflicts=True,
    )
    immediate_channel_ids = [channel for channel, (at, _) in receivers.items() if at <= now]
    held_deliveries = alerting.Delivery.objects.filter(
        incident=row, channel__in=immediate_channel_ids, sent_at=None, failed_at=None
    )
    held_deliveries.filter(delay_reason__startswith=QUIET_HOURS_REASON_PREFIX).update(
        next_attempt_at=now, delay_reason=""
    )


def sends_resolved_by_channel(row: Incident) -> dict[int, bool]:
    """Return the channels with deliveries of an incident, and whether they take resolved notifications."""
    deliveries = alerting.Delivery.objects.filter(incident=row, channel__cluster__in=("", row.cluster_id))
    channel_rows = deliveries.values_list("channel", "channel__send_resolved")
    return dict(channel_rows.distinct().order_by())


def find_incidents_with_resolved_receivers(cluster: str, rows: Iterable[Incident]) -> frozenset[int]:
    """Return the ids of those incidents of a cluster whose resolved notification a channel takes, in one query."""
    incident_ids = [row.pk for row in rows]
    if not incident_ids:
        return frozenset()
    deliveries = alerting.Delivery.objects.filter(
        incident__in=incident_ids, channel__cluster__in=("", cluster), channel__send_resolved=True
    )
    return frozenset(deliveries.values_list("incident", flat=True).distinct().order_by())


def plan_resolved_receivers(
    row: Incident, planned_receivers: Mapping[int, tuple[float, str]], now: float
) -> dict[int, tuple[float, str]]:
    """Return the channels of the resolved notification: those that were notified of the incident before.

    `planned_receivers`: the channels of the current routes, which may have changed, for their quiet hours.
    """
    return {
        channel: planned_receivers.get(channel, (now, ""))
        for channel, sends_resolved in sends_resolved_by_channel(row).items()
        if sends_resolved
    }


def read_notified_channel_ids(row: Incident) -> frozenset[int]:
    """Return the channels with notifications of an incident, sent or waiting."""
    channel_ids = alerting.Delivery.objects.filter(incident=row).values_list("channel", flat=True)
    return frozenset(channel_ids.distinct().order_by())


def exclude_channels(
    receivers: Mapping[int, tuple[float, str]], kinds: Collection[str]
) -> dict[int, tuple[float, str]]:
    """Return the receivers without those of the channel kinds."""
    excluded_ids = set(
        alerting.Channel.objects.filter(pk__in=receivers, kind__in=kinds).values_list("pk", flat=True)
    )
    return {channel: schedule for channel, schedule in receivers.items() if channel not in excluded_ids}


def plan_update_receivers(
    row: Incident, kinds: Iterable[str], planned_receivers: Mapping[int, tuple[float, str]], now: float
) -> dict[int, tuple[float, str]]:
    """Return the channels of these kinds that have a notification of an incident, or will have one.

    `planned_receivers`: the channels of the current routes, for their quiet hours.
    """
    deliveries = alerting.Delivery.objects.filter(
        incident=row,
        failed_at=None,
        channel__enabled=True,
        channel__kind__in=kinds,
        channel__cluster__in=("", row.cluster_id),
    )
    channel_ids = deliveries.order_by().values_list("channel", flat=True).distinct()
    return {channel_id: planned_receivers.get(channel_id, (now, "")) for channel_id in channel_ids}


def read_newest_payload(row: Incident) -> Mapping[str, Any] | None:
    """Return the payload of the newest notification of an incident; None if there is none."""
    deliveries = alerting.Delivery.objects.filter(incident=row).order_by("-pk")
    payload: Mapping[str, Any] | None = deliveries.values_list("payload", flat=True).first()
    return payload


def _build_route_branch(
    parent: int | None,
    children: Mapping[int | None, Sequence[alerting.Route]],
    channel_ids: Mapping[int, tuple[int, ...]],
    escalation_ids: Mapping[int, tuple[int, ...]],
    inherited_escalation: tuple[float | None, tuple[int, ...]] = (None, ()),
) -> tuple[Route, ...]:
    """Return the routes below one. A route without an escalation of its own has that of its parent."""
    routes = []
    for row in children.get(parent, ()):
        escalate_to = escalation_ids.get(row.pk, ())
        escalation = (row.escalate_after, escalate_to) if escalate_to else inherited_escalation
        branch = _build_route_branch(row.pk, children, channel_ids, escalation_ids, escalation)
        route = _route_of(row, branch, channel_ids.get(row.pk, ()))
        routes.append(replace(route, escalate_after=escalation[0], escalate_to=escalation[1]))
    return tuple(routes)


def _route_of(row: alerting.Route, children: tuple[Route, ...], channel_ids: tuple[int, ...]) -> Route:
    quiet_hours = None
    if row.quiet_from is not None and row.quiet_until is not None:
        quiet_hours = QuietHours(row.quiet_from, row.quiet_until, row.quiet_zone or "UTC")
    return Route(
        name=row.name,
        matchers=parse_matchers(row.matchers, is_for_route=True),
        cluster=row.cluster,
        min_severity=Severity(row.min_severity),
        channel_ids=channel_ids,
        quiet_hours=quiet_hours,
        should_continue=row.continue_matching,
        children=children,
        includes_parent_channels=row.includes_parent_channels,
        number=row.pk,
    )


def _new_row(incident: incident_values.Incident) -> Incident:
    row = Incident(
        cluster_id=incident.cluster,
        key=incident.key,
        cause_kind=incident.cause.kind.value,
        cause_id=incident.cause.id,
        cause_name=incident.cause.name,
    )
    _write_columns(row, incident, _COLUMNS)
    return row


def _write_columns(row: Incident, incident: incident_values.Incident, column_names: Iterable[str]) -> None:
    for column_name in column_names:
        setattr(row, column_name, _column_value_of(getattr(incident, column_name)))


def _column_value_of(field_value: Any) -> Any:
    """Return the column value of a field."""
    if isinstance(field_value, Enum):
        return field_value.value
    if isinstance(field_value, Mapping):
        return {name: list(_rule_mark_values_of(mark)) for name, mark in field_value.items()}
    return field_value


def _rule_mark_of(mark_parts: Sequence[Any]) -> RuleMark:
    since, last_round_at, round_count, severity, *other_parts = mark_parts
    return RuleMark(since, last_round_at, round_count, Severity(severity), *other_parts)


#: Converters from column values to fields, where they differ.
_FIELD_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("severity", "worst_severity", "notified_severity"), Severity),
    **dict.fromkeys(("agent_names", "fired_rule_names", "flap_times", "agent_sets"), tuple),
    "state": IncidentState,
    "marks": lambda column_value: {name: _rule_mark_of(mark) for name, mark in column_value.items()},
    "trend": lambda column_value: tuple(map(tuple, column_value)),
}
