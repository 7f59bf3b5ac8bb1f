"""Rename built-in alert rules in plain words: `Console blind` becomes `No monitoring data`.

With a rule go the rules of clusters that override it by name, the marks of incidents, the payloads of notifications,
and matchers such as `rule="Console blind"`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from django.db import migrations

_RULES = {
    "Console blind": "No monitoring data",
    "Auth or proxy sick": "Auth or proxy failing",
    "Agents lost fast": "High agent loss rate",
}
_BATCH = 500


def _rename_rules(apps: Any, schema_editor: Any) -> None:
    _rename(apps, schema_editor, _RULES)


def _restore_rules(apps: Any, schema_editor: Any) -> None:
    _rename(apps, schema_editor, {new: old for old, new in _RULES.items()})


def _rename(apps: Any, schema_editor: Any, names: Mapping[str, str]) -> None:
    alias = schema_editor.connection.alias
    for old, new in names.items():
        _rename_rule(apps.get_model("fleet", "AlertRule").objects.using(alias), old, new)
    for model in ("Silence", "MaintenanceWindow", "Route"):
        rows = apps.get_model("fleet", model).objects.using(alias)
        for row in rows.filter(matchers__contains="rule").only("matchers").iterator():
            matchers = _with_names(row.matchers, names)
            if matchers != row.matchers:
                rows.filter(pk=row.pk).update(matchers=matchers)
    incidents = apps.get_model("fleet", "Incident").objects.using(alias)
    for incident in incidents.only("marks").order_by("pk").iterator(_BATCH):
        if names.keys() & incident.marks.keys():
            marks = {names.get(name, name): mark for name, mark in incident.marks.items()}
            incidents.filter(pk=incident.pk).update(marks=marks)
    deliveries = apps.get_model("fleet", "Delivery").objects.using(alias)
    for delivery in deliveries.only("payload").order_by("pk").iterator(_BATCH):
        incident = delivery.payload.get("incident")
        if isinstance(incident, dict) and names.keys() & set(incident.get("rules", ())):
            rules = sorted(names.get(name, name) for name in incident["rules"])
            payload = {**delivery.payload, "incident": {**incident, "rules": rules}}
            deliveries.filter(pk=delivery.pk).update(payload=payload)


def _rename_rule(rules: Any, old: str, new: str) -> None:
    """Rename the rule of the whole installation, and those of clusters that override it."""
    for rule in rules.filter(name=old):
        # After a migration back, the old rule and the newly created built-in one exist. The old one has the settings.
        rules.filter(name=new, cluster=rule.cluster, builtin=True).delete()
        rules.filter(name=new, cluster=rule.cluster).update(name=f"{new} (custom)")
        rules.filter(pk=rule.pk).update(name=new)


def _with_names(matchers: str, names: Mapping[str, str]) -> str:
    """Return matchers with the new names of rules; matchers without an old name stay as they were typed."""
    try:
        terms = shlex.split(matchers)
    except ValueError:
        return matchers
    new_terms = [
        f"{field}={names.get(value, value)}" if field in ("rule", "rule!") else term
        for term in terms
        for field, _, value in (term.partition("="),)
    ]
    return matchers if new_terms == terms else shlex.join(new_terms)


class Migration(migrations.Migration):
    dependencies = [("fleet", "0024_incident_names")]  # noqa: RUF012 - Django's way

    operations = [migrations.RunPython(_rename_rules, _restore_rules)]  # noqa: RUF012 - as above
