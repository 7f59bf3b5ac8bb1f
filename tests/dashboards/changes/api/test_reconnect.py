"""Campaigns by the API."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from fleet.changes import engine
from fleet.models.access import Permission
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.tokens import create_token
from fleet.vocabulary.verdicts import State
from tests.dashboards.changes.api.test_networking import Ask, ask, step
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

__all__ = ["ask"]
pytestmark = pytest.mark.django_db


def test_plan_confirm_and_do(ask: Ask, fake_reader: FakeReader) -> None:
    """From a proxy's name to an aborted campaign with the result of each agent."""
    fake_reader.states = [State.HEALTHY] * 4
    made = ask("POST", "/api/v1/reconnect/plan", {"proxy": "proxy-1", "pace": {"rate": 60}}).json()
    assert (made["agents"], made["plan"]["asked"]) == (2, 2)
    here = f"/api/v1/changes/{made['id']}"
    assert step(ask, here, "confirm", {"reason": "to try"}).status_code == 202
    Change.objects.update(state="running")
    assert ask("GET", f"{here}/progress").json()["eta_seconds"] > 0
    assert step(ask, here, "do", {"do": "pause"}).json()["state"] == "paused"
    assert step(ask, here, "do", {"do": "stop it"}).status_code == 400
    ended = step(ask, here, "do", {"do": "abort"}).json()
    assert (ended["state"], ended["skipped"], ended["remaining"]) == ("cancelled", 2, 0)
    assert step(ask, here, "do", {"do": "pause"}).status_code == 409
    page = ask("GET", f"{here}/agents?limit=1").json()
    assert len(page["agents"]) == 1
    rest = ask("GET", f"{here}/agents?after={page['next']}&state=skipped").json()
    assert rest["next"] is None
    assert "aborted" in rest["agents"][0]["reason"]


def test_plan_of_auth_connections(ask: Ask, fake_reader: FakeReader) -> None:
    """The auth to leave says what moves; the results name both auths and the proxy that asked."""
    fake_reader.states = [State.HEALTHY] * 4
    made = ask("POST", "/api/v1/reconnect/plan", {"auth": "auth-1"}).json()
    assert (made["agents"], made["plan"]["asked"]) == (2, 2)
    assert made["plan"]["connection"] == "auth"
    assert made["plan"]["leaving"] == {"auth-1": 2}
    change = Change.objects.get()
    change.campaign_agents.filter(position=0).update(
        state="ok", leaves="auth-id-1", via="proxy-id-1", new_auth="auth-id-2"
    )
    (agent,) = ask("GET", f"/api/v1/changes/{made['id']}/agents?state=ok").json()["agents"]
    assert (agent["leaves"], agent["via"], agent["new_auth"], agent["new_proxy"]) == (
        "auth-id-1",
        "proxy-id-1",
        "auth-id-2",
        "",
    )


def test_second_person_by_the_api(
    ask: Ask, fake_reader: FakeReader, person: MakeUser, client: Client
) -> None:
    """Neither the author nor the person who confirmed may approve, by token or by session; anyone else may."""
    ensure_default_cluster()
    Cluster.objects.update(second_approver=True)
    fake_reader.states = [State.HEALTHY] * 4
    made = ask("POST", "/api/v1/reconnect/plan", {"proxy": "proxy-1"}).json()
    assert made["asks_second"]
    here = f"/api/v1/changes/{made['id']}"
    other = person("operator")
    _, secret = create_token(other, "t", [Permission.ACT_ON_FLEET], lifetime=None, now=timezone.now())
    bearer = {"Authorization": f"Bearer {secret}", "If-Match": made["revision"]}
    confirmed = client.post(f"{here}/confirm", '{"reason": "to try"}', "application/json", headers=bearer)
    assert (confirmed.status_code, confirmed.json()["state"]) == (202, "confirmed")
    mine = step(ask, here, "approve")
    bearer["If-Match"] = confirmed.headers["ETag"]
    theirs = client.post(f"{here}/approve", headers=bearer)
    assert (mine.status_code, theirs.status_code) == (409, 409)
    assert "nor the person who confirmed" in theirs.json()["detail"]
    assert Change.objects.get().approved_by == ""
    third = person("admin")
    _, secret = create_token(third, "t", [Permission.ACT_ON_FLEET], lifetime=None, now=timezone.now())
    agreed = client.post(f"{here}/approve", headers={**bearer, "Authorization": f"Bearer {secret}"})
    assert agreed.status_code == 202
    assert engine.is_ready(Change.objects.get())
    rows = AuditEntry.objects.filter(action="reconnect.approve").order_by("pk")
    assert [row.outcome for row in rows] == ["refused", "refused", "done"]


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({}, "q"),
        ({"proxy": "proxy-9"}, "proxy"),
        ({"agents": ["x"]}, "agents"),
        ({"auth": "auth-9"}, "auth"),
        ({"auth": "auth-1", "connection": "tunnel"}, "auth"),
        ({"proxy": "proxy-1", "connection": "auth"}, "proxy"),
        ({"q": "a", "pace": {"rate": 0}}, "rate"),
    ],
)
def test_wrong_fields_are_named(ask: Ask, sent: dict[str, object], field: str) -> None:
    """And nothing is planned."""
    answer = ask("POST", "/api/v1/clusters/default/reconnect/plan", sent)
    assert answer.status_code == 400
    assert field in answer.json()["problems"]
    assert not Change.objects.exists()
