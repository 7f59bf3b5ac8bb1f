"""Alerting settings are saved, deleted and written to the audit log."""

from __future__ import annotations

from datetime import time, timedelta

import pytest

from fleet.alerts import setup_actions
from fleet.alerts.setup.routes import save_route
from fleet.alerts.store import rule_of
from fleet.audit import CONSOLE_ACTOR
from fleet.models.alerting import AgentSet, AlertRule, Channel, MaintenanceWindow, Route
from fleet.models.changes import AuditEntry
from fleet.models.clusters import ensure_default_cluster
from fleet.vocabulary.incidents import Severity

pytestmark = pytest.mark.django_db


def _audit_rows() -> list[tuple[str, str, str]]:
    return [(row.action, row.outcome, row.subject) for row in AuditEntry.objects.order_by("pk")]


def test_create_update_and_delete_are_in_the_audit_log() -> None:
    """With the values before and after, without secrets."""
    channel = Channel(
        name="ops", kind="webhook", config={"host": "https://hooks.example.com"}, secrets="s3cret"
    )
    setup_actions.save_setting(channel, channel.save, CONSOLE_ACTOR)
    channel.enabled = False
    setup_actions.save_setting(channel, channel.save, CONSOLE_ACTOR)
    route = Route(name="night", parent=Route.objects.get())
    setup_actions.save_setting(route, route.save, CONSOLE_ACTOR)
    setup_actions.delete_setting(route, CONSOLE_ACTOR)
    assert _audit_rows() == [
        ("channel.create", "succeeded", "ops"),
        ("channel.update", "succeeded", "ops"),
        ("route.create", "succeeded", "night"),
        ("route.delete", "succeeded", "night"),
    ]
    change = AuditEntry.objects.get(action="channel.update")
    assert (change.before["enabled"], change.after["enabled"]) == (True, False)
    assert "s3cret" not in str(list(AuditEntry.objects.values()))


def test_change_of_a_route_is_in_the_audit_log_with_both_values() -> None:
    """Also its channels, by name, which are stored apart from the row."""
    ops, pager = (Channel.objects.create(name=name, kind="email") for name in ("ops", "pager"))
    route = Route(name="night", parent=Route.objects.get(), matchers="kind=proxy")
    save_route(route, [ops], [], CONSOLE_ACTOR)
    route.min_severity, route.escalate_after = int(Severity.CRITICAL), 900.0
    route.quiet_from, route.quiet_until, route.quiet_zone = time(22), time(6, 30), "Europe/Berlin"
    save_route(route, [ops], [pager], CONSOLE_ACTOR)
    setup_actions.delete_setting(route, CONSOLE_ACTOR)
    creation, change, deletion = AuditEntry.objects.order_by("pk")
    assert (creation.before, creation.after) == (None, change.before)
    assert {
        name: (change.before[name], value)
        for name, value in change.after.items()
        if change.before[name] != value
    } == {
        "min_severity": ("warning", "critical"),
        "escalate_after": ("", "15 min"),
        "escalate_to": ([], ["pager"]),
        "quiet_hours": ("", "22:00 to 06:30 Europe/Berlin"),
    }
    assert (change.after["channels"], change.after["matchers"]) == (["ops"], "kind=proxy")
    assert change.after["parent"] == "Everything"
    assert (deletion.before, deletion.after) == (change.after, None)


def test_maintenance_window_is_disabled_and_removed() -> None:
    """Only the creation has a reason."""
    window = MaintenanceWindow(
        name="sunday", rule="FREQ=WEEKLY", start_time=time(2), length=timedelta(hours=2)
    )
    window.reason = "backups"
    setup_actions.save_setting(window, window.save, CONSOLE_ACTOR)
    window.enabled = False
    setup_actions.save_setting(window, window.save, CONSOLE_ACTOR)
    setup_actions.delete_setting(window, CONSOLE_ACTOR)
    rows = AuditEntry.objects.order_by("pk").values_list("action", "reason")
    assert list(rows) == [("window.create", "backups"), ("window.toggle", ""), ("window.remove", "")]


def test_failed_save_is_in_the_audit_log() -> None:
    """The error is raised."""

    def fail_to_save() -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        setup_actions.save_setting(AlertRule(name="mine"), fail_to_save, CONSOLE_ACTOR)
    assert _audit_rows() == [("alert-rule.create", "failed", "mine")]


def test_rules_and_agent_sets_of_a_cluster() -> None:
    """An override is created once; an import logs its rules; an agent set is removed."""
    cluster = ensure_default_cluster().pk
    rule = AlertRule.objects.get(name="Agents stranded")
    cluster_rule = setup_actions.override_rule(rule, cluster, CONSOLE_ACTOR)
    assert (cluster_rule.cluster, cluster_rule.min_count) == (cluster, rule.min_count)
    assert setup_actions.override_rule(rule, cluster, CONSOLE_ACTOR) == cluster_rule
    setup_actions.import_rules([rule_of(cluster_rule)], CONSOLE_ACTOR)
    setup_actions.add_agent_set_pattern(cluster, "web-*", "lab", CONSOLE_ACTOR)
    agent_set = AgentSet.objects.get()
    setup_actions.remove_agent_set_pattern(agent_set, CONSOLE_ACTOR)
    assert [action for action, _, _ in _audit_rows()] == [
        "alert-rule.override", "alert-rules.import", "agent-set.create", "agent-set.delete",
    ]  # fmt: skip
    assert AuditEntry.objects.get(action="alert-rules.import").after == ["Agents stranded"]
    assert AuditEntry.objects.filter(cluster=cluster).count() == 4
