"""What is asked of a change by the API: only by who says which step of it they saw, and of what still stands."""

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
from tests.dashboards.changes.api.test_networking import PLAN, Ask, ask, step
from tests.dashboards.changes.views.test_networking import STORED, remember
from tests.fakes.policy_nodes import FakePolicyBook, PolicyNode
from tests.fakes.reader import FakeReader

__all__ = ["ask"]
pytestmark = pytest.mark.django_db
ASKED = ("confirm", "approve", "cancel", "undo", "do")


@pytest.fixture
def campaign(ask: Ask, fake_reader: FakeReader) -> Any:
    """A plan, as its answer gives it."""
    fake_reader.states = [State.HEALTHY] * 4
    return ask("POST", "/api/v1/reconnect/plan", {"proxy": "proxy-1"})


def _body(word: str) -> dict[str, str] | None:
    return {"confirm": {"reason": "to try"}, "do": {"do": "pause"}}.get(word)


@pytest.mark.parametrize("word", ASKED)
@pytest.mark.parametrize("cluster", ["", "/clusters/default"])
def test_without_if_match_is_428(ask: Ask, campaign: Any, word: str, cluster: str) -> None:
    """And the sentence says where to take the ETag from; what names nothing is 400. Each attempt is in the log."""
    before = Change.objects.values().get()
    here = f"/api/v1{cluster}/changes/{before['id']}"
    answer = ask("POST", f"{here}/{word}", _body(word))
    assert answer.status_code == 428
    assert f"ETag of GET /api/v1/changes/{before['id']}" in answer.json()["detail"]
    assert ask("POST", f"{here}/{word}", _body(word), If_Match="*").status_code == 400
    assert Change.objects.values().get() == before
    assert AuditEntry.objects.filter(outcome="refused", action=f"api.{_route(word)}").count() == 2


def _route(word: str) -> str:
    return "act" if word == "do" else word


@pytest.mark.parametrize("word", ASKED)
def test_what_somebody_did_meanwhile_is_not_overrun(ask: Ask, campaign: Any, word: str) -> None:
    """412 for whoever saw an earlier step, be the change in the same state again; the answer names the present one."""
    change = Change.objects.get()
    here, seen = f"/api/v1/changes/{change.pk}", campaign.headers["ETag"]
    for state in (ChangeState.CONFIRMED, ChangeState.RUNNING):
        engine.transition(change, state, timezone.now())
    running = ask("GET", here).headers["ETag"]
    for state in (ChangeState.PAUSED, ChangeState.RUNNING):
        engine.transition(change, state, timezone.now())
    for stale in (seen, running):
        answer = ask("POST", f"{here}/{word}", _body(word), If_Match=stale)
        assert answer.status_code == 412
        assert f"GET {here} again" in answer.json()["detail"]
        assert f'"{answer.json()["revision"]}"' == ask("GET", here).headers["ETag"]
    change.refresh_from_db()
    assert change.state == "running"
    assert AuditEntry.objects.filter(outcome="refused", action=f"api.{_route(word)}").count() == 2


def test_every_answer_carries_the_etag(ask: Ask, campaign: Any) -> None:
    """So that the next thing can be asked without another look; lists have it in each item."""
    here = f"/api/v1/changes/{campaign.json()['id']}"
    answer, seen = campaign, []
    for word, body in (
        ("confirm", {"reason": "to try"}),
        ("do", {"do": "pause"}),
        ("do", {"do": "resume"}),
        ("cancel", None),
    ):
        assert answer.headers["ETag"] == f'"{answer.json()["revision"]}"'
        if answer.json()["state"] == "confirmed":
            engine.start(Change.objects.get(), timezone.now())
            answer = ask("GET", f"{here}/progress")
        seen.append(answer.headers["ETag"])
        answer = ask("POST", f"{here}/{word}", body, If_Match=seen[-1])
        assert answer.status_code in (200, 202), answer.json()
    assert len({*seen, answer.headers["ETag"]}) == 5
    assert ask("GET", here).headers["ETag"] == answer.headers["ETag"]
    assert ask("GET", "/api/v1/changes").json()["changes"][0]["revision"] == answer.json()["revision"]


