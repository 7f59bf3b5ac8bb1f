"""Alert rules: what may change of them, and saving them. docs/reference/alerts.md, "Alert rules"."""

from __future__ import annotations

from django.db import transaction

from fleet.alerts import setup_actions
from fleet.alerts.rules import find_rule_problems
from fleet.alerts.setup.problems import SetupError, find_column_problems, require_no_problems
from fleet.alerts.setup.versions import require_version, write_row
from fleet.alerts.store import rule_of
from fleet.audit import RequestActor
from fleet.models.alerting import AlertRule


def has_fixed_identity(row: AlertRule) -> bool:
    """Return whether name and kind cannot change: of a built-in rule, and of one that overrides another by its name."""
    if row.builtin:
        return True
    return bool(row.pk and row.cluster) and AlertRule.objects.filter(cluster="", name=row.name).exists()


def save_rule(row: AlertRule, actor: RequestActor, *, seen_version: str = "") -> None:
    """Create or change a rule. Raises SetupError, and SetupChangedError if the row is not `seen_version` now."""

    def save() -> None:
        with transaction.atomic():
            if row.pk:
                require_version(row, seen_version, "rule")
            row.name = row.name.strip()
            require_no_problems(find_rule_row_problems(row))
            write_row(row)

    setup_actions.save_setting(row, save, actor)


def find_rule_row_problems(row: AlertRule) -> dict[str, str]:
    """Return what is wrong with a rule, by field: values, a name that is taken, and what cannot change."""
    problems = find_column_problems(row, "alert rule") | find_rule_problems(rule_of(row))
    stored_row = AlertRule.objects.filter(pk=row.pk).first() if row.pk else None
    if stored_row is not None and has_fixed_identity(stored_row):
        for field in ("name", "kind"):
            if getattr(row, field) != getattr(stored_row, field):
                noun = "built-in rule" if stored_row.builtin else "rule that overrides another"
                problems[field] = f"The {field} of a {noun} cannot be changed."
    return problems


def delete_rule(row: AlertRule, actor: RequestActor) -> None:
    """Delete a rule. Raises SetupError for a built-in one."""
    if row.builtin:
        raise SetupError({"rule": "A built-in rule cannot be deleted. Disable it instead."})
    setup_actions.delete_setting(row, actor)
