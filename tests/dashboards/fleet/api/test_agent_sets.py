"""Adding agents to agent sets by the API."""

from __future__ import annotations

import time
from typing import Any

import pytest

from fleet.models.alerting import AgentSet
from fleet.vocabulary.verdicts import State
from tests.dashboards.changes.api.test_networking import CallApi, call_api
from tests.fakes.reader import FakeReader

__all__ = ["call_api"]
pytestmark = pytest.mark.django_db
PATH = "/api/v1/agent-sets"


def test_agents_are_added_and_removed(call_api: CallApi, fake_reader: FakeReader) -> None:
    """By name, id or filter; a repeated request changes nothing, and an unknown name refuses all."""
    fake_reader.states, fake_reader.as_of = [State.HEALTHY] * 4, time.time()
    agents: list[Any] = call_api("GET", "/api/v1/agents").json()["agents"]
    body: dict[str, Any] = {"agent_set": "lab", "agents": [agents[0]["id"], agents[1]["name"]]}
    assert call_api("POST", PATH, body).json()["changed_count"] == 2
    assert call_api("POST", PATH, body).json()["changed_count"] == 0
    response = call_api("POST", PATH, {"agent_set": "lab", "agents": [agents[2]["id"], "nobody"]})
    assert (response.status_code, "nobody" in response.json()["detail"]) == (400, True)
    assert call_api("POST", PATH, {"agent_set": "a b", "q": "agent"}).status_code == 400
    assert AgentSet.objects.count() == 2
    response = call_api("POST", PATH, {"agent_set": "lab", "is_member": False, "q": "state:healthy"})
    assert (response.json()["agent_count"], response.json()["changed_count"]) == (4, 2)
    assert not AgentSet.objects.exists()
