"""Degrading instances by the API."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from celery import current_app
from django.test import Client
from django.utils import timezone
from kombu.exceptions import OperationalError

from fleet.models.changes import AuditEntry
from tests.dashboards.changes.api.test_networking import Ask, ask
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

__all__ = ["ask"]
pytestmark = pytest.mark.django_db
HERE = "/api/v1/instances/proxy-id-1/degrade"
BODY = {"degraded": True, "reason": "slow disk"}


@pytest.fixture
def tasks(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """The names and fields of the tasks that workers are given."""
    sent: list[tuple[str, Any]] = []
    monkeypatch.setattr(current_app, "send_task", lambda name, kwargs, **_: sent.append((name, kwargs)))
    return sent


def test_degrade_and_restore(ask: Ask, tasks: list[tuple[str, Any]]) -> None:
    """A task carries the request, the log has it with the token, and the answer says until when."""
    answer = ask("POST", HERE, BODY | {"minutes": 30})
    assert answer.status_code == 202
    until = datetime.fromisoformat(answer.json()["until"])
    assert abs(until - timezone.now() - timedelta(minutes=30)) < timedelta(minutes=5)
    cluster = HERE.replace("/api/v1/", "/api/v1/clusters/default/")
    assert ask("POST", cluster, {"degraded": False, "reason": "replaced"}).json()["until"] is None
    (name, first), (_, second) = tasks
    assert name == "fleet.tasks.degrade_instance"
    assert (first["instance"], first["degraded"], first["seconds"]) == ("proxy-id-1", True, 1800.0)
    assert (second["degraded"], second["seconds"], second["reason"]) == (False, 0.0, "replaced")
    rows = AuditEntry.objects.order_by("pk")
    assert [(row.action, row.outcome) for row in rows] == [
        ("instance.degrade", "done"),
        ("instance.restore", "done"),
    ]
    assert all("token ci" in row.who for row in rows)


def test_without_a_broker_nothing_is_requested(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 with a sentence, and the log says that it failed: nothing would send the request later."""

    def refuse(name: str, **_: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(current_app, "send_task", refuse)
    answer = ask("POST", HERE, BODY)
    assert (answer.status_code, "No worker" in answer.json()["detail"]) == (503, True)
    assert AuditEntry.objects.get().outcome == "failed"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (HERE, {"degraded": True, "reason": "x"}, 400),
        (HERE, {"degraded": True, "reason": "a\u0001bc"}, 400),
        (HERE, BODY | {"minutes": 0}, 400),
        (HERE, BODY | {"minutes": 1441}, 400),
        (HERE, BODY | {"hours": 1}, 400),
        (HERE.replace("proxy-id-1", "nobody"), BODY, 404),
    ],
)
def test_wrong_request_changes_nothing(
    ask: Ask, tasks: list[tuple[str, Any]], path: str, body: Any, status: int
) -> None:
    """Each is refused with a sentence."""
    answer = ask("POST", path, body)
    assert answer.status_code == status
    assert answer.json()["detail"]
    assert tasks == []


def test_viewer_and_session_without_recent_proof_are_refused(
    client: Client, person: MakeUser, fake_reader: FakeReader
) -> None:
    """As for draining."""
    client.force_login(person("viewer"))
    assert client.post(HERE, BODY, "application/json").status_code == 403
    client.force_login(person("operator"))
    answer = client.post(HERE, BODY, "application/json")
    assert (answer.status_code, "reauthenticate" in answer.json()["detail"]) == (403, True)
