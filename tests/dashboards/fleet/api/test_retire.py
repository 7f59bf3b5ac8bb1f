"""Retiring agents by the API."""

from __future__ import annotations

import time
from typing import Any

import pytest
from celery import current_app

from fleet.models.changes import AuditEntry
from fleet.models.inventory import Agent
from fleet.vocabulary.verdicts import State
from tests.dashboards.changes.api.test_networking import Ask, ask
from tests.fakes.reader import FakeReader

__all__ = ["ask"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def here(ask: Ask, fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the first agent, which is alive, is retired."""
    monkeypatch.setattr(current_app, "send_task", lambda name, **_: None)
    fake_reader.states, fake_reader.as_of = [State.HEALTHY] * 4, time.time()
    agents: list[Any] = ask("GET", "/api/v1/agents").json()["agents"]
    return f"/api/v1/agents/{agents[0]['id']}/retire"


def test_retire_and_count_again(ask: Ask, here: str) -> None:
    """One that is alive only when that is meant; the log has the token."""
    said = {"retired": True, "reason": "scrapped"}
    refused = ask("POST", here, said)
    assert (refused.status_code, "alive: true" in refused.json()["detail"]) == (409, True)
    assert ask("POST", here, said | {"alive": True}).json()["retired"]
    assert Agent.objects.get().retired
    cluster = here.replace("/api/v1/", "/api/v1/clusters/default/")
    assert not ask("POST", cluster, {"retired": False, "reason": "found again"}).json()["retired"]
    assert not Agent.objects.get().retired
    assert "token ci" in AuditEntry.objects.filter(action="agent.unretire").get().who


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("", {"retired": True, "reason": "x"}, 400),
        ("", {"retired": True}, 400),
        ("", {"retired": True, "reason": "scrapped", "soon": True}, 400),
        ("/api/v1/agents/nobody/retire", {"retired": True, "reason": "scrapped"}, 404),
    ],
)
def test_what_cannot_be_is_refused(ask: Ask, here: str, path: str, body: Any, status: int) -> None:
    """With a sentence, and nothing is done."""
    answer = ask("POST", path or here, body)
    assert answer.status_code == status
    assert answer.json()["detail"]
    assert not Agent.objects.exists()