def test_config_that_somebody_wrote_since_is_not_agreed_to(ask: Ask) -> None:
    """The plan stands on a revision that is stored no more: 412, which says what is, and one row in the log."""
    made = ask("POST", PLAN, {"fields": {"keep_alive_count_max": "7"}}, If_Match="r1")
    remember(replace(STORED, web_idle_timeout=60.0), "r2")
    answer = step(ask, f"/api/v1/changes/{made.json()['id']}", "confirm", {"reason": "to try"})
    assert (answer.status_code, answer.json()["revision"]) == (412, "r2")
    assert "GET /api/v1/networking-config again" in answer.json()["detail"]
    assert Change.objects.get().state == "planned"
    assert AuditEntry.objects.filter(outcome="refused").count() == 1


def test_policies_that_somebody_changed_since_are_not_agreed_to(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for what is wanted of instances."""
    seen = FakePolicyBook(auth_id_1=PolicyNode("auth-1"), auth_id_2=PolicyNode("auth-2"))
    monkeypatch.setattr(record_reader, "policy_book", lambda: seen)
    etag = ask("GET", "/api/v1/policies").headers["ETag"]
    wanted = {"desired": {"auth": {AUTH_TTL_VARIABLE: "60s"}}}
    made = ask("POST", "/api/v1/policies/plan", wanted, If_Match=etag)
    DesiredPolicy.objects.create(cluster_id="default", target="auth", name=AUTH_TTL_VARIABLE, value="5m")
    answer = step(ask, f"/api/v1/changes/{made.json()['id']}", "confirm", {"reason": "to try"})
    assert answer.status_code == 412
    assert "GET /api/v1/policies again" in answer.json()["detail"]
    assert f'"{answer.json()["revision"]}"' == ask("GET", "/api/v1/policies").headers["ETag"]


def test_config_is_taken_back(ask: Ask) -> None:
    """A plan of the same fields, on what others wrote since; refused once somebody changed one of them again."""
    made = ask("POST", PLAN, {"fields": {"keep_alive_count_max": "7"}}, If_Match="r1").json()
    here, change = f"/api/v1/changes/{made['id']}", Change.objects.get()
    assert step(ask, here, "undo").status_code == 409
    for state in (ChangeState.CONFIRMED, ChangeState.RUNNING, ChangeState.VERIFIED):
        engine.transition(change, state, timezone.now())
    written = replace(STORED, keep_alive_count_max=7)
    remember(replace(written, web_idle_timeout=60.0), "r2")
    back = step(ask, here, "undo").json()
    assert (back["title"], back["undoes"]) == ("keep_alive_count_max = 3", made["id"])
    remember(replace(written, keep_alive_count_max=9), "r3")
    refused = step(ask, here, "undo")
    assert (refused.status_code, "changed again since" in refused.json()["detail"]) == (409, True)


def test_progress_of_a_config_counts_tunnels(ask: Ask) -> None:
    """Those that were to close, and those that have."""
    made = ask("POST", PLAN, {"fields": {"graceful_tunnel_closing": "true"}}, If_Match="r1").json()
    change = Change.objects.get()
    plan = {**change.plan, "closing": {**change.plan["closing"], "closes": [3, 4]}}
    Change.objects.update(plan=plan, outcome={"closed": 1}, state="verifying")
    said = ask("GET", f"/api/v1/changes/{made['id']}/progress").json()
    assert (said["state"], said["done"], said["total"], said["percent"]) == ("verifying", 1, 4, 25)
    assert NetworkingKind().progress_of(Change(state="verified"), 0.0)["percent"] == 100
    assert NetworkingReading.objects.count() == 1


def test_document_says_what_must_be_sent() -> None:
    """If-Match is required by everything that plans on a revision, or is asked of a change; both ways to a cluster."""
    wants, without = set(), set()
    for path, methods in api.get_openapi_schema(path_prefix="/api/v1/")["paths"].items():
        for method, route in methods.items():
            sent = [one for one in route["parameters"] if one["name"] == "If-Match" and one["required"]]
            if method == "get":
                assert not sent
                continue
            (wants if sent else without).add(
                path.removeprefix("/api/v1/").removeprefix("clusters/{cluster}/")
            )
            if sent:
                answers = [one for status, one in route["responses"].items() if int(status) < 300]
                assert [list(one["headers"]) for one in answers] == [["ETag"]]
    assert wants == {"networking-config/plan", "policies/plan"} | {
        f"changes/{{change_id}}/{w}" for w in ASKED
    }
    # What is made anew, a word about one agent or one instance, and alerts, which are no changes of a fleet.
    others = {path for path in without if not path.startswith(("incidents", "silences"))}
    assert others == {
        "reconnect/plan",
        "agents/{agent_id}/retire",
        "instances/{instance_id}/drain",
        "instances/{instance_id}/degrade",
    }
