"""What people set up for alerting, each with its row in the log: rules, labels, channels, routes, windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fleet.alerts.channels.kind import target
from fleet.alerts.rules import Rule
from fleet.alerts.store import rule_of
from fleet.audit import By, attempted
from fleet.models.alerting import AgentLabel, AlertRule, Channel, MaintenanceWindow, Route
from fleet.vocabulary.actions import AuditAction

Setting = AlertRule | Channel | MaintenanceWindow | Route

#: What making one and changing one is called.
_SAVE_ACTIONS: Mapping[type[Setting], tuple[AuditAction, AuditAction]] = {
    AlertRule: (AuditAction.RULE_CREATE, AuditAction.RULE_CHANGE),
    Channel: (AuditAction.CHANNEL_CREATE, AuditAction.CHANNEL_CHANGE),
    MaintenanceWindow: (AuditAction.WINDOW_CREATE, AuditAction.WINDOW_SWITCH),
    Route: (AuditAction.ROUTE_CREATE, AuditAction.ROUTE_CHANGE),
}
_REMOVE_ACTIONS: Mapping[type[AlertRule | MaintenanceWindow | Route], AuditAction] = {
    AlertRule: AuditAction.RULE_DELETE,
    MaintenanceWindow: AuditAction.WINDOW_REMOVE,
    Route: AuditAction.ROUTE_DELETE,
}


def keep(row: Setting, save: Callable[[], object], by: By) -> None:
    """Make or change one by `save`, which writes `row` and what belongs to it."""
    create, change = _SAVE_ACTIONS[type(row)]
    old = type(row).objects.filter(pk=row.pk).first() if row.pk else None
    attempt = by.attempt(change if old else create, row.cluster, row.name, before=document_of(old))
    if old is None and isinstance(row, MaintenanceWindow):
        attempt.reason = row.reason
    with attempted(attempt):
        save()
        attempt.after = document_of(row)


def remove(row: AlertRule | MaintenanceWindow | Route, by: By) -> None:
    """Delete one with all that hangs on it. Channels: `acting.delete_channel`."""
    with attempted(by.attempt(_REMOVE_ACTIONS[type(row)], row.cluster, row.name, before=document_of(row))):
        row.delete()


def override(rule: AlertRule, cluster: str, by: By) -> AlertRule:
    """Return the rule of a cluster that takes the place of an installation's rule there; a copy if it is new."""
    own = AlertRule.objects.filter(name=rule.name, cluster=cluster).first()
    if own is None:
        with attempted(by.attempt(AuditAction.RULE_OVERRIDE, cluster, rule.name)) as attempt:
            own, _ = _write(rule_of(rule), cluster)
            attempt.after = document_of(own)
    return own


def import_rules(rules: Sequence[Rule], by: By) -> None:
    """Make rules, or change those that have the same names."""
    owners = {rule.cluster for rule in rules}
    cluster = owners.pop() if len(owners) == 1 else ""
    names = [rule.name for rule in rules]
    with attempted(by.attempt(AuditAction.RULES_IMPORT, cluster, f"{len(rules)} rules", after=names)):
        for rule in rules:
            _write(rule, rule.cluster)


def add_label(cluster: str, pattern: str, label: str, by: By) -> None:
    """Label the agents of a cluster whose names match a pattern."""
    row = AgentLabel(cluster_id=cluster, pattern=pattern, label=label)
    with attempted(by.attempt(AuditAction.LABEL_CREATE, cluster, str(row))):
        AgentLabel.objects.get_or_create(cluster_id=cluster, pattern=pattern, label=label)


def remove_label(row: AgentLabel, by: By) -> None:
    """Take a label from the agents that have it by a pattern."""
    with attempted(by.attempt(AuditAction.LABEL_DELETE, row.cluster_id, str(row))):
        row.delete()


def document_of(row: Setting | None) -> dict[str, Any] | None:
    """Return the values of a rule or a channel that the log compares, without secrets; None for all else."""
    if isinstance(row, AlertRule):
        rule = rule_of(row)
        return asdict(rule) | {"kind": str(rule.kind), "severity": int(rule.severity)}
    if isinstance(row, Channel):
        private = row.allow_private
        return {"kind": row.kind, "target": target_of(row), "enabled": row.enabled, "private": private}
    return None


def target_of(row: Channel) -> str:
    """Return where a channel sends, for everybody."""
    return target(row.config) or ("a sealed address" if row.secrets else "none")


def _write(rule: Rule, cluster: str) -> tuple[AlertRule, bool]:
    columns = asdict(rule) | {"kind": rule.kind.value, "severity": int(rule.severity), "cluster": cluster}
    return AlertRule.objects.update_or_create(name=rule.name, cluster=cluster, defaults=columns)
