from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from fleet.models.access import Permission
from fleet.models.alerting import Silence
from fleet.models.changes import AuditEntry
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.models.tokens import create_token
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(person: MakeUser, fake_reader: FakeReader) -> dict[str, str]:
    """Headers of an operator's token."""
    scopes = [Permission.VIEW_FLEET, Permission.ACT_ON_FLEET]
    _, secret = create_token(person("operator"), "t", scopes, lifetime=timedelta(days=1), now=timezone.now())
    return {"Authorization": f"Bearer {secret}"}


def _post(client: Client, path: str, body: Any, headers: dict[str, str]) -> Any:
    return client.post(f"/api/v1/{path}", body, content_type="application/json", headers=headers)


def test_incidents_are_listed_by_state_and_acknowledged(client: Client, operator: dict[str, str]) -> None:
    """Open ones unless asked otherwise; by the token's user."""
    row = Incident.objects.create(
        cluster=ensure_default_cluster(), key="proxy/p", cause_kind="proxy", cause_id="p", cause_name="proxy-1",
        generation=1, state="firing", severity=2, opened_at=time.time() - 60, affected=207, peak=207,
        sentence="207 agents stranded.",
    )  # fmt: skip
    found = client.get("/api/v1/incidents", headers=operator).json()
    assert [one["summary"] for one in found["incidents"]] == ["207 agents stranded, proxy-1"]
    assert found["incidents"][0]["next_message"]["because"].startswith("grouping wait of 30 s")
    assert client.get("/api/v1/incidents?state=resolved", headers=operator).json()["incidents"] == []
    acked = _post(client, f"incidents/{row.pk}/acknowledge", {}, operator).json()
    assert acked["acknowledged_by"] == "operator"
    Incident.objects.update(notices=1, notified_at=time.time(), notified_severity=2, notified_affected=207)
    said = client.get("/api/v1/incidents", headers=operator).json()["incidents"][0]["next_message"]
    assert said == {"at": None, "because": "the incident is acknowledged", "to": []}
    assert _post(client, "clusters/default/incidents/999/acknowledge", {}, operator).status_code == 404


def test_silences_are_made_listed_and_ended(client: Client, operator: dict[str, str]) -> None:
    """Everything wants the word; the creator is who asks; all of it is in the log."""
    body = {"matchers": "cause=proxy-1", "reason": "upgrade", "hours": 2}
    assert _post(client, "silences", body | {"creator": "mallory"}, operator).status_code == 400
    made = _post(client, "silences", body, operator)
    assert (made.status_code, made.json()["creator"]) == (201, "operator")
    assert len(client.get("/api/v1/silences", headers=operator).json()["silences"]) == 1
    for wrong in ({"matchers": ""}, {"reason": ""}, {"matchers": "x"}, {"matchers": "cause=\0"}):
        assert _post(client, "silences", body | wrong, operator).status_code == 400
    assert _post(client, f"silences/{made.json()['number']}/end", {}, operator).status_code == 200
    assert client.get("/api/v1/clusters/default/silences", headers=operator).json()["silences"] == []
    assert Silence.objects.count() == 1
    assert AuditEntry.objects.filter(outcome="refused").count() == 5
    done = AuditEntry.objects.filter(outcome="done").order_by("pk")
    assert list(done.values_list("action", flat=True)) == [
        "silence.create",
        "silence.end",
    ]


