"""The alert rules and the route that every installation begins with. Light to import: every command does it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.db import connection

from fleet.alerts.rules import DEFAULT_RULES
from fleet.models import alerting


def ensure_alert_defaults(**_: Any) -> None:
    """Create the built-in rules that are missing, and the root route if there are no routes."""
    if "fleet_alertrule" not in connection.introspection.table_names():
        return  # migrated back to before alerting existed
    for rule in DEFAULT_RULES:
        columns = asdict(rule) | {"kind": rule.kind.value, "severity": int(rule.severity), "builtin": True}
        alerting.AlertRule.objects.get_or_create(name=rule.name, cluster="", defaults=columns)
    if not alerting.Route.objects.exists():
        alerting.Route.objects.create(name="Everything")
