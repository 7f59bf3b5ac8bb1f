from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from fleet.models.alerting import AlertRule
from fleet.models.changes import AuditEntry
from tests.dashboards.alerts.api.conftest import get, post

pytestmark = pytest.mark.django_db

_BODY: dict[str, Any] = {"name": "web agents", "kind": "stranded", "severity": "warning", "min_count": 3}


def _number_of(name: str) -> int:
    return AlertRule.objects.get(name=name, cluster="").pk


def test_rule_is_created_listed_changed_and_deleted(client: Client, config_admin: dict[str, str]) -> None:
    """With its condition in words."""
    response = post(client, "alert-rules", _BODY, config_admin)
    assert response.status_code == 201, response.content
    rule = response.json()
    assert rule["condition"] == "When 3 agents are stranded by one cause for 2 polls."
    assert rule["notifications"] == "Notify after 30 s, again every 4 h until acknowledged."
    assert rule in get(client, "alert-rules", config_admin).json()["rules"]
    path = f"alert-rules/{rule['number']}"
    assert get(client, path, config_admin).json() == rule
    body = {"severity": "critical", "group_wait_seconds": 0, "is_enabled": False, "version": rule["version"]}
    new_rule = post(client, path, body, config_admin).json()
    assert (new_rule["severity"], new_rule["group_wait_seconds"], new_rule["is_enabled"]) == (
        "critical",
        0,
        False,
    )
    assert new_rule["min_count"] == 3
    assert post(client, path, body, config_admin).status_code == 409
    assert post(client, f"{path}/delete", {}, config_admin).json()["name"] == "web agents"
    assert not AlertRule.objects.filter(name="web agents").exists()
    assert list(AuditEntry.objects.filter(outcome="succeeded").values_list("action", flat=True)) == [
        "alert-rule.delete", "alert-rule.update", "alert-rule.create",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": "Agents stranded"}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"agent_set": "a\nb"}, "agent_set"),
        ({"runbook": "javascript:alert(1)"}, "runbook"),
        ({"kind": "weather"}, ""),
        ({"severity": "loud"}, ""),
        ({"min_share": 5}, ""),
        ({"min_count": -1}, ""),
        ({"builtin": True}, ""),
    ],
)
def test_invalid_rule_is_refused(
    client: Client, config_admin: dict[str, str], wrong: dict[str, Any], field: str
) -> None:
    """With a sentence for the field, as on the page."""
    rule_count = AlertRule.objects.count()
    response = post(client, "alert-rules", _BODY | wrong, config_admin)
    assert response.status_code == 400
    assert list(response.json().get("problems", {})) == ([field] if field else [])
    assert AlertRule.objects.count() == rule_count


def test_builtin_rule_is_changed_but_not_renamed_or_deleted(
    client: Client, config_admin: dict[str, str]
) -> None:
    """As on the page."""
    path = f"alert-rules/{_number_of('Agents stranded')}"
    assert post(client, path, {"min_count": 9}, config_admin).json()["min_count"] == 9
    for wrong in ({"name": "x"}, {"kind": "rate"}):
        response = post(client, path, wrong, config_admin)
        assert "built-in rule cannot be changed" in response.json()["problems"][next(iter(wrong))]
    assert post(client, f"{path}/delete", {}, config_admin).status_code == 400
    assert AlertRule.objects.filter(name="Agents stranded", kind="stranded").exists()


def test_rule_is_overridden_in_a_cluster(client: Client, config_admin: dict[str, str]) -> None:
    """With a copy, which is then listed beside the rule of the installation."""
    number = _number_of("Agents stranded")
    override = post(client, f"alert-rules/{number}/override", {}, config_admin).json()
    assert (override["cluster"], override["is_builtin"]) == ("default", False)
    assert get(client, f"alert-rules/{number}", config_admin).json()["is_overridden"] is True
    path = f"alert-rules/{override['number']}"
    assert post(client, f"{path}/override", {}, config_admin).status_code == 409
    assert post(client, path, {"name": "x"}, config_admin).status_code == 400


def test_backtest_tries_the_rule_with_other_values(client: Client, config_admin: dict[str, str]) -> None:
    """Nothing is stored; some kinds have none."""
    path = f"alert-rules/{_number_of('Agents stranded')}/backtest"
    response = get(client, f"{path}?min_count=2&pending_seconds=60", config_admin).json()
    assert response["is_supported"] is True
    assert "history is still empty" in response["summary"]
    assert AlertRule.objects.get(name="Agents stranded").min_count == 5
    blind = get(client, f"alert-rules/{_number_of('No monitoring data')}/backtest", config_admin).json()
    assert blind["is_supported"] is False


def test_unknown_rule_is_not_found(client: Client, config_admin: dict[str, str]) -> None:
    """Whatever is asked of it."""
    for path in ("alert-rules/77000", "alert-rules/77000/delete", "alert-rules/77000/override"):
        assert post(client, path, {}, config_admin).status_code == 404
