"""Between alerting's values and the database: incidents with their timelines, rules, silences, routes.

What one look changed is written in one transaction together with the messages it owes: nothing is lost with a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from enum import Enum
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import Q

from fleet.alerts.matchers import parse
from fleet.alerts.round import Past
from fleet.alerts.routes import QUIET, QuietHours, Route
from fleet.alerts.rules import DEFAULT_RULES, Rule, RuleKind, effective
from fleet.alerts.silences import Silence, Window
from fleet.models import alerting
from fleet.models.incidents import Incident, IncidentEvent, VersionChange
from fleet.vocabulary import incidents as values
from fleet.vocabulary.incidents import Cause, CauseKind, Happening, IncidentState, Mark, NoticeKind, Severity

#: Which incident a row is, and what people write into it: a look writes everything else.
_UNWRITTEN = ("generation", "opened_at", "acked_at")
#: Columns of an incident: named like the fields of its value, but for the cluster and the cause.
_COLUMNS = tuple(field.name for field in fields(values.Incident) if field.name not in ("cluster", "cause"))
_WRITTEN = tuple(name for name in _COLUMNS if name not in _UNWRITTEN)
_written_of, _columns_of = attrgetter(*_WRITTEN), attrgetter(*_COLUMNS)
_parts_of = attrgetter(*(field.name for field in fields(Mark)))
_CHUNK = 500
Acknowledged = tuple[int, dict[int, float | None]]


def value_of(row: Incident) -> values.Incident:
    """An incident as a value."""
    fields_of = {
        name: _READ[name](column) if name in _READ and column is not None else column
        for name, column in zip(_COLUMNS, _columns_of(row), strict=True)
    }
    cause = Cause(CauseKind(row.cause_kind), row.cause_id, row.cause_name)
    return values.Incident(cluster=row.cluster_id, cause=cause, **fields_of)


def load(cluster: str) -> dict[str, Incident]:
    """The rows of all incidents of a cluster that are not resolved, by key."""
    rows = Incident.objects.filter(~Q(state=IncidentState.RESOLVED.value), cluster=cluster)
    return {row.key: row for row in rows}


def acknowledged(cluster: str) -> Acknowledged:
    """Return how many incidents are not resolved, and when people acknowledged some: a look writes all else."""
    rows = Incident.objects.filter(~Q(state=IncidentState.RESOLVED.value), cluster=cluster)
    return rows.count(), dict(rows.exclude(acked_at=None).order_by().values_list("pk", "acked_at"))


def past(cluster: str, key: str) -> Past | None:
    """What is known of the last incident of a cause."""
    found = (
        Incident.objects.filter(cluster=cluster, key=key)
        .order_by("-generation")
        .values_list("generation", "flips")
        .first()
    )
    return None if found is None else Past(found[0], tuple(found[1]))


def save(
    rows: dict[str, Incident],
    changed: Iterable[values.Incident],
    dropped: Iterable[values.Incident],
    happened: Iterable[tuple[values.Incident, Happening]],
    before: Mapping[str, values.Incident] = MappingProxyType({}),
) -> None:
    """Write what a look changed; `rows` gets those that are new. Call it in a transaction.

    `before`: the incidents that rows were read as; of those only the columns that differ are written.
    """
    updated: dict[tuple[str, ...], list[Incident]] = {}
    for value in changed:
        row = rows.get(value.key)
        if row is None:
            row = rows[value.key] = _new_row(value)
            row.save(force_insert=True)
        else:
            names = _differing(before.get(value.key), value)
            _write(row, value, names)
            updated.setdefault(names, []).append(row)
    for columns, some in updated.items():
        _update(some, columns)
    gone = [rows.pop(value.key).pk for value in dropped]
    if gone:
        Incident.objects.filter(pk__in=gone, state=IncidentState.PENDING.value).delete()
    IncidentEvent.objects.bulk_create(
        [
            IncidentEvent(incident=rows[value.key], at=one.at, kind=one.kind.value, text=one.text)
            for value, one in happened
        ],
        batch_size=_CHUNK,
    )


def _differing(before: values.Incident | None, after: values.Incident) -> tuple[str, ...]:
    """Return the columns in which two values of an incident differ: most of them are JSON, and seldom change."""
    if before is None:
        return _WRITTEN
    pairs = zip(_WRITTEN, _written_of(before), _written_of(after), strict=True)
    return tuple(name for name, old, new in pairs if old != new)


def _update(rows: Sequence[Incident], names: Sequence[str]) -> None:
    """Write columns of many rows by one prepared statement; `bulk_update` makes an expression of every cell."""
    known = {column.name: column for column in Incident._meta.concrete_fields}  # noqa: SLF001 - Django documents it
    columns = [known[name] for name in names]
    # Not `connection`: each use of that asks for the connection of this thread, and a cell has several.
    here = connections[DEFAULT_DB_ALIAS]
    sets = ", ".join(f"{here.ops.quote_name(str(column.column))} = %s" for column in columns)
    cells = [
        [*(column.get_db_prep_save(getattr(row, column.attname), here) for column in columns), row.pk]
        for row in rows
    ]
    if cells and columns:
        with here.cursor() as cursor:
            cursor.executemany(f"UPDATE fleet_incident SET {sets} WHERE id = %s", cells)  # noqa: S608 - our own names


def note_versions(cluster: str, seen: Mapping[str, tuple[str, str]], now: float) -> int:
    """Keep which instances run another version than when they were last seen; how many."""
    last = dict(VersionChange.objects.filter(cluster=cluster).values_list("instance_id", "new"))
    changed = [
        VersionChange(
            cluster_id=cluster, instance_id=key, name=name, old=last.get(key, ""), new=version[:64], at=now
        )
        for key, (name, version) in seen.items()
        if last.get(key, "") != version[:64]
    ]
    VersionChange.objects.bulk_create(changed, batch_size=_CHUNK)
    return len(changed)


def rules(cluster: str) -> tuple[Rule, ...]:
    """Return the rules that hold in a cluster."""
    rows = alerting.in_cluster(alerting.AlertRule.objects.all(), cluster)
    return effective((rule_of(row) for row in rows), cluster)


def rule_of(row: alerting.AlertRule) -> Rule:
    """A rule as a value."""
    given: dict[str, Any] = {field.name: getattr(row, field.name) for field in fields(Rule)}
    return Rule(**given | {"kind": RuleKind(row.kind), "severity": Severity(row.severity)})


def ensure_defaults(**_: Any) -> None:
    """Make the rules we begin with, those that are not there, and the root of the routes."""
    if "fleet_alertrule" not in connection.introspection.table_names():
        return  # migrated to a time before alerts
    for rule in DEFAULT_RULES:
        columns = asdict(rule) | {"kind": rule.kind.value, "severity": int(rule.severity), "builtin": True}
        alerting.AlertRule.objects.get_or_create(name=rule.name, cluster="", defaults=columns)
    if not alerting.Route.objects.exists():
        alerting.Route.objects.create(name="Everything")


def silences(now: float) -> list[Silence]:
    """Those that have not ended."""
    return [silence_of(row) for row in alerting.Silence.objects.filter(ends_at__gt=now)]


def silence_of(row: alerting.Silence) -> Silence:
    """A silence as a value."""
    # Incidents keep the name, in a column of so many characters.
    name = f"{row.reason} ({row.creator})"[:300]
    return Silence(name, parse(row.matchers), row.starts_at, row.ends_at, row.cluster)


def windows() -> list[Window]:
    """Those that are switched on."""
    return [window_of(row) for row in alerting.MaintenanceWindow.objects.filter(enabled=True)]


def window_of(row: alerting.MaintenanceWindow) -> Window:
    """A window as a value."""
    first = datetime.combine(row.first_day, row.starts)
    return Window(row.name, parse(row.matchers), row.rule, first, row.length, row.zone, row.cluster)


def labels(cluster: str) -> dict[str, tuple[str, ...]]:
    """Patterns of agents' names by label."""
    found: dict[str, list[str]] = {}
    for label, pattern in alerting.AgentLabel.objects.filter(cluster=cluster).values_list("label", "pattern"):
        found.setdefault(label, []).append(pattern)
    return {label: tuple(patterns) for label, patterns in found.items()}


