"""Degrading instances by the API."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from celery import current_app
from django.test import Client
from django.utils import timezone
from kombu.exceptions import OperationalError

from fleet.models.changes import AuditEntry, Change
from tests.dashboards.changes.api.test_networking import CallApi, call_api
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

__all__ = ["call_api"]
pytestmark = pytest.mark.django_db
PATH = "/api/v1/instances/proxy-id-1/degrade"
BODY = {"is_degraded": True, "reason": "slow disk"}


@pytest.fixture
def tasks(call_api: CallApi, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """The names and arguments of the tasks that workers are given."""
    task_calls: list[tuple[str, Any]] = []
    monkeypatch.setattr(current_app, "send_task", lambda name, args: task_calls.append((name, args)))
    return task_calls


def test_degrade_and_restore(call_api: CallApi, tasks: list[tuple[str, Any]]) -> None:
    """Each request is a change for a worker; the log has it with the token, and the answer says until when."""
    answer = call_api("POST", PATH, BODY | {"minutes": 30})
    assert answer.status_code == 202
    until = datetime.fromisoformat(answer.json()["ends_at"])
    assert abs(until - timezone.now() - timedelta(minutes=30)) < timedelta(minutes=5)
    cluster = PATH.replace("/api/v1/", "/api/v1/clusters/default/")
    assert call_api("POST", cluster, {"is_degraded": False, "reason": "replaced"}).json()["ends_at"] is None
    first, second = Change.objects.order_by("pk")
    assert tasks == [("fleet.tasks.run_change", (first.pk,)), ("fleet.tasks.run_change", (second.pk,))]
    assert answer.json()["change_id"] == first.pk
    assert (first.state, first.title) == ("confirmed", "Mark proxy-1 as degraded for 30 min")
    assert (second.title, second.reason) == ("Clear the degraded mark of proxy-1", "replaced")
    rows = AuditEntry.objects.order_by("pk")
    assert [(row.action, row.outcome) for row in rows] == [
        ("instance.degrade", "succeeded"),
        ("instance.undegrade", "succeeded"),
    ]
    assert all("token ci" in row.actor_name for row in rows)


def test_without_a_broker_the_change_waits_for_a_worker(
    call_api: CallApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers look for confirmed changes every second; after 60 s the change fails."""

    def refuse(name: str, **_: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(current_app, "send_task", refuse)
    assert call_api("POST", PATH, BODY).status_code == 202
    assert Change.objects.get().state == "confirmed"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (PATH, {"is_degraded": True, "reason": "x"}, 400),
        (PATH, {"is_degraded": True, "reason": "a\u0001bc"}, 400),
        (PATH, BODY | {"minutes": 0}, 400),
        (PATH, BODY | {"minutes": 1441}, 400),
        (PATH, BODY | {"hours": 1}, 400),
        (PATH.replace("proxy-id-1", "nobody"), BODY, 404),
    ],
)
def test_wrong_request_changes_nothing(
    call_api: CallApi, tasks: list[tuple[str, Any]], path: str, body: Any, status: int
) -> None:
    """Each is refused with a sentence."""
    answer = call_api("POST", path, body)
    assert answer.status_code == status
    assert answer.json()["detail"]
    assert tasks == []


def test_viewer_and_session_without_recent_proof_are_refused(
    client: Client, person: MakeUser, fake_reader: FakeReader
) -> None:
    """As for draining."""
    client.force_login(person("viewer"))
    assert client.post(PATH, BODY, "application/json").status_code == 403
    client.force_login(person("operator"))
    answer = client.post(PATH, BODY, "application/json")
    assert (answer.status_code, "reauthenticate" in answer.json()["detail"]) == (403, True)