def test_silence_begins_later_and_is_extended(client: Client, operator: dict[str, str]) -> None:
    """From its end on; not in the past, not without a zone, and not once it has ended."""
    at = timezone.now() + timedelta(days=2)
    body = {"matchers": "cause=proxy-1", "reason": "upgrade", "hours": 2}
    made = _post(client, "silences", body | {"starts_at": at.isoformat()}, operator).json()
    ends = timedelta(hours=2) + at
    assert abs((datetime.fromisoformat(made["ends_at"]) - ends).total_seconds()) < 1
    longer = _post(
        client, f"clusters/default/silences/{made['number']}/extend", {"hours": 3}, operator
    ).json()
    assert abs((datetime.fromisoformat(longer["ends_at"]) - ends).total_seconds() - 3 * 3600) < 1
    past, naive = (timezone.now() - timedelta(hours=1)).isoformat(), "2030-01-01T00:00:00"
    assert _post(client, "silences", body | {"starts_at": naive}, operator).status_code == 400
    # Dates all the same: only the moment at which they are sent makes them too late or too soon.
    for wrong in (past, "2099-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"):
        assert _post(client, "silences", body | {"starts_at": wrong}, operator).status_code == 409
    assert _post(client, f"silences/{made['number']}/extend", {"hours": 720}, operator).status_code == 409
    assert _post(client, f"silences/{made['number']}/end", {}, operator).status_code == 200
    assert _post(client, f"silences/{made['number']}/extend", {}, operator).status_code == 409
    assert _post(client, "silences/999/extend", {}, operator).status_code == 404


@pytest.fixture
def limited_operator(limited: MakeUser, fake_reader: FakeReader) -> dict[str, str]:
    """Headers of the token of an operator who is limited to the cluster `other`."""
    scopes = [Permission.VIEW_FLEET, Permission.ACT_ON_FLEET, Permission.VIEW_AUDIT]
    _, secret = create_token(limited("operator"), "t", scopes, lifetime=None, now=timezone.now())
    return {"Authorization": f"Bearer {secret}"}


def test_second_silence_of_the_same_is_a_conflict(client: Client, operator: dict[str, str]) -> None:
    """409, with what to do."""
    body = {"matchers": "cause=proxy-1", "reason": "upgrade", "hours": 2}
    assert _post(client, "silences", body, operator).json()["cluster"] == "default"
    answer = _post(client, "silences", body, operator)
    assert answer.status_code == 409
    assert "Extend that silence instead" in answer.json()["detail"]


def test_silence_counts_for_an_incident_at_once(client: Client, operator: dict[str, str]) -> None:
    """Before the next look."""
    Incident.objects.create(
        cluster=ensure_default_cluster(), key="proxy/p", cause_kind="proxy", cause_id="p", cause_name="proxy-1",
        generation=1, state="firing", severity=2, opened_at=time.time() - 60, affected=3, peak=3,
    )  # fmt: skip
    _post(client, "silences", {"matchers": "cause=proxy-1", "reason": "upgrade"}, operator)
    (item,) = client.get("/api/v1/incidents", headers=operator).json()["incidents"]
    assert item["silenced_by"] == "upgrade (operator)"
    assert item["next_message"] == {"at": None, "because": "silenced: upgrade (operator)", "to": []}


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
    where = "clusters/other/silences"
    items = client.get(f"/api/v1/{where}", headers=limited_operator).json()["silences"]
    assert sorted(item["cluster"] for item in items) == ["", "other"]
    for owner, status in (("", 403), ("default", 404), ("other", 200)):
        for act, body in (("extend", {"hours": 1}), ("end", {})):
            answer = _post(client, f"{where}/{rows[owner].pk}/{act}", body, limited_operator)
            assert answer.status_code == status, (owner, act)
    assert client.get("/api/v1/silences", headers=limited_operator).status_code == 403
    assert client.get("/api/v1/clusters", headers=limited_operator).json() == {"clusters": ["other"]}


def test_limited_token_reads_the_audit_log_of_one_cluster(
    client: Client, limited_operator: dict[str, str]
) -> None:
    """Rows that concern no cluster are for users without a limit."""
    for cluster in ("", "other", "default"):
        AuditEntry.objects.create(
            cluster=cluster, who="bo", actor_kind="person", action="x.done", subject=cluster, outcome="done"
        )
    entries = client.get("/api/v1/clusters/other/audit", headers=limited_operator).json()["entries"]
    assert [entry["subject"] for entry in entries] == ["other"]
