"""The delivery log by the API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from dashboards.alerts.delivery_rows import HIDDEN_CHANNEL_TEXT
from fleet.models.access import Permission
from fleet.models.alerting import Channel, Delivery
from fleet.models.changes import AuditEntry
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.models.tokens import create_token
from tests.dashboards.alerts.api.conftest import get, post
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db


def _create(key: str, channel: Channel | None, **columns: Any) -> Delivery:
    defaults: dict[str, Any] = {
        "kind": "firing", "cluster": "default", "payload": {"subject": f"subject {key}"}, "created_at": 1_000.0,
        "next_attempt_at": 1_000.0,
    }  # fmt: skip
    return Delivery.objects.create(key=key, channel=channel, **defaults | columns)


@pytest.fixture
def log() -> dict[str, Delivery]:
    """A sent, a failed and a waiting notification, one to a channel that was deleted, and one of another cluster."""
    ops, pager = (Channel.objects.create(name=name, kind="webhook") for name in ("ops", "pager"))
    incident = Incident.objects.create(
        cluster=ensure_default_cluster(), key="proxy/1", cause_kind="proxy", cause_id="1", cause_name="proxy-1",
        generation=1, state="firing", severity=2, opened_at=1.0,
    )  # fmt: skip
    return {
        "sent": _create("sent", ops, sent_at=1_001.0, attempted_at=1_001.0, attempts=1, incident=incident),
        "failed": _create("failed", pager, failed_at=1_002.0, attempts=3, last_error="refused"),
        "waiting": _create("waiting", ops, next_attempt_at=9e9, delay_reason="quiet hours of route night"),
        "orphan": _create("orphan", None, channel_name="gone", failed_at=1_003.0),
        "foreign": _create("foreign", ops, cluster="other"),
    }


def _keys(client: Client, query: str, headers: dict[str, str]) -> list[str]:
    response = get(client, f"deliveries?{query}", headers)
    assert response.status_code == 200, response.content
    return [delivery["key"] for delivery in response.json()["deliveries"]]


def test_log_is_filtered(client: Client, operator: dict[str, str], log: dict[str, Delivery]) -> None:
    """By channel, incident and state; the newest first, and none of another cluster."""
    ops, incident = log["sent"].channel_id, log["sent"].incident_id
    assert _keys(client, "", operator) == ["orphan", "waiting", "failed", "sent"]
    assert _keys(client, f"channel={ops}", operator) == ["waiting", "sent"]
    assert _keys(client, f"incident={incident}", operator) == ["sent"]
    assert _keys(client, "state=failed", operator) == ["orphan", "failed"]
    assert _keys(client, f"state=waiting&channel={ops}", operator) == ["waiting"]
    for wrong_query in ("state=lost", "channel=0", "cursor=x", "outcome=sent"):
        assert get(client, f"deliveries?{wrong_query}", operator).status_code == 400
    assert get(client, "clusters/nowhere/deliveries", operator).status_code == 404


def test_row_has_the_outcome(client: Client, operator: dict[str, str], log: dict[str, Delivery]) -> None:
    """Its times, attempts and errors, and the name of a channel that was deleted."""
    rows = {row["key"]: row for row in get(client, "deliveries", operator).json()["deliveries"]}
    assert (rows["orphan"]["channel"], rows["orphan"]["channel_name"]) == (None, "gone")
    assert (rows["waiting"]["state"], rows["waiting"]["delay_reason"]) == (
        "waiting",
        "quiet hours of route night",
    )
    assert rows["waiting"]["next_attempt_at"].startswith("2255-03-")
    failed_row, sent_row = rows["failed"], rows["sent"]
    assert (failed_row["state"], failed_row["error"], failed_row["attempts"]) == ("failed", "refused", 3)
    assert (failed_row["next_attempt_at"], failed_row["incident"]) == (None, None)
    assert (sent_row["subject"], sent_row["attempted_at"]) == ("subject sent", "1970-01-01T00:16:41Z")
    assert sent_row["incident"] == log["sent"].incident_id


def test_notification_behind_a_failing_channel_has_no_next_attempt(
    client: Client, operator: dict[str, str], log: dict[str, Delivery]
) -> None:
    """It says what it waits for, in place of a time in the past."""
    Delivery.objects.filter(key="waiting").update(next_attempt_at=1_000.0, delay_reason="")
    Channel.objects.filter(name="ops").update(failing_since=1_000.0)
    (row,) = get(client, "deliveries?state=waiting", operator).json()["deliveries"]
    assert row["delay_reason"] == "waits for earlier notifications of this channel"
    assert (row["state"], row["attempts"], row["next_attempt_at"]) == ("waiting", 0, None)


def test_log_has_pages(client: Client, operator: dict[str, str], log: dict[str, Delivery]) -> None:
    """Each names the cursor of the next one."""
    keys, cursor = [], ""
    while cursor is not None:
        page = get(client, f"deliveries?limit=3&cursor={cursor}", operator).json()
        keys.append([delivery["key"] for delivery in page["deliveries"]])
        cursor = page["next"]
    assert keys == [["orphan", "waiting", "failed"], ["sent"]]


def test_failed_notification_is_sent_again(
    client: Client, operator: dict[str, str], config_admin: dict[str, str], log: dict[str, Delivery]
) -> None:
    """By those who may change the config; with an audit log entry."""
    path = f"deliveries/{log['failed'].pk}/resend"
    assert post(client, path, {}, operator).status_code == 403
    assert post(client, path, {}, config_admin).json()["state"] == "waiting"
    assert Delivery.objects.get(key="failed").failed_at is None
    assert AuditEntry.objects.get(outcome="succeeded").action == "delivery.retry"
    for key, status in (("sent", 409), ("orphan", 409), ("foreign", 404)):
        assert post(client, f"deliveries/{log[key].pk}/resend", {}, config_admin).status_code == status
    assert post(client, f"deliveries/{1 << 70}/resend", {}, config_admin).status_code == 404


def test_limited_user_sees_the_log_of_the_cluster_only(
    client: Client, make_limited_user: MakeUser, log: dict[str, Delivery]
) -> None:
    """Without tests of the installation's channels, and without errors that may have their address."""
    _create("test", log["sent"].channel, kind="test", cluster="")
    Delivery.objects.filter(key="foreign").update(last_error="https://secret.example.com refused it")
    user = make_limited_user("operator")
    _, secret = create_token(
        user, "t", [Permission.VIEW_FLEET], lifetime=timedelta(days=1), now=timezone.now()
    )
    headers = {"Authorization": f"Bearer {secret}"}
    (delivery,) = get(client, "clusters/other/deliveries", headers).json()["deliveries"]
    assert (delivery["key"], delivery["error"]) == ("foreign", HIDDEN_CHANNEL_TEXT)
    assert get(client, "deliveries", headers).status_code in (403, 404)
