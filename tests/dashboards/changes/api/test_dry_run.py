"""Dry runs by the API: plans that are not stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.utils import timezone

from dashboards.api_v1 import api
from dashboards.shared import record_reader
from fleet.changes import engine
from fleet.models.actions import CampaignAgent
from fleet.models.changes import AuditEntry, Change
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.verdicts import State
from tests.dashboards.changes.api.test_networking import PLAN, CallApi, call_api, step
from tests.dashboards.changes.views.test_networking import STORED, store_revision
from tests.fakes.policy_nodes import FakePolicyBook, PolicyNode
from tests.fakes.reader import FakeReader

__all__ = ["call_api"]
pytestmark = pytest.mark.django_db


def _count_rows() -> list[int]:
    return [model.objects.count() for model in (Change, AuditEntry, CampaignAgent)]


@pytest.mark.parametrize(
    ("path", "body", "read_path"),
    [
        ("/api/v1/reconnect/plan", {"proxy": "proxy-1"}, ""),
        ("/api/v1/instances/proxy-id-1/out-of-service/plan", {}, ""),
        (PLAN, {"fields": {"graceful_tunnel_closing": "true"}}, "/api/v1/networking-config"),
        (
            "/api/v1/policies/plan",
            {"desired_values": {"auth": {AUTH_TTL_VARIABLE: "60s"}}},
            "/api/v1/policies",
        ),
    ],
)
def test_dry_run_leaves_no_row(
    call_api: CallApi,
    fake_reader: FakeReader,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    body: dict[str, Any],
    read_path: str,
) -> None:
    """It returns the plan that the same request without `dry_run` stores, without a number."""
    fake_reader.states = [State.HEALTHY] * 4
    monkeypatch.setattr(
        record_reader,
        "policy_report_store",
        lambda: FakePolicyBook(auth_id_1=PolicyNode("auth-1"), auth_id_2=PolicyNode("auth-2")),
    )
    headers = {"If_Match": call_api("GET", read_path).headers["ETag"]} if read_path else {}
    before = _count_rows()
    answer = call_api("POST", f"{path}?dry_run=true", body, Idempotency_Key="k", **headers)
    assert answer.status_code == 201, answer.json()
    assert _count_rows() == before
    stored = call_api("POST", path, body, Idempotency_Key="k", **headers).json()
    assert Change.objects.count() == before[0] + 1
    plan = answer.json()
    assert (plan["id"], plan["state"]) == (0, "planned")
    for name in ("kind", "title", "question", "affected_count", "confirmation_required", "after"):
        assert plan[name] == stored[name]


def test_dry_run_of_an_undo(call_api: CallApi) -> None:
    """No second change."""
    planned_change = call_api("POST", PLAN, {"fields": {"keep_alive_count_max": "7"}}, If_Match="r1").json()
    change = Change.objects.get()
    for carry_out in (_confirm, engine.start, _verify):
        carry_out(change, timezone.now())
    store_revision(replace(STORED, keep_alive_count_max=7), "r2")
    undo = step(call_api, f"/api/v1/changes/{planned_change['id']}", "undo?dry_run=true")
    assert (undo.status_code, undo.json()["id"], undo.json()["undo_of"]) == (201, 0, planned_change["id"])
    assert Change.objects.count() == 1


def _confirm(change: Change, now: Any) -> object:
    return engine.transition(change, ChangeState.CONFIRMED, now)


def _verify(change: Change, now: Any) -> object:
    return engine.transition(change, ChangeState.VERIFIED, now)


@pytest.mark.parametrize("query", ["dry_run=perhaps", "dryrun=true"])
def test_unclear_dry_run_is_refused(call_api: CallApi, fake_reader: FakeReader, query: str) -> None:
    """A typing mistake must not store a plan."""
    fake_reader.states = [State.HEALTHY] * 4
    answer = call_api("POST", f"/api/v1/reconnect/plan?{query}", {"proxy": "proxy-1"})
    assert answer.status_code in (400, 422)
    assert not Change.objects.exists()


def test_openapi_document_has_the_parameter_on_every_plan() -> None:
    """On both paths of a cluster, and on nothing that is no plan."""
    paths: dict[str, Any] = api.get_openapi_schema(path_prefix="/api/v1/")["paths"]

    documented_paths = {
        path
        for path, methods in paths.items()
        if any(parameter["name"] == "dry_run" for parameter in methods.get("post", {}).get("parameters", ()))
    }
    assert documented_paths == {
        path for path in paths if path.endswith(("/plan", "/undo")) and "alert" not in path
    }
