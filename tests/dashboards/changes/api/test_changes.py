"""Steps of a change by the API: they require the current revision of the change, and a plan that is not outdated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.utils import timezone

from dashboards.api_v1 import api
from dashboards.shared import record_reader
from fleet.changes import engine
from fleet.changes.networking.kind import NetworkingKind
from fleet.models.actions import DesiredPolicy
from fleet.models.changes import AuditEntry, Change
from fleet.models.networking import NetworkingReading
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.verdicts import State
from tests.dashboards.changes.api.test_networking import PLAN, CallApi, call_api, step
from tests.dashboards.changes.views.test_networking import STORED, store_revision
from tests.fakes.policy_nodes import FakePolicyBook, PolicyNode
from tests.fakes.reader import FakeReader

__all__ = ["call_api"]
pytestmark = pytest.mark.django_db
ASKED = ("confirm", "approve", "cancel", "undo", "actions")


@pytest.fixture
def campaign(call_api: CallApi, fake_reader: FakeReader) -> Any:
    """A plan, as its answer gives it."""
    fake_reader.states = [State.HEALTHY] * 4
    return call_api("POST", "/api/v1/reconnect/plan", {"proxy": "proxy-1"})


def _body(step_name: str) -> dict[str, str] | None:
    return {"confirm": {"reason": "to try"}, "actions": {"action": "pause"}}.get(step_name)


@pytest.mark.parametrize("step_name", ASKED)
@pytest.mark.parametrize("cluster", ["", "/clusters/default"])
def test_without_if_match_is_428(call_api: CallApi, campaign: Any, step_name: str, cluster: str) -> None:
    """The message names the source of the ETag; `*` is 400. Each attempt is in the log."""
    before = Change.objects.values().get()
    path = f"/api/v1{cluster}/changes/{before['id']}"
    answer = call_api("POST", f"{path}/{step_name}", _body(step_name))
    assert answer.status_code == 428
    assert f"ETag of GET /api/v1/changes/{before['id']}" in answer.json()["detail"]
    assert call_api("POST", f"{path}/{step_name}", _body(step_name), If_Match="*").status_code == 400
    assert Change.objects.values().get() == before
    assert AuditEntry.objects.filter(outcome="refused", action=f"api.{_route(step_name)}").count() == 2


def _route(step_name: str) -> str:
    return "run_change_action" if step_name == "actions" else f"{step_name}_change"


@pytest.mark.parametrize("step_name", ASKED)
def test_change_of_a_stale_revision_is_412(call_api: CallApi, campaign: Any, step_name: str) -> None:
    """412 for an earlier revision, even in the same state; the response has the current revision."""
    change = Change.objects.get()
    path, planned_etag = f"/api/v1/changes/{change.pk}", campaign.headers["ETag"]
    for state in (ChangeState.CONFIRMED, ChangeState.RUNNING):
        engine.transition(change, state, timezone.now())
    running_etag = call_api("GET", path).headers["ETag"]
    for state in (ChangeState.PAUSED, ChangeState.RUNNING):
        engine.transition(change, state, timezone.now())
    for stale in (planned_etag, running_etag):
        answer = call_api("POST", f"{path}/{step_name}", _body(step_name), If_Match=stale)
        assert answer.status_code == 412
        assert f"GET {path} again" in answer.json()["detail"]
        assert f'"{answer.json()["revision"]}"' == call_api("GET", path).headers["ETag"]
    change.refresh_from_db()
    assert change.state == "running"
    assert AuditEntry.objects.filter(outcome="refused", action=f"api.{_route(step_name)}").count() == 2


def test_every_answer_carries_the_etag(call_api: CallApi, campaign: Any) -> None:
    """The next step needs no further GET; lists have the revision in each item."""
    path = f"/api/v1/changes/{campaign.json()['id']}"
    answer, etags = campaign, []
    for step_name, body in (
        ("confirm", {"reason": "to try"}),
        ("actions", {"action": "pause"}),
        ("actions", {"action": "resume"}),
        ("cancel", None),
    ):
        assert answer.headers["ETag"] == f'"{answer.json()["revision"]}"'
        if answer.json()["state"] == "confirmed":
            engine.start(Change.objects.get(), timezone.now())
            answer = call_api("GET", f"{path}/progress")
        etags.append(answer.headers["ETag"])
        answer = call_api("POST", f"{path}/{step_name}", body, If_Match=etags[-1])
        assert answer.status_code in (200, 202), answer.json()
    assert len({*etags, answer.headers["ETag"]}) == 5
    assert call_api("GET", path).headers["ETag"] == answer.headers["ETag"]
    assert call_api("GET", "/api/v1/changes").json()["changes"][0]["revision"] == answer.json()["revision"]


def test_confirm_of_an_outdated_config_plan_is_412(call_api: CallApi) -> None:
    """The plan is based on an old revision: 412 with the current one, and one row in the log."""
    plan = call_api("POST", PLAN, {"fields": {"keep_alive_count_max": "7"}}, If_Match="r1")
    store_revision(replace(STORED, web_idle_timeout=60.0), "r2")
    answer = step(call_api, f"/api/v1/changes/{plan.json()['id']}", "confirm", {"reason": "to try"})
    assert (answer.status_code, answer.json()["revision"]) == (412, "r2")
    assert "cannot be confirmed any more" in answer.json()["detail"]
    assert "plan the change again with POST /api/v1/networking-config/plan." in answer.json()["detail"]
    assert "If-Match" not in answer.json()["detail"]
    assert Change.objects.get().state == "planned"
    assert AuditEntry.objects.filter(outcome="refused").count() == 1


def test_confirm_of_an_outdated_policy_plan_is_412(
    call_api: CallApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for desired values of instances."""
    policy_book = FakePolicyBook(auth_id_1=PolicyNode("auth-1"), auth_id_2=PolicyNode("auth-2"))
    monkeypatch.setattr(record_reader, "policy_report_store", lambda: policy_book)
    etag = call_api("GET", "/api/v1/policies").headers["ETag"]
    body = {"desired_values": {"auth": {AUTH_TTL_VARIABLE: "60s"}}}
    plan = call_api("POST", "/api/v1/policies/plan", body, If_Match=etag)
    DesiredPolicy.objects.create(cluster_id="default", target="auth", name=AUTH_TTL_VARIABLE, value="5m")
    answer = step(call_api, f"/api/v1/changes/{plan.json()['id']}", "confirm", {"reason": "to try"})
    assert answer.status_code == 412
    assert "plan the change again with POST /api/v1/policies/plan." in answer.json()["detail"]
    assert f'"{answer.json()["revision"]}"' == call_api("GET", "/api/v1/policies").headers["ETag"]


