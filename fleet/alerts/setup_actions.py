"""Changes to rules, agent sets, channels, routes and maintenance windows, each with an audit log entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fleet.alerts.channels.kind import destination_of
from fleet.alerts.rules import Rule
from fleet.alerts.store import rule_of
from fleet.audit import RequestActor, record_outcome
from fleet.models.alerting import AgentSet, AlertRule, Channel, MaintenanceWindow, Route
from fleet.vocabulary.actions import AuditAction

Setting = AlertRule | Channel | MaintenanceWindow | Route

#: Audit actions of creating and changing, by type.
_SAVE_ACTIONS: Mapping[type[Setting], tuple[AuditAction, AuditAction]] = {
    AlertRule: (AuditAction.RULE_CREATE, AuditAction.RULE_UPDATE),
    Channel: (AuditAction.CHANNEL_CREATE, AuditAction.CHANNEL_UPDATE),
    MaintenanceWindow: (AuditAction.WINDOW_CREATE, AuditAction.WINDOW_TOGGLE),
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
    if old_row is None and isinstance(row, MaintenanceWindow):
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


def audit_values_of(row: Setting | None) -> dict[str, Any] | None:
    """Return the values of a rule or channel for the diff in the audit log, without secrets; None for other types."""
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
    return None


def describe_destination(row: Channel) -> str:
    """Return the destination of a channel without secrets."""
    return destination_of(row.config) or ("hidden address" if row.secrets else "none")


def _write_rule(rule: Rule, cluster: str) -> tuple[AlertRule, bool]:
    columns = asdict(rule) | {"kind": rule.kind.value, "severity": int(rule.severity), "cluster": cluster}
    return AlertRule.objects.update_or_create(name=rule.name, cluster=cluster, defaults=columns)
