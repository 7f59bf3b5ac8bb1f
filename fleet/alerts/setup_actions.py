"""Changes to rules, agent sets, channels, routes and maintenance windows, each with an audit log entry."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from django.db import transaction

from fleet.alerts.cause_labels import format_named_matchers
from fleet.alerts.channels.kind import destination_of
from fleet.alerts.channels.registry import CHANNEL_KINDS
from fleet.alerts.matchers import parse_matchers
from fleet.alerts.recurrence.schedules import describe_schedule
from fleet.alerts.rules import Rule
from fleet.alerts.store import rule_of
from fleet.audit import RequestActor, record_outcome
from fleet.models.alerting import AgentSet, AlertRule, Channel, MaintenanceWindow, Route
from fleet.protocol.durations import format_exact
from fleet.vocabulary.actions import AuditAction
from fleet.vocabulary.incidents import Severity

Setting = AlertRule | Channel | MaintenanceWindow | Route

#: Rows in one statement: databases limit its parameters.
_BATCH_SIZE = 200
#: Audit actions of creating and changing, by type.
_SAVE_ACTIONS: Mapping[type[Setting], tuple[AuditAction, AuditAction]] = {
    AlertRule: (AuditAction.RULE_CREATE, AuditAction.RULE_UPDATE),
    Channel: (AuditAction.CHANNEL_CREATE, AuditAction.CHANNEL_UPDATE),
    MaintenanceWindow: (AuditAction.WINDOW_CREATE, AuditAction.WINDOW_UPDATE),
    Route: (AuditAction.ROUTE_CREATE, AuditAction.ROUTE_UPDATE),
}
_DELETE_ACTIONS: Mapping[type[AlertRule | MaintenanceWindow | Route], AuditAction] = {
    AlertRule: AuditAction.RULE_DELETE,
    MaintenanceWindow: AuditAction.WINDOW_REMOVE,
    Route: AuditAction.ROUTE_DELETE,
}


def save_setting(row: Setting, save: Callable[[], object], actor: RequestActor) -> None:
    """Create or change a setting by calling `save`, which writes `row`."""
    create_action, update_action = _SAVE_ACTIONS[type(row)]
    old_row = type(row).objects.filter(pk=row.pk).first() if row.pk else None
    attempt = actor.create_attempt(
        update_action if old_row else create_action, row.cluster, row.name, before=audit_values_of(old_row)
    )
    if isinstance(row, MaintenanceWindow):
        if isinstance(old_row, MaintenanceWindow) and old_row.enabled != row.enabled:
            attempt.action = AuditAction.WINDOW_TOGGLE
        else:
            attempt.reason = row.reason
    with record_outcome(attempt):
        save()
        attempt.after = audit_values_of(row)


def delete_setting(row: AlertRule | MaintenanceWindow | Route, actor: RequestActor) -> None:
    """Delete a setting with its dependent rows. For channels see `incident_actions.delete_channel`."""
    with record_outcome(
        actor.create_attempt(_DELETE_ACTIONS[type(row)], row.cluster, row.name, before=audit_values_of(row))
    ):
        row.delete()


def override_rule(rule: AlertRule, cluster: str, actor: RequestActor) -> AlertRule:
    """Return the rule that overrides a rule of the whole installation in a cluster; create it as a copy if needed."""
    override = AlertRule.objects.filter(name=rule.name, cluster=cluster).first()
    if override is None:
        with record_outcome(actor.create_attempt(AuditAction.RULE_OVERRIDE, cluster, rule.name)) as attempt:
            override, _ = _write_rule(rule_of(rule), cluster)
            attempt.after = audit_values_of(override)
    return override


def import_rules(rules: Sequence[Rule], actor: RequestActor) -> None:
    """Create rules, or replace those with the same names."""
    owner_clusters = {rule.cluster for rule in rules}
    cluster = owner_clusters.pop() if len(owner_clusters) == 1 else ""
    names = [rule.name for rule in rules]
    with record_outcome(
        actor.create_attempt(AuditAction.RULES_IMPORT, cluster, f"{len(rules)} rules", after=names)
    ):
        for rule in rules:
            _write_rule(rule, rule.cluster)


def add_agent_set_pattern(cluster: str, pattern: str, agent_set: str, actor: RequestActor) -> None:
    """Add the agents of a cluster whose names match a pattern to an agent set."""
    row = AgentSet(cluster_id=cluster, pattern=pattern, name=agent_set)
    with record_outcome(actor.create_attempt(AuditAction.AGENT_SET_CREATE, cluster, str(row))):
        AgentSet.objects.get_or_create(cluster_id=cluster, pattern=pattern, name=agent_set)


def remove_agent_set_pattern(row: AgentSet, actor: RequestActor) -> None:
    """Remove a pattern from its agent set."""
    with record_outcome(actor.create_attempt(AuditAction.AGENT_SET_DELETE, row.cluster_id, str(row))):
        row.delete()


def change_agent_set_members(
    cluster: str, names: Sequence[str], agent_set: str, actor: RequestActor, *, should_add: bool
) -> int:
    """Add agents to an agent set, or remove them, by their exact names; return how many patterns changed.

    An agent that a pattern with `*` matches remains in the set.
    """
    patterns = [glob.escape(name) for name in dict.fromkeys(names)]
    action = AuditAction.AGENT_SET_CREATE if should_add else AuditAction.AGENT_SET_DELETE
    attempt = actor.create_attempt(action, cluster, agent_set, after={"agents": list(names)})
    rows = AgentSet.objects.filter(cluster=cluster, name=agent_set)
    with record_outcome(attempt), transaction.atomic():
        existing_patterns = set(rows.values_list("pattern", flat=True))
        if should_add:
            missing_patterns = [pattern for pattern in patterns if pattern not in existing_patterns]
            AgentSet.objects.bulk_create(
                (
                    AgentSet(cluster_id=cluster, pattern=pattern, name=agent_set)
                    for pattern in missing_patterns
                ),
                ignore_conflicts=True,
                batch_size=_BATCH_SIZE,
            )
            return len(missing_patterns)
        obsolete_patterns = [pattern for pattern in patterns if pattern in existing_patterns]
        for start in range(0, len(obsolete_patterns), _BATCH_SIZE):
            rows.filter(pattern__in=obsolete_patterns[start : start + _BATCH_SIZE]).delete()
    return len(obsolete_patterns)


def audit_values_of(row: Setting | None) -> dict[str, Any] | None:
    """Return the values of a setting for the diff in the audit log, without secrets; None for no setting."""
    if isinstance(row, AlertRule):
        rule = rule_of(row)
        return asdict(rule) | {"kind": str(rule.kind), "severity": int(rule.severity)}
    if isinstance(row, Channel):
        private = row.allow_private
        return {
            "kind": row.kind,
            "target": describe_destination(row),
            "enabled": row.enabled,
            "private": private,
        }
    if isinstance(row, MaintenanceWindow):
        return {
            "name": row.name,
            "matchers": format_named_matchers(parse_matchers(row.matchers), row.cluster),
            "schedule": describe_schedule(row.rule, row.start_time, row.length, row.time_zone),
            "first_day": f"{row.first_day:%Y-%m-%d}",
            "reason": row.reason,
            "enabled": row.enabled,
        }
    return None if row is None else _audit_values_of_route(row)


def _audit_values_of_route(row: Route) -> dict[str, Any]:
    has_quiet_hours = row.quiet_from is not None and row.quiet_until is not None
    return {
        "name": row.name,
        "parent": None if row.parent is None else row.parent.name,
        "position": row.position,
        "min_severity": Severity(row.min_severity).slug,
        "matchers": format_named_matchers(parse_matchers(row.matchers, is_for_route=True), row.cluster),
        "channels": sorted(channel.name for channel in row.channels.all()),
        "includes_parent_channels": row.includes_parent_channels,
        "escalate_after": "" if row.escalate_after is None else format_exact(row.escalate_after),
        "escalate_to": sorted(channel.name for channel in row.escalate_to.all()),
        "quiet_hours": f"{row.quiet_from:%H:%M} to {row.quiet_until:%H:%M} {row.quiet_zone}"
        if has_quiet_hours
        else "",
        "continues": row.continue_matching,
    }


def describe_destination(row: Channel) -> str:
    """Return the destination of a channel without secrets."""
    kind = CHANNEL_KINDS.get(row.kind)
    default = "" if kind is None else kind.default_destination
    return destination_of(row.config) or default or ("hidden address" if row.secrets else "none")


def _write_rule(rule: Rule, cluster: str) -> tuple[AlertRule, bool]:
    columns = asdict(rule) | {"kind": rule.kind.value, "severity": int(rule.severity), "cluster": cluster}
    return AlertRule.objects.update_or_create(name=rule.name, cluster=cluster, defaults=columns)