def test_config_is_taken_back(call_api: CallApi) -> None:
    """A plan of the same fields, on what others wrote since; refused once somebody changed one of them again."""
    plan = call_api("POST", PLAN, {"fields": {"keep_alive_count_max": "7"}}, If_Match="r1").json()
    path, change = f"/api/v1/changes/{plan['id']}", Change.objects.get()
    assert step(call_api, path, "undo").status_code == 409
    engine.transition(change, ChangeState.CONFIRMED, timezone.now())
    engine.start(change, timezone.now())
    engine.transition(change, ChangeState.VERIFIED, timezone.now())
    stored_config = replace(STORED, keep_alive_count_max=7)
    store_revision(replace(stored_config, web_idle_timeout=60.0), "r2")
    back = step(call_api, path, "undo").json()
    assert (back["title"], back["undo_of"]) == ("Undo “Set keep alive count max to 7”", plan["id"])
    store_revision(replace(stored_config, keep_alive_count_max=9), "r3")
    answer = step(call_api, path, "undo")
    assert (answer.status_code, "changed again since" in answer.json()["detail"]) == (409, True)


def test_progress_of_a_config_counts_tunnels(call_api: CallApi) -> None:
    """Those that were to close, and those that have."""
    planned_change = call_api(
        "POST", PLAN, {"fields": {"graceful_tunnel_closing": "true"}}, If_Match="r1"
    ).json()
    change = Change.objects.get()
    plan = {**change.plan, "closing": {**change.plan["closing"], "closing_count": [3, 4]}}
    Change.objects.update(plan=plan, outcome={"closed_count": 1}, state="verifying")
    progress = call_api("GET", f"/api/v1/changes/{planned_change['id']}/progress").json()
    assert (progress["state"], progress["finished_count"], progress["total_count"], progress["percent"]) == (
        "verifying",
        1,
        4,
        25,
    )
    assert NetworkingKind().progress_of(Change(state="verified"), 0.0)["percent"] == 100
    assert NetworkingReading.objects.count() == 1


def test_openapi_document_lists_required_headers() -> None:
    """If-Match is required by every plan on a revision and every step of a change, on both paths of a cluster."""
    conditional, without = set(), set()
    for path, methods in api.get_openapi_schema(path_prefix="/api/v1/")["paths"].items():
        for method, route in methods.items():
            headers = [
                parameter
                for parameter in route["parameters"]
                if parameter["name"] == "If-Match" and parameter["required"]
            ]
            if method == "get":
                assert not headers
                continue
            (conditional if headers else without).add(
                path.removeprefix("/api/v1/").removeprefix("clusters/{cluster}/")
            )
            if headers:
                answers = [parameter for status, parameter in route["responses"].items() if int(status) < 300]
                assert [list(parameter["headers"]) for parameter in answers] == [["ETag"]]
    assert conditional == {"networking-config/plan", "policies/plan"} | {
        f"changes/{{change_id}}/{w}" for w in ASKED
    }
    clusters_themselves = {"clusters", "clusters/{cluster}", "pause", "resume", "delete", "test"}
    # What is made anew, a word about one agent or one instance, and alerts, which are no changes of a fleet.
    alerting_paths = (
        "incidents",
        "silences",
        "maintenance-windows",
        "runbooks",
        "channels",
        "deliveries",
        "routes",
        "alert",
    )
    unconditional = {path for path in without if not path.startswith(alerting_paths)}
    assert unconditional == {
        "reconnect/plan",
        "reconnect/forecast",
        "instances/{instance_id}/out-of-service/plan",
        "agents/{agent_id}/retire",
        "retirements",
        "agent-sets",
        "instances/{instance_id}/drain",
        "instances/{instance_id}/degrade",
        # The list of agents, and who may sign in.
        *("agent-views", "agent-views/{number}", "agent-views/{number}/delete"),
        *("users", "users/{username}"),
        *(
            f"users/{{username}}/{action}"
            for action in ("invitation", "end-sessions", "revoke-tokens", "reset-second-factor")
        ),
        *clusters_themselves,
    }


@pytest.mark.parametrize(
    "query",
    ["outcome=foo", "actor_kind=foo", "days=x", "before=x", "since=x", "until=2020-01-01&since=2021-01-01"],
)
def test_invalid_filter_of_the_audit_log_is_400(call_api: CallApi, query: str) -> None:
    """The unfiltered log would be taken for the filtered one; empty values are no filter."""
    answer = call_api("GET", f"/api/v1/audit?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.json()["detail"]
    assert call_api("GET", "/api/v1/audit?outcome=&actor_kind=&days=&before=").status_code == 200
    assert (
        call_api("GET", "/api/v1/audit?outcome=refused&actor_kind=token&days=7&before=5").status_code == 200
    )
