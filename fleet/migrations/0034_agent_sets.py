"""Rename what was called label of agents: a name for agents whose names match patterns is an *agent set*.

Labels are what agents report. With the table go the column of rules and incidents, matchers such as `label=lab`, and
the actions of the audit log.
"""

from __future__ import annotations

import shlex
from importlib import import_module
from typing import Any

import django.db.models.deletion
from django.db import migrations, models

#: The triggers of the audit log, which would refuse the new names.
_TRIGGERS = import_module("fleet.migrations.0003_changes")
_ACTIONS = {"agent-label.create": "agent-set.create", "agent-label.delete": "agent-set.delete"}


def _rename_values(apps: Any, schema_editor: Any) -> None:
    _rename(apps, schema_editor, "label", "agent_set", _ACTIONS)


def _restore_values(apps: Any, schema_editor: Any) -> None:
    _rename(apps, schema_editor, "agent_set", "label", {new: old for old, new in _ACTIONS.items()})


def _rename(apps: Any, schema_editor: Any, old: str, new: str, actions: dict[str, str]) -> None:
    alias = schema_editor.connection.alias
    entries = apps.get_model("fleet", "AuditEntry").objects.using(alias)
    for old_action, new_action in actions.items():
        entries.filter(action=old_action).update(action=new_action)
    for model in ("Silence", "MaintenanceWindow", "Route"):
        rows = apps.get_model("fleet", model).objects.using(alias)
        for row in rows.filter(matchers__contains=old).only("matchers").iterator():
            matchers = _with_field(row.matchers, old, new)
            if matchers != row.matchers:
                rows.filter(pk=row.pk).update(matchers=matchers)


def _with_field(matchers: str, old: str, new: str) -> str:
    """Return matchers with another name of a field; matchers without the field stay as they were typed."""
    try:
        terms = shlex.split(matchers)
    except ValueError:
        return matchers
    new_terms = [
        f"{new}{term.removeprefix(old)}" if term.startswith((f"{old}=", f"{old}!=")) else term for term in terms
    ]
    return matchers if new_terms == terms else shlex.join(new_terms)


class Migration(migrations.Migration):
    dependencies = [("fleet", "0033_agent_attributes")]  # noqa: RUF012 - Django's way

    operations = [  # noqa: RUF012 - as above
        migrations.RemoveConstraint("agentlabel", "one_label_per_pattern"),
        migrations.RenameModel("AgentLabel", "AgentSet"),
        migrations.RenameField("agentset", "label", "name"),
        migrations.AlterModelOptions("agentset", {"default_permissions": (), "ordering": ("name", "pattern")}),
        migrations.AlterField(
            "agentset",
            "cluster",
            models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="agent_sets", to="fleet.cluster"
            ),
        ),
        migrations.AddConstraint(
            "agentset",
            models.UniqueConstraint(
                fields=("cluster", "pattern", "name"), name="one_row_per_set_and_pattern"
            ),
        ),
        migrations.RenameField("alertrule", "label", "agent_set"),
        migrations.RenameField("incident", "labels", "agent_sets"),
        migrations.RunPython(_TRIGGERS.unguard, _TRIGGERS.guard),
        migrations.RunPython(_rename_values, _restore_values),
        migrations.RunPython(_TRIGGERS.guard, _TRIGGERS.unguard),
    ]
