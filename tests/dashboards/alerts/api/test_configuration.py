from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from fleet.models.access import Permission
from fleet.models.alerting import AlertRule, Channel, MaintenanceWindow
from fleet.models.changes import AuditEntry
from fleet.models.sealed_secrets import unseal
from fleet.models.tokens import create_token
from tests.dashboards.alerts.api.conftest import get, post
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db

_TEXT = """\
channels:
- name: ops
  kind: webhook
  url: ${HOOK_URL}
rules:
- name: Agents stranded
  min_count: 7
"""
_BODY: dict[str, Any] = {"document": _TEXT, "variables": {"HOOK_URL": "https://hooks.example.com/s3cret"}}


def test_document_is_planned_applied_and_exported(client: Client, config_admin: dict[str, str]) -> None:
    """By the fingerprint of the plan; no response and no audit entry has a secret."""
    response = post(client, "alerting/plan", _BODY, config_admin)
    plan = response.json()
    assert [(change["action"], change["kind"], change["name"]) for change in plan["changes"]] == [
        ("add", "channel", "ops"), ("change", "rule", "Agents stranded"),
    ]  # fmt: skip
    assert plan["changes"][1]["fields"] == [{"field": "min_count", "before": "5", "after": "7"}]
    assert plan["changes"][0]["fields"][1] == {"field": "url", "before": "", "after": "stored"}
    assert not Channel.objects.exists()
    applied = post(client, "alerting/apply", _BODY | {"fingerprint": plan["fingerprint"]}, config_admin)
    assert applied.json()["changes"] == plan["changes"]
    assert unseal(Channel.objects.get().secrets) == {"url": "https://hooks.example.com/s3cret"}
    assert AlertRule.objects.get(name="Agents stranded").min_count == 7
    export = get(client, "alerting", config_admin).json()
    assert "url: ${REFLOAT_CHANNEL_OPS_URL}" in export["document"]
    plan = post(client, "alerting/plan", {"document": export["document"], "prune": True}, config_admin).json()
    assert plan["changes"] == []
    texts = (
        response.content.decode(),
        applied.content.decode(),
        str(export),
        str(list(AuditEntry.objects.values())),
    )
    assert not [text for text in texts if "s3cret" in text]


def test_change_in_between_is_refused(client: Client, config_admin: dict[str, str]) -> None:
    """409; nothing is applied."""
    fingerprint = post(client, "alerting/plan", _BODY, config_admin).json()["fingerprint"]
    AlertRule.objects.filter(name="Agents at risk").update(enabled=False)
    response = post(client, "alerting/apply", _BODY | {"fingerprint": fingerprint}, config_admin)
    assert response.status_code == 409
    assert "nothing was applied" in response.json()["detail"]
    assert not Channel.objects.exists()


def test_problems_are_named_by_their_lines(client: Client, config_admin: dict[str, str]) -> None:
    """Several of one line together."""
    document = "rules:\n- {name: x, min_count: many, min_share: 5}\n- name: y\n"
    response = post(client, "alerting/plan", {"document": document}, config_admin)
    assert response.status_code == 400
    assert response.json()["problems"] == {
        "line 2": "min_count: 'many' is not a whole number; min_share: 5 is not a percentage from 0 % to 100 %. "
        "Write the unit: 0.5 %; the kind of a new rule is missing; the severity of a new rule is missing",
        "line 3": "the kind of a new rule is missing; the severity of a new rule is missing",
    }  # fmt: skip
    response = post(client, "alerting/apply", {"document": document, "fingerprint": "x"}, config_admin)
    assert list(response.json()["problems"]) == ["line 2", "line 3"]
    response = post(client, "alerting/plan", {"document": "- x"}, config_admin)
    assert list(response.json()["problems"]) == ["document"]


def test_window_of_everything_requires_the_word(client: Client, config_admin: dict[str, str]) -> None:
    """The plan says so."""
    document = "maintenance_windows: [{name: w, rule: FREQ=DAILY, start_time: '22:00', reason: abc}]"
    plan = post(client, "alerting/plan", {"document": document}, config_admin).json()
    assert plan["is_confirmation_required"] is True
    body = {"document": document, "fingerprint": plan["fingerprint"]}
    assert post(client, "alerting/apply", body, config_admin).status_code == 400
    assert (
        post(client, "alerting/apply", body | {"confirmation": "everything"}, config_admin).status_code == 200
    )
    assert MaintenanceWindow.objects.get().creator == "config-admin"


def test_limited_user_exports_no_channel_of_the_installation(
    client: Client, config_admin: dict[str, str], make_limited_user: MakeUser
) -> None:
    """And imports only into the own cluster."""
    Channel.objects.create(name="boss", kind="email", config={"to": "boss@example.com"})
    scopes = [Permission.VIEW_FLEET, Permission.CHANGE_CONFIG]
    _, secret = create_token(
        make_limited_user("config admin"), "t", scopes, lifetime=timedelta(days=1), now=timezone.now()
    )
    headers = {"Authorization": f"Bearer {secret}"}
    assert "boss@" not in get(client, "clusters/other/alerting", headers).json()["document"]
    assert get(client, "alerting", headers).status_code == 403
    response = post(client, "clusters/other/alerting/plan", _BODY, headers)
    assert "belongs to the whole installation" in response.json()["problems"]["line 2"]
    own = {"document": "rules: [{name: x, cluster: other, kind: rate, severity: info}]"}
    assert post(client, "clusters/other/alerting/plan", own, headers).status_code == 200


def test_session_needs_a_recent_proof_to_apply(
    client: Client, config_admin: dict[str, str], person: MakeUser
) -> None:
    """A token needed one when it was created; a preview needs none."""
    client.force_login(person("admin"))
    assert post(client, "alerting/plan", _BODY, {}).status_code == 200
    assert post(client, "alerting/apply", _BODY | {"fingerprint": "x"}, {}).status_code == 403
