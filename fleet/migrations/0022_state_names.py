"""Rename stored states, actions and outcomes: `ok` becomes `succeeded`, `token.make` `token.create`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from django.db import migrations, models

#: The triggers of the audit log, which would refuse the new names.
_TRIGGERS = import_module("fleet.migrations.0003_changes")
_AGENTS = {"waiting": "pending", "due": "scheduled", "asked": "in-progress", "ok": "succeeded"}
#: Stored values by model and column.
_VALUES = {
    ("CampaignAgent", "state"): _AGENTS,
    ("RolloutStep", "state"): {"waiting": "pending", "checking": "verifying", "ok": "succeeded"},
    ("IncidentEvent", "kind"): {
        "back": "recurred",
        "steady": "stable",
        "notice": "notification",
        "let go": "unacknowledged",
    },
    ("AuditEntry", "outcome"): {"done": "succeeded"},
    ("AuditEntry", "action"): {
        "agent.unretire": "agent.reinstate",
        "alert-rule.change": "alert-rule.update",
        "channel.change": "channel.update",
        "delivery.again": "delivery.retry",
        "instance.restore": "instance.undegrade",
        "networking-config.seen": "networking-config.external-write",
        "networking-config.try-closing": "networking-config.reset-closing-support",
        "route.change": "route.update",
        "token.make": "token.create",
        "user.off": "user.disable",
        "user.on": "user.enable",
        "window.switch": "window.toggle",
    },
}
#: Keys of the counts in the outcome of a campaign.
_COUNTS = {old: new.replace("-", "_") for old, new in _AGENTS.items()}


def _rename_values(apps: Any, schema_editor: Any) -> None:
    _rename(apps, schema_editor, dict)


def _restore_values(apps: Any, schema_editor: Any) -> None:
    _rename(apps, schema_editor, lambda names: {new: old for old, new in names.items()})


def _rename(
    apps: Any, schema_editor: Any, direction: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> None:
    alias = schema_editor.connection.alias
    for (model, column), names in _VALUES.items():
        rows = apps.get_model("fleet", model).objects.using(alias)
        for old, new in direction(names).items():
            rows.filter(**{column: old}).update(**{column: new})
    changes = apps.get_model("fleet", "Change").objects.using(alias)
    names = direction(_COUNTS)
    for change in changes.filter(kind="reconnect").exclude(outcome={}).only("outcome").iterator():
        outcome = {names.get(key, key): value for key, value in change.outcome.items()}
        changes.filter(pk=change.pk).update(outcome=outcome)


class Migration(migrations.Migration):
    dependencies = [("fleet", "0021_setting_names")]  # noqa: RUF012 - Django's way

    operations = [  # noqa: RUF012 - as above
        migrations.RunPython(_TRIGGERS.unguard, _TRIGGERS.guard),
        migrations.AlterField("auditentry", "outcome", models.CharField(max_length=16)),
        migrations.AlterField(
            "campaignagent",
            "state",
            models.CharField(
                choices=[
                    (state, state)
                    for state in ("pending", "scheduled", "in-progress", "succeeded", "failed", "skipped")
                ],
                default="pending",
                max_length=12,
            ),
        ),
        migrations.AlterField(
            "rolloutstep",
            "state",
            models.CharField(
                choices=[
                    (state, state)
                    for state in "pending draining restarting verifying succeeded failed skipped".split()
                ],
                default="pending",
                max_length=12,
            ),
        ),
        migrations.RunPython(_rename_values, _restore_values),
        migrations.RunPython(_TRIGGERS.guard, _TRIGGERS.unguard),
    ]
