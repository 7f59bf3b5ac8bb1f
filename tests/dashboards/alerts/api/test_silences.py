from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from fleet.models.access import Permission
from fleet.models.alerting import Silence
from fleet.models.changes import AuditEntry
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.models.tokens import create_token
from tests.dashboards.alerts.api.conftest import post
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


def test_silences_are_created_listed_and_ended(client: Client, operator: dict[str, str]) -> None:
    """Silencing everything requires confirmation; the creator is the token's user; each step is logged."""
    body = {"matchers": "cause=proxy-1", "reason": "upgrade", "hours": 2}
    assert post(client, "silences", body | {"creator": "mallory"}, operator).status_code == 400
    response = post(client, "silences", body, operator)
    assert (response.status_code, response.json()["creator"]) == (201, "operator")
    assert response.json()["matching_incident_count"] == 0
    assert len(client.get("/api/v1/silences", headers=operator).json()["silences"]) == 1
    for wrong in ({"matchers": ""}, {"reason": ""}, {"matchers": "x"}, {"matchers": "cause=\0"}):
        assert post(client, "silences", body | wrong, operator).status_code == 400
    assert post(client, f"silences/{response.json()['number']}/end", {}, operator).status_code == 200
    assert client.get("/api/v1/clusters/default/silences", headers=operator).json()["silences"] == []
    assert Silence.objects.count() == 1
    assert AuditEntry.objects.filter(outcome="refused").count() == 5
    entries = AuditEntry.objects.filter(outcome="succeeded").order_by("pk")
    assert list(entries.values_list("action", flat=True)) == [
        "silence.create",
        "silence.end",
    ]


def test_silence_begins_later_and_is_extended(client: Client, operator: dict[str, str]) -> None:
    """From its end on; not in the past, not without a zone, and not once it has ended."""
    at = timezone.now() + timedelta(days=2)
    body = {"matchers": "cause=proxy-1", "reason": "upgrade", "hours": 2}
    silence = post(client, "silences", body | {"starts_at": at.isoformat()}, operator).json()
    ends = timedelta(hours=2) + at
    assert abs((datetime.fromisoformat(silence["ends_at"]) - ends).total_seconds()) < 1
    longer = post(
        client, f"clusters/default/silences/{silence['number']}/extend", {"hours": 3}, operator
    ).json()
    assert abs((datetime.fromisoformat(longer["ends_at"]) - ends).total_seconds() - 3 * 3600) < 1
    past, naive = (timezone.now() - timedelta(hours=1)).isoformat(), "2030-01-01T00:00:00"
    assert post(client, "silences", body | {"starts_at": naive}, operator).status_code == 400
    # Dates all the same: only the moment at which they are sent makes them too late or too soon.
    for wrong in (past, "2099-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"):
        assert post(client, "silences", body | {"starts_at": wrong}, operator).status_code == 409
    assert post(client, f"silences/{silence['number']}/extend", {"hours": 720}, operator).status_code == 409
    assert post(client, f"silences/{silence['number']}/end", {}, operator).status_code == 200
    assert post(client, f"silences/{silence['number']}/extend", {}, operator).status_code == 409
    assert post(client, "silences/999/extend", {}, operator).status_code == 404


@pytest.fixture
def limited_operator(make_limited_user: MakeUser, fake_reader: FakeReader) -> dict[str, str]:
    """Headers of the token of an operator who is limited to the cluster `other`."""
    scopes = [Permission.VIEW_FLEET, Permission.ACT_ON_FLEET, Permission.VIEW_AUDIT]
    _, secret = create_token(make_limited_user("operator"), "t", scopes, lifetime=None, now=timezone.now())
    return {"Authorization": f"Bearer {secret}"}


def test_second_silence_of_the_same_is_a_conflict(client: Client, operator: dict[str, str]) -> None:
    """409, with what to do."""
    body = {"matchers": "cause=proxy-1", "reason": "upgrade", "hours": 2}
    assert post(client, "silences", body, operator).json()["cluster"] == "default"
    answer = post(client, "silences", body, operator)
    assert answer.status_code == 409
    assert "Extend that silence instead" in answer.json()["detail"]


def test_silence_counts_for_an_incident_at_once(client: Client, operator: dict[str, str]) -> None:
    """Before the next look."""
    Incident.objects.create(
        cluster=ensure_default_cluster(), key="proxy/p", cause_kind="proxy", cause_id="p", cause_name="proxy-1",
        generation=1, state="firing", severity=2, opened_at=time.time() - 60, affected_count=3, peak_count=3,
    )  # fmt: skip
    post(client, "silences", {"matchers": "cause=proxy-1", "reason": "upgrade"}, operator)
    (incident,) = client.get("/api/v1/incidents", headers=operator).json()["incidents"]
    assert incident["silenced_by"] == "upgrade (operator)"
    assert incident["next_notification"] == {
        "at": None,
        "reason": "silenced: upgrade (operator)",
        "channels": [],
        "resolved_channels": [],
        "recipients": "",
    }


def test_limited_token_reads_and_writes_one_cluster(client: Client, limited_operator: dict[str, str]) -> None:
    """Silences of the installation are read and stay; of another cluster there is nothing."""
    now = time.time()
    rows = {
        owner: Silence.objects.create(
            cluster=owner,
            matchers="kind=proxy",
            reason=owner,
            creator="ada",
            starts_at=now - 9,
            ends_at=now + 900,
        )
        for owner in ("", "other", "default")
    }
    path = "clusters/other/silences"
    items = client.get(f"/api/v1/{path}", headers=limited_operator).json()["silences"]
    assert sorted(entry["cluster"] for entry in items) == ["", "other"]
    for owner, status in (("", 403), ("default", 404), ("other", 200)):
        for act, body in (("extend", {"hours": 1}), ("end", {})):
            answer = post(client, f"{path}/{rows[owner].pk}/{act}", body, limited_operator)
            assert answer.status_code == status, (owner, act)
    assert client.get("/api/v1/silences", headers=limited_operator).status_code == 403
    assert client.get("/api/v1/clusters", headers=limited_operator).json() == {"clusters": ["other"]}


def test_limited_token_reads_the_audit_log_of_one_cluster(
    client: Client, limited_operator: dict[str, str]
) -> None:
    """Rows that concern no cluster are for users without a limit."""
    for cluster in ("", "other", "default"):
        AuditEntry.objects.create(
            cluster=cluster,
            actor_name="bo",
            actor_kind="person",
            action="x.done",
            subject=cluster,
            outcome="succeeded",
        )
    entries = client.get("/api/v1/clusters/other/audit", headers=limited_operator).json()["entries"]
    assert [entry["subject"] for entry in entries] == ["other"]
