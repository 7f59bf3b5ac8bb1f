"""Policies by the API."""

from __future__ import annotations

import pytest
from django.utils import timezone

from dashboards.shared import record_reader
from fleet.changes import engine
from fleet.changes.policies import desired
from fleet.models.changes import AuditEntry, Change
from fleet.protocol.policies.env_policies import BY_NAME
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.vocabulary.changes import ChangeState
from tests.dashboards.changes.api.test_networking import Ask, ask, step
from tests.fakes.policy_nodes import FakePolicyBook, PolicyNode
from tests.fakes.wrong_values import POLICIES

__all__ = ["ask"]
pytestmark = pytest.mark.django_db
WANTED = {"desired": {"auth": {AUTH_TTL_VARIABLE: "60s"}}}


@pytest.fixture(autouse=True)
def book(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two auths that report, of which one takes nothing."""
    seen = FakePolicyBook(auth_id_1=PolicyNode("auth-1"), auth_id_2=PolicyNode("auth-2", why_not="no folder"))
    monkeypatch.setattr(record_reader, "policy_book", lambda: seen)


def test_read_plan_and_follow(ask: Ask) -> None:
    """The ETag of what was read is If-Match of the plan; without it 428, with an old one 412."""
    found = ask("GET", "/api/v1/policies")
    assert [one["name"] for one in found.json()["instances"] if one["takes"]] == ["auth-1"]
    assert ask("POST", "/api/v1/policies/plan", WANTED).status_code == 428
    assert ask("POST", "/api/v1/policies/plan", WANTED, If_Match='"old"').status_code == 412
    made = ask("POST", "/api/v1/policies/plan", WANTED, If_Match=found.headers["ETag"])
    assert made.status_code == 201
    assert [one["name"] for one in made.json()["plan"]["restarts"]] == ["auth-1"]
    progress = ask("GET", f"/api/v1/clusters/default/changes/{made.json()['id']}/progress").json()
    assert (progress["total"], progress["done"]) == (1, 0)
    (row,) = made.json()["plan"]["ttl"]
    assert (row["before"]["detection"], row["after"]["detection"]) == ("10m0s", "1m0s")
    assert made.json()["question"] == "Restart 1 auth with 2 connected agents?"


def test_taking_back(ask: Ask) -> None:
    """A plan like any other; only of what is over, and of policies."""
    etag = ask("GET", "/api/v1/policies").headers["ETag"]
    first = ask("POST", "/api/v1/policies/plan", WANTED, If_Match=etag).json()["id"]
    here = f"/api/v1/clusters/default/changes/{first}"
    assert step(ask, here, "undo").status_code == 409
    row = Change.objects.get()
    desired.store_desired_values(row)
    engine.transition(row, ChangeState.CONFIRMED, timezone.now())
    engine.transition(row, ChangeState.FAILED, timezone.now())
    made = step(ask, f"/api/v1/changes/{first}", "undo")
    assert (made.status_code, made.json()["undoes"], made.json()["after"]) == (201, first, {})


def test_wrong_values_are_named(ask: Ask) -> None:
    """By target and policy; nothing is planned; the attempt is in the log."""
    etag = ask("GET", "/api/v1/clusters/default/policies").headers["ETag"]
    wrong = {"desired": {"auth": {AUTH_TTL_VARIABLE: "soon", "PATH": "x"}}}
    answer = ask("POST", "/api/v1/clusters/default/policies/plan", wrong, If_Match=etag)
    assert answer.status_code == 400
    assert set(answer.json()["problems"]) == {f"auth.{AUTH_TTL_VARIABLE}", "auth.PATH"}
    terms = ask("POST", "/api/v1/policies/plan", {**WANTED, "terms": {"at_once": 0}}, If_Match=etag)
    assert set(terms.json()["problems"]) == {"at_once"}
    assert not Change.objects.exists()
    assert AuditEntry.objects.filter(action="policy.plan", outcome="refused").count() == 2


def test_wrong_value_of_every_policy(ask: Ask) -> None:
    """400 by target and policy; nothing is planned or wanted."""
    etag = ask("GET", "/api/v1/policies").headers["ETag"]
    for name, text in POLICIES:
        role = BY_NAME[name].role
        answer = ask("POST", "/api/v1/policies/plan", {"desired": {role: {name: text}}}, If_Match=etag)
        assert (answer.status_code, set(answer.json()["problems"])) == (400, {f"{role}.{name}"}), text[:20]
    assert not Change.objects.exists()
    assert desired.desired_values_of("default") == {}
