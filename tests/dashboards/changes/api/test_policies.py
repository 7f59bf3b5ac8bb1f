"""Policies by the API."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from dashboards.shared import record_reader
from fleet.changes import engine
from fleet.changes.policies import desired_state
from fleet.models.actions import DesiredPolicy
from fleet.models.changes import AuditEntry, Change
from fleet.protocol.policies import policy_json
from fleet.protocol.policies.env_policies import BY_NAME
from fleet.protocol.policies.presets import PRESETS_BY_SLUG
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE, PROXY_TTL_VARIABLE
from fleet.protocol.recovery.service_config import RFD_VARIABLE
from fleet.vocabulary.changes import ChangeState
from tests.dashboards.changes.api.test_networking import CallApi, call_api, step
from tests.fakes.policy_nodes import FakePolicyBook, PolicyNode
from tests.fakes.wrong_values import POLICIES

__all__ = ["call_api"]
pytestmark = pytest.mark.django_db
PLAN = "/api/v1/policies/plan"
WANTED = {"desired_values": {"auth": {AUTH_TTL_VARIABLE: "60s"}}}


@pytest.fixture(autouse=True)
def book(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two auths that report, of which one takes nothing."""
    policy_book = FakePolicyBook(
        auth_id_1=PolicyNode("auth-1"), auth_id_2=PolicyNode("auth-2", refusal_reason="no folder")
    )
    monkeypatch.setattr(record_reader, "policy_report_store", lambda: policy_book)


def test_read_plan_and_follow(call_api: CallApi) -> None:
    """The ETag of what was read is If-Match of the plan; without it 428, with an old one 412."""
    answer = call_api("GET", "/api/v1/policies")
    assert [instance["name"] for instance in answer.json()["instances"] if instance["accepts_policies"]] == [
        "auth-1"
    ]
    assert call_api("POST", "/api/v1/policies/plan", WANTED).status_code == 428
    assert call_api("POST", "/api/v1/policies/plan", WANTED, If_Match='"old"').status_code == 412
    plan = call_api("POST", "/api/v1/policies/plan", WANTED, If_Match=answer.headers["ETag"])
    assert plan.status_code == 201
    assert [instance["name"] for instance in plan.json()["plan"]["restarts"]] == ["auth-1"]
    progress = call_api("GET", f"/api/v1/clusters/default/changes/{plan.json()['id']}/progress").json()
    assert (progress["total_count"], progress["finished_count"]) == (1, 0)
    (row,) = plan.json()["plan"]["ttl"]
    assert (row["before"]["detection_time"], row["after"]["detection_time"]) == ("10 min", "1 min")
    assert plan.json()["question"].endswith(", and restart 1 auth with 2 connected agents?")


def test_presets_have_their_values(call_api: CallApi) -> None:
    """What each sets, and whether that is the case; nothing is stored, and the ETag is that of the policies."""
    answer = call_api("GET", "/api/v1/clusters/default/policies/presets")
    assert answer.headers["ETag"] == call_api("GET", "/api/v1/policies").headers["ETag"]
    presets = {preset["name"]: preset for preset in answer.json()["presets"]}
    assert set(presets) == set(PRESETS_BY_SLUG)
    assert presets["recommended"]["label"] == "Recommended"
    assert presets["recommended"]["description"].endswith(".")
    assert presets["recommended"]["desired_values"]["proxy"][PROXY_TTL_VARIABLE] == "1m"
    (policy_text,) = presets["failover"]["desired_values"]["auth"].values()
    assert policy_text == policy_json.canonical(PRESETS_BY_SLUG["failover"].values["auth"][RFD_VARIABLE])
    assert not any(preset["is_in_effect"] for preset in presets.values())
    for name, value in PRESETS_BY_SLUG["failover"].values["auth"].items():
        DesiredPolicy.objects.create(cluster_id="default", target="auth", name=name, value=value)
    presets_now = call_api("GET", "/api/v1/policies/presets").json()["presets"]
    assert {preset["name"]: preset["is_in_effect"] for preset in presets_now} == {
        "recommended": False,
        "failover": True,
    }