def routes(cluster: str) -> tuple[Route, ...]:
    """Return the tree that incidents of a cluster take, from its roots: no route and no channel of another cluster."""
    rows = alerting.in_cluster(alerting.Route.objects.prefetch_related("channels", "escalate_to"), cluster)
    children: dict[int | None, list[alerting.Route]] = {}
    for row in rows:
        children.setdefault(row.parent_id, []).append(row)
    return _branch(None, children, cluster)


def enqueue(
    row: Incident,
    kind: NoticeKind,
    key: str,
    payload: Mapping[str, Any],
    receivers: Mapping[int, tuple[float, str]],
    now: float,
) -> None:
    """Put one message for each receiver into the outbox; what is there already stays as it is.

    What quiet hours hold back goes out before one that they do not: messages about one incident keep their order.
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
                waits_for=why,
            )
            for channel, (at, why) in receivers.items()
        ],
        ignore_conflicts=True,
    )
    at_once = [channel for channel, (at, _) in receivers.items() if at <= now]
    held = alerting.Delivery.objects.filter(incident=row, channel__in=at_once, sent_at=None, failed_at=None)
    held.filter(waits_for__startswith=QUIET).update(next_attempt_at=now, waits_for="")


def told(row: Incident) -> dict[int, bool]:
    """Channels that got a message about an incident, and whether they want its end as well."""
    sent = alerting.Delivery.objects.filter(incident=row, channel__cluster__in=("", row.cluster_id))
    found = sent.values_list("channel", "channel__send_resolved")
    return dict(found.distinct().order_by())


def end_receivers(
    row: Incident, planned: Mapping[int, tuple[float, str]], now: float
) -> dict[int, tuple[float, str]]:
    """Return the channels that get the end of an incident: those that got its beginning.

    Routes may have changed meanwhile; `planned` is what they say now, for their quiet hours.
    """
    return {channel: planned.get(channel, (now, "")) for channel, wants in told(row).items() if wants}


def _branch(
    parent: int | None, children: Mapping[int | None, Sequence[alerting.Route]], cluster: str
) -> tuple[Route, ...]:
    rows = children.get(parent, ())
    return tuple(_route(row, _branch(row.pk, children, cluster), cluster) for row in rows)


def _open_channels(rows: Iterable[alerting.Channel], cluster: str) -> tuple[int, ...]:
    return tuple(row.pk for row in rows if row.enabled and row.cluster in ("", cluster))


def _route(row: alerting.Route, below: tuple[Route, ...], cluster: str) -> Route:
    quiet = None
    if row.quiet_from is not None and row.quiet_until is not None:
        quiet = QuietHours(row.quiet_from, row.quiet_until, row.quiet_zone or "UTC")
    return Route(
        name=row.name,
        matchers=parse(row.matchers, of_routes=True),
        cluster=row.cluster,
        least=Severity(row.least),
        channels=_open_channels(row.channels.all(), cluster),
        escalate_after=row.escalate_after,
        escalate_to=_open_channels(row.escalate_to.all(), cluster),
        quiet=quiet,
        goes_on=row.goes_on,
        children=below,
    )


def _new_row(value: values.Incident) -> Incident:
    row = Incident(
        cluster_id=value.cluster,
        key=value.key,
        cause_kind=value.cause.kind.value,
        cause_id=value.cause.id,
        cause_name=value.cause.name,
    )
    _write(row, value, _COLUMNS)
    return row


def _write(row: Incident, value: values.Incident, names: Iterable[str]) -> None:
    for name in names:
        setattr(row, name, _kept(getattr(value, name)))


def _kept(value: Any) -> Any:
    """Return what a column holds for a field of the value."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: list(_parts_of(mark)) for name, mark in value.items()}
    return value


def _mark(kept: Sequence[Any]) -> Mark:
    since, number, rounds, severity, *others = kept
    return Mark(since, number, rounds, Severity(severity), *others)


#: What columns become that do not hold the field as it is.
_READ: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("severity", "worst_severity", "notified_severity"), Severity),
    **dict.fromkeys(("names", "flips", "labels"), tuple),
    "state": IncidentState,
    "marks": lambda kept: {name: _mark(mark) for name, mark in kept.items()},
    "trend": lambda kept: tuple(map(tuple, kept)),
}
