from __future__ import annotations

import pytest

from fleet.alerts.setup.problems import SetupError
from fleet.alerts.setup.rules import delete_rule, find_rule_row_problems, has_fixed_identity, save_rule
from fleet.audit import CONSOLE_ACTOR
from fleet.models.alerting import AlertRule
from fleet.models.changes import AuditEntry

pytestmark = pytest.mark.django_db


def test_builtin_rules_and_overrides_keep_name_and_kind() -> None:
    """They are found by them."""
    builtin = AlertRule.objects.get(name="Agents stranded")
    override = AlertRule.objects.create(name="Agents stranded", cluster="eu", kind="stranded", severity=1)
    own = AlertRule(name="own", kind="stranded", severity=1)
    save_rule(own, CONSOLE_ACTOR)
    assert [has_fixed_identity(row) for row in (builtin, override, own)] == [True, True, False]
    for row in (builtin, override):
        row.name, row.kind = "other", "rate"
        assert list(find_rule_row_problems(row)) == ["name", "kind"]
    own.name, own.kind = "other", "rate"
    save_rule(own, CONSOLE_ACTOR)
    assert AlertRule.objects.get(pk=own.pk).name == "other"


def test_invalid_rule_is_not_saved_and_the_refusal_is_in_the_audit_log() -> None:
    """So is that of the deletion of a built-in rule."""
    row = AlertRule(name="x", kind="stranded", severity=1, min_share=5)
    with pytest.raises(SetupError, match="between 0 and 1"):
        save_rule(row, CONSOLE_ACTOR)
    assert AuditEntry.objects.get().outcome == "refused"
    with pytest.raises(SetupError, match="cannot be deleted"):
        delete_rule(AlertRule.objects.get(name="Agents stranded"), CONSOLE_ACTOR)