def test_plan_of_a_preset_keeps_other_values(call_api: CallApi) -> None:
    """It changes its own values only, of the desired values that If-Match names."""
    DesiredPolicy.objects.create(cluster_id="default", target="auth", name=AUTH_TTL_VARIABLE, value="2m")
    etag = call_api("GET", "/api/v1/policies").headers["ETag"]
    assert call_api("POST", PLAN, {"preset": "failover"}).status_code == 428
    assert call_api("POST", PLAN, {"preset": "failover"}, If_Match='"old"').status_code == 412
    plan = call_api("POST", PLAN, {"preset": "failover", "settings": {"soak_seconds": 7}}, If_Match=etag)
    assert (plan.status_code, plan.json()["kind"]) == (201, "policy")
    assert plan.json()["title"] == "Set agent reconnect mode of all auths to reconnect, health check"
    assert plan.json()["after"]["auth"].keys() == {AUTH_TTL_VARIABLE, RFD_VARIABLE}
    assert [instance["name"] for instance in plan.json()["plan"]["restarts"]] == ["auth-1"]
    assert Change.objects.get().parameters["soak_seconds"] == 7


@pytest.mark.parametrize(
    "body", [{}, {"preset": "reckless"}, {"preset": "\0"}, {"preset": "failover", "desired_values": {}}]
)
def test_plan_takes_one_known_preset_or_desired_values(call_api: CallApi, body: Any) -> None:
    """400 with the field; nothing is planned; the attempt is in the log."""
    etag = call_api("GET", "/api/v1/policies").headers["ETag"]
    answer = call_api("POST", PLAN, body, If_Match=etag)
    assert (answer.status_code, set(answer.json()["problems"])) == (400, {"preset"})
    assert not Change.objects.exists()
    assert AuditEntry.objects.get().action == "policy.plan"


def test_taking_back(call_api: CallApi) -> None:
    """A plan like any other; only of what is over, and of policies."""
    etag = call_api("GET", "/api/v1/policies").headers["ETag"]
    first = call_api("POST", "/api/v1/policies/plan", WANTED, If_Match=etag).json()["id"]
    path = f"/api/v1/clusters/default/changes/{first}"
    assert step(call_api, path, "undo").status_code == 409
    row = Change.objects.get()
    desired_state.store_desired_values(row)
    engine.transition(row, ChangeState.CONFIRMED, timezone.now())
    engine.start(row, timezone.now())
    engine.transition(row, ChangeState.FAILED, timezone.now())
    undo_plan = step(call_api, f"/api/v1/changes/{first}", "undo")
    assert (undo_plan.status_code, undo_plan.json()["undo_of"], undo_plan.json()["after"]) == (201, first, {})


def test_wrong_values_are_named(call_api: CallApi) -> None:
    """By target and policy; nothing is planned; the attempt is in the log."""
    etag = call_api("GET", "/api/v1/clusters/default/policies").headers["ETag"]
    wrong = {"desired_values": {"auth": {AUTH_TTL_VARIABLE: "soon", "PATH": "x"}}}
    answer = call_api("POST", "/api/v1/clusters/default/policies/plan", wrong, If_Match=etag)
    assert answer.status_code == 400
    assert set(answer.json()["problems"]) == {f"auth.{AUTH_TTL_VARIABLE}", "auth.PATH"}
    terms = call_api(
        "POST", "/api/v1/policies/plan", {**WANTED, "settings": {"concurrency": 0}}, If_Match=etag
    )
    assert set(terms.json()["problems"]) == {"concurrency"}
    assert not Change.objects.exists()
    assert AuditEntry.objects.filter(action="policy.plan", outcome="refused").count() == 2


def test_typed_duration_is_stored_as_nodes_read_it(call_api: CallApi) -> None:
    """Scripts may send what a person typed."""
    etag = call_api("GET", "/api/v1/policies").headers["ETag"]
    body = {"desired_values": {"auth": {AUTH_TTL_VARIABLE: "1 min 30 s"}}}
    plan = call_api("POST", "/api/v1/policies/plan", body, If_Match=etag)
    assert plan.json()["after"] == {"auth": {AUTH_TTL_VARIABLE: "1m30s"}}


def test_wrong_value_of_every_policy(call_api: CallApi) -> None:
    """400 by target and policy; nothing is planned or stored."""
    etag = call_api("GET", "/api/v1/policies").headers["ETag"]
    for name, text in POLICIES:
        role = BY_NAME[name].role
        answer = call_api(
            "POST", "/api/v1/policies/plan", {"desired_values": {role: {name: text}}}, If_Match=etag
        )
        assert (answer.status_code, set(answer.json()["problems"])) == (400, {f"{role}.{name}"}), text[:20]
    assert not Change.objects.exists()
    assert desired_state.desired_values_of("default") == {}
