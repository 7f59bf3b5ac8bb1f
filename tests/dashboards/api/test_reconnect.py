"""Campaigns by the API."""

from __future__ import annotations

import pytest

from fleet.domain.verdicts import State
from fleet.models.changes import AuditEntry, Change
from tests.dashboards.api.test_networking import Ask, ask
from tests.fakes.reader import FakeReader

__all__ = ["ask"]
pytestmark = pytest.mark.django_db


def test_plan_confirm_and_do(ask: Ask, fake_reader: FakeReader) -> None:
    """From a proxy's name to an aborted campaign with the result of each agent."""
    fake_reader.states = [State.HEALTHY] * 4
    made = ask("POST", "/api/v1/reconnect/plan", {"proxy": "proxy-1", "pace": {"rate": 60}}).json()
    assert (made["agents"], made["plan"]["asked"]) == (2, 2)
    here = f"/api/v1/changes/{made['id']}"
    assert ask("POST", f"{here}/confirm", {"reason": "to try"}).status_code == 202
    Change.objects.update(state="running")
    assert ask("GET", f"{here}/progress").json()["eta_seconds"] > 0
    assert ask("POST", f"{here}/do", {"do": "pause"}).json()["state"] == "paused"
    assert ask("POST", f"{here}/do", {"do": "stop it"}).status_code == 400
    ended = ask("POST", f"{here}/do", {"do": "abort"}).json()
    assert (ended["state"], ended["skipped"], ended["remaining"]) == ("cancelled", 2, 0)
    assert ask("POST", f"{here}/do", {"do": "pause"}).status_code == 409
    page = ask("GET", f"{here}/agents?limit=1").json()
    assert len(page["agents"]) == 1
    rest = ask("GET", f"{here}/agents?after={page['next']}&state=skipped").json()
    assert rest["next"] is None
    assert "aborted" in rest["agents"][0]["reason"]


def test_what_somebody_did_meanwhile_is_not_overrun(ask: Ask, fake_reader: FakeReader) -> None:
    """With If-Match, that is the ETag of the change as it was read: 412, and a row in the log."""
    fake_reader.states = [State.HEALTHY] * 4
    made = ask("POST", "/api/v1/reconnect/plan", {"proxy": "proxy-1"}).json()
    here = f"/api/v1/changes/{made['id']}"
    seen = ask("GET", here).headers["ETag"]
    assert ask("POST", f"{here}/confirm", {"reason": "to try"}, If_Match=seen).status_code == 202
    stale = ask("POST", f"{here}/cancel", {}, If_Match=seen)
    assert stale.status_code == 412
    assert "confirmed by now" in stale.json()["detail"]
    assert AuditEntry.objects.filter(outcome="refused", action="api.cancel").count() == 1
    assert ask("POST", f"{here}/cancel", {}, If_Match=ask("GET", here).headers["ETag"]).status_code == 200


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({}, "q"),
        ({"proxy": "proxy-9"}, "proxy"),
        ({"agents": ["x"]}, "agents"),
        ({"q": "a", "pace": {"rate": 0}}, "rate"),
    ],
)
def test_wrong_fields_are_named(ask: Ask, sent: dict[str, object], field: str) -> None:
    """And nothing is planned."""
    answer = ask("POST", "/api/v1/clusters/default/reconnect/plan", sent)
    assert answer.status_code == 400
    assert field in answer.json()["problems"]
    assert not Change.objects.exists()
