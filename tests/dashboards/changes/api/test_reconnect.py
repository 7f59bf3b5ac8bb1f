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
from tests.dashboards.changes.api.test_networking import CallApi, call_api, step
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

__all__ = ["call_api"]
pytestmark = pytest.mark.django_db


def test_plan_confirm_and_do(call_api: CallApi, fake_reader: FakeReader) -> None:
    """From a proxy's name to an aborted campaign with the result of each agent."""
    fake_reader.states = [State.HEALTHY] * 4
    plan = call_api(
        "POST", "/api/v1/reconnect/plan", {"proxy": "proxy-1", "settings": {"rate_per_minute": 60}}
    ).json()
    assert (plan["affected_count"], plan["plan"]["reconnect_count"]) == (2, 2)
    path = f"/api/v1/changes/{plan['id']}"
    assert step(call_api, path, "confirm", {"reason": "to try"}).status_code == 202
    Change.objects.update(state="running")
    assert call_api("GET", f"{path}/progress").json()["eta_seconds"] > 0
    assert step(call_api, path, "actions", {"action": "pause"}).json()["state"] == "paused"
    assert step(call_api, path, "actions", {"action": "stop it"}).status_code == 400
    end = step(call_api, path, "actions", {"action": "abort"}).json()
    assert (end["state"], end["skipped_count"], end["pending_count"]) == ("cancelled", 2, 0)
    assert step(call_api, path, "actions", {"action": "pause"}).status_code == 409
    page = call_api("GET", f"{path}/agents?limit=1").json()
    assert len(page["agents"]) == 1
    rest = call_api("GET", f"{path}/agents?after={page['next']}&state=skipped").json()
    assert rest["next"] is None
    assert "aborted" in rest["agents"][0]["reason"]


def test_plan_of_auth_connections(call_api: CallApi, fake_reader: FakeReader) -> None:
    """The auth to leave selects the connection to move; the results name both auths and the requesting proxy."""
    fake_reader.states = [State.HEALTHY] * 4
    plan = call_api("POST", "/api/v1/reconnect/plan", {"auth": "auth-1"}).json()
    assert (plan["affected_count"], plan["plan"]["reconnect_count"]) == (2, 2)
    assert plan["plan"]["connection"] == "auth"
    assert plan["plan"]["agents_by_instance"] == {"auth-1": 2}
    change = Change.objects.get()
    change.campaign_agents.filter(position=0).update(
        state="succeeded", from_instance="auth-id-1", via_proxy="proxy-id-1", new_auth="auth-id-2"
    )
    (agent,) = call_api("GET", f"/api/v1/changes/{plan['id']}/agents?state=succeeded").json()["agents"]
    assert (agent["from_instance"], agent["via_proxy"], agent["new_auth"], agent["new_proxy"]) == (
        "auth-id-1",
        "proxy-id-1",
        "auth-id-2",
        "",
    )


def test_second_person_by_the_api(
    call_api: CallApi, fake_reader: FakeReader, person: MakeUser, client: Client
) -> None:
    """Neither the author nor the person who confirmed may approve, by token or by session; anyone else may."""
    ensure_default_cluster()
    Cluster.objects.update(review_required=True)
    fake_reader.states = [State.HEALTHY] * 4
    plan = call_api("POST", "/api/v1/reconnect/plan", {"proxy": "proxy-1"}).json()
    assert plan["review_required"]
    path = f"/api/v1/changes/{plan['id']}"
    approver = person("operator")
    _, secret = create_token(approver, "t", [Permission.ACT_ON_FLEET], lifetime=None, now=timezone.now())
    bearer = {"Authorization": f"Bearer {secret}", "If-Match": plan["revision"]}
    confirmed = client.post(f"{path}/confirm", '{"reason": "to try"}', "application/json", headers=bearer)
    assert (confirmed.status_code, confirmed.json()["state"]) == (202, "confirmed")
    own_approval = step(call_api, path, "approve")
    bearer["If-Match"] = confirmed.headers["ETag"]
    other_approval = client.post(f"{path}/approve", headers=bearer)
    assert (own_approval.status_code, other_approval.status_code) == (409, 409)
    assert "nor the person who confirmed" in other_approval.json()["detail"]
    assert Change.objects.get().approved_by == ""
    third = person("admin")
    _, secret = create_token(third, "t", [Permission.ACT_ON_FLEET], lifetime=None, now=timezone.now())
    agreed = client.post(f"{path}/approve", headers={**bearer, "Authorization": f"Bearer {secret}"})
    assert agreed.status_code == 202
    assert engine.can_start(Change.objects.get())
    rows = AuditEntry.objects.filter(action="reconnect.approve").order_by("pk")
    assert [row.outcome for row in rows] == ["refused", "refused", "succeeded"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "q"),
        ({"proxy": "proxy-9"}, "proxy"),
        ({"agents": ["x"]}, "agents"),
        ({"auth": "auth-9"}, "auth"),
        ({"auth": "auth-1", "connection": "tunnel"}, "auth"),
        ({"proxy": "proxy-1", "connection": "auth"}, "proxy"),
        ({"q": "a", "settings": {"rate_per_minute": 0}}, "rate_per_minute"),
    ],
)
def test_wrong_fields_are_named(call_api: CallApi, body: dict[str, object], field: str) -> None:
    """And nothing is planned."""
    answer = call_api("POST", "/api/v1/clusters/default/reconnect/plan", body)
    assert answer.status_code == 400
    assert field in answer.json()["problems"]
    assert not Change.objects.exists()


def test_forecast_stores_nothing(call_api: CallApi, fake_reader: FakeReader) -> None:
    """The same numbers as in the plan."""
    fake_reader.states = [State.HEALTHY] * 4
    forecast = call_api("POST", "/api/v1/reconnect/forecast", {"proxy": "proxy-1"}).json()
    assert not Change.objects.exists()
    plan = call_api("POST", "/api/v1/reconnect/plan", {"proxy": "proxy-1"}).json()["plan"]
    for name in ("reconnect_count", "agents_by_instance", "loads"):
        assert forecast[name] == plan[name]
    refusal = call_api("POST", "/api/v1/reconnect/forecast", {"proxy": "proxy-9"})
    assert (refusal.status_code, list(refusal.json()["problems"])) == (400, ["proxy"])
    assert not AuditEntry.objects.filter(action__contains="forecast").exists()
