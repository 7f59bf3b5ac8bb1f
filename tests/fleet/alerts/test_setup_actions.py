"""What people set up for alerting: kept, deleted, and written in the log by the same function."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fleet.alerts import setup_actions
from fleet.alerts.store import rule_of
from fleet.audit import CONSOLE_ACTOR
from fleet.models.alerting import AgentLabel, AlertRule, Channel, MaintenanceWindow, Route
from fleet.models.changes import AuditEntry
from fleet.models.clusters import ensure_default_cluster

pytestmark = pytest.mark.django_db


def _log() -> list[tuple[str, str, str]]:
    return [(row.action, row.outcome, row.subject) for row in AuditEntry.objects.order_by("pk")]


def test_making_changing_and_deleting_are_rows() -> None:
    """With what a rule and a channel were before and after; a channel without its secrets."""
    channel = Channel(
        name="ops", kind="webhook", config={"host": "https://hooks.example.com"}, secrets="s3cret"
    )
    setup_actions.save_setting(channel, channel.save, CONSOLE_ACTOR)
    channel.enabled = False
    setup_actions.save_setting(channel, channel.save, CONSOLE_ACTOR)
    route = Route(name="night", parent=Route.objects.get())
    setup_actions.save_setting(route, route.save, CONSOLE_ACTOR)
    setup_actions.delete_setting(route, CONSOLE_ACTOR)
    assert _log() == [
        ("channel.create", "done", "ops"),
        ("channel.change", "done", "ops"),
        ("route.create", "done", "night"),
        ("route.delete", "done", "night"),
    ]
    change = AuditEntry.objects.get(action="channel.change")
    assert (change.before["enabled"], change.after["enabled"]) == (True, False)
    assert "s3cret" not in str(list(AuditEntry.objects.values()))


def test_window_is_switched_and_removed() -> None:
    """The reason is of who made it."""
    window = MaintenanceWindow(name="sunday", rule="FREQ=WEEKLY", starts="02:00", length=timedelta(hours=2))
    window.reason = "backups"
    setup_actions.save_setting(window, window.save, CONSOLE_ACTOR)
    window.enabled = False
    setup_actions.save_setting(window, window.save, CONSOLE_ACTOR)
    setup_actions.delete_setting(window, CONSOLE_ACTOR)
    rows = AuditEntry.objects.order_by("pk").values_list("action", "reason")
    assert list(rows) == [("window.create", "backups"), ("window.switch", ""), ("window.remove", "")]


def test_save_that_fails_is_a_row() -> None:
    """The error goes on."""

    def full() -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        setup_actions.save_setting(AlertRule(name="mine"), full, CONSOLE_ACTOR)
    assert _log() == [("alert-rule.create", "failed", "mine")]


def test_rules_and_labels_of_a_cluster() -> None:
    """An override is made once; an import names its rules; a label is taken away again."""
    cluster = ensure_default_cluster().pk
    rule = AlertRule.objects.get(name="Agents stranded")
    own = setup_actions.override_rule(rule, cluster, CONSOLE_ACTOR)
    assert (own.cluster, own.min_count) == (cluster, rule.min_count)
    assert setup_actions.override_rule(rule, cluster, CONSOLE_ACTOR) == own
    setup_actions.import_rules([rule_of(own)], CONSOLE_ACTOR)
    setup_actions.add_label(cluster, "web-*", "lab", CONSOLE_ACTOR)
    label = AgentLabel.objects.get()
    setup_actions.remove_label(label, CONSOLE_ACTOR)
    assert [action for action, _, _ in _log()] == [
        "alert-rule.override", "alert-rules.import", "agent-label.create", "agent-label.delete",
    ]  # fmt: skip
    assert AuditEntry.objects.get(action="alert-rules.import").after == ["Agents stranded"]
    assert AuditEntry.objects.filter(cluster=cluster).count() == 4
