"""Retiring agents by the API."""

from __future__ import annotations

import time
from typing import Any

import pytest
from celery import current_app

from fleet.models.changes import AuditEntry, Change
from fleet.models.inventory import Agent
from fleet.vocabulary.verdicts import State
from tests.dashboards.changes.api.test_networking import CallApi, call_api
from tests.fakes.reader import FakeReader

__all__ = ["call_api"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def retire_path(call_api: CallApi, fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the first agent, which is alive, is retired."""
    monkeypatch.setattr(current_app, "send_task", lambda name, **_: None)
    fake_reader.states, fake_reader.as_of = [State.HEALTHY] * 4, time.time()
    agents: list[Any] = call_api("GET", "/api/v1/agents").json()["agents"]
    return f"/api/v1/agents/{agents[0]['id']}/retire"


def test_retire_and_count_again(call_api: CallApi, retire_path: str) -> None:
    """One that is alive only when that is meant; the log has the token."""
    body = {"is_retired": True, "reason": "scrapped"}
    answer = call_api("POST", retire_path, body)
    assert (answer.status_code, "confirm_alive: true" in answer.json()["detail"]) == (409, True)
    assert call_api("POST", retire_path, body | {"confirm_alive": True}).json()["is_retired"]
    assert Agent.objects.get().is_retired
    cluster = retire_path.replace("/api/v1/", "/api/v1/clusters/default/")
    assert not call_api("POST", cluster, {"is_retired": False, "reason": "found again"}).json()["is_retired"]
    assert not Agent.objects.get().is_retired
    assert "token ci" in AuditEntry.objects.filter(action="agent.reinstate").get().actor_name


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("", {"is_retired": True, "reason": "x"}, 400),
        ("", {"is_retired": True}, 400),
        ("", {"is_retired": True, "reason": "scrapped", "soon": True}, 400),
        ("/api/v1/agents/nobody/retire", {"is_retired": True, "reason": "scrapped"}, 404),
    ],
)
def test_invalid_request_is_refused(
    call_api: CallApi, retire_path: str, path: str, body: Any, status: int
) -> None:
    """With a sentence, and nothing is done."""
    answer = call_api("POST", path or retire_path, body)
    assert answer.status_code == status
    assert answer.json()["detail"]
    assert not Agent.objects.exists()


def test_several_agents_are_one_change(call_api: CallApi, retire_path: str) -> None:
    """By names, ids or a filter; none is changed if one is unknown or alive without a confirmation."""
    path, body = "/api/v1/retirements", {"is_retired": True, "reason": "scrapped"}
    by_name = body | {"agents": ["agent-1", "agent-2"]}
    assert call_api("POST", path, by_name).status_code == 409
    assert call_api("POST", path, body | {"agents": ["agent-1", "nobody"]}).status_code == 400
    assert call_api("POST", path, body).status_code == 400
    assert not Agent.objects.filter(is_retired=True).exists()
    answer = call_api("POST", path, by_name | {"confirm_alive": True}).json()
    change = Change.objects.get()
    assert (answer["agent_count"], answer["change_id"]) == (2, change.pk)
    assert (change.kind, change.title) == ("retire", "Retire 2 agents")
    whole_fleet = body | {"q": "agent", "confirm_alive": True}
    assert call_api("POST", path, whole_fleet | {"expected_count": 3}).status_code == 409
    assert call_api("POST", path, whole_fleet | {"expected_count": 4}).json()["agent_count"] == 4
    assert Change.objects.latest("pk").affected_count == 2
    assert Agent.objects.filter(is_retired=True).count() == 4
