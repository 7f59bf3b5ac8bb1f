"""The networking config by the API: nobody's change is lost, and every refusal says why."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from celery import current_app
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from fleet.models.access import Permission
from fleet.models.changes import AuditEntry, Change
from fleet.models.tokens import create_token
from tests.dashboards.changes.views.test_networking import STORED, store_revision
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader
from tests.fakes.wrong_values import NETWORKING, document_of

pytestmark = pytest.mark.django_db
CallApi = Callable[..., Any]
PLAN = "/api/v1/networking-config/plan"


@pytest.fixture
def call_api(
    client: Client, person: MakeUser, fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch
) -> CallApi:
    """Asks with a token of a config admin; workers are given nothing."""
    monkeypatch.setattr(current_app, "send_task", lambda name, args: None)
    store_revision(STORED, "r1")
    scopes = [Permission.VIEW_FLEET, Permission.CHANGE_CONFIG, Permission.ACT_ON_FLEET, Permission.VIEW_AUDIT]
    user = person("config admin")
    _token, secret = create_token(user, "ci", scopes, lifetime=None, now=timezone.now())

    def send_request(method: str, path: str, body: Any = None, **headers: str) -> Any:
        all_headers = {
            "Authorization": f"Bearer {secret}",
            **{k.replace("_", "-"): v for k, v in headers.items()},
        }
        return client.generic(
            method,
            path,
            data="" if body is None else json.dumps(body),
            content_type="application/json",
            headers=all_headers,
        )

    return send_request


def step(call_api: CallApi, path: str, step_name: str, body: Any = None) -> Any:
    """What is asked of a change by somebody who has just looked at it."""
    return call_api("POST", f"{path}/{step_name}", body, If_Match=call_api("GET", path).headers["ETag"])


def test_read_has_an_etag(call_api: CallApi) -> None:
    """The revision, as If-Match wants it."""
    answer = call_api("GET", "/api/v1/clusters/default/networking-config")
    assert (answer.headers["ETag"], answer.json()["revision"]) == ('"r1"', "r1")
    assert answer.json()["document"]["spec"]["keep_alive_count_max"] == 3
    assert call_api("GET", "/api/v1/networking-config/revisions").json()["revisions"][0]["revision"] == "r1"


def test_plan_without_if_match_is_428(call_api: CallApi) -> None:
    """The precondition is required, not optional."""
    assert call_api("POST", PLAN, {"fields": {"keep_alive_count_max": "7"}}).status_code == 428
    assert call_api("POST", PLAN, {"fields": {}}, If_Match="*").status_code == 400


def test_plan_of_a_stale_revision_is_412(call_api: CallApi) -> None:
    """The response has the current revision; the attempt is in the log."""
    store_revision(replace(STORED, web_idle_timeout=60.0), "r2")
    answer = call_api("POST", PLAN, {"fields": {"keep_alive_count_max": "7"}}, If_Match='"r1"')
    assert (answer.status_code, answer.json()["revision"]) == (412, "r2")
    assert "wrote revision r2 in the meantime" in answer.json()["detail"]
    assert AuditEntry.objects.get(outcome="refused").actor_kind == "token"
    assert not Change.objects.exists()


def test_plan_of_an_unknown_revision_is_412(call_api: CallApi) -> None:
    """Nobody wrote anything in the meantime, and the error does not say so."""
    answer = call_api("POST", PLAN, {"fields": {"keep_alive_count_max": "7"}}, If_Match='"abc"')
    assert (answer.status_code, answer.json()["revision"]) == (412, "r1")
    assert answer.json()["detail"] == (
        "'abc' is not a revision of this config; the current one is r1. Your change was not applied. "
        "Read GET /api/v1/networking-config again and send its ETag as If-Match."
    )


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ({"fields": {"keep_alive_count_max": "101"}}, "keep_alive_count_max"),
        ({"fields": {"no_such": "1"}}, "no_such"),
        ({"spec": {"keep_alive_interval": 5}}, "keep_alive_interval"),
        ({"spec": {"nonsense": 1}}, "spec.nonsense"),
        ({"revision": "r9"}, "revision"),
        ({}, "fields"),
    ],
)
def test_wrong_values_are_400_by_field(call_api: CallApi, body: Any, key: str) -> None:
    """And nothing is saved."""
    answer = call_api("POST", PLAN, body, If_Match="r1")
    assert (answer.status_code, key in answer.json()["problems"]) == (400, True)
    assert not Change.objects.exists()


def test_wrong_value_of_every_field(call_api: CallApi) -> None:
    """As a person writes it and in a spec: 400 by key, nothing saved, each attempt in the log."""
    for key, text, value, _ in NETWORKING:
        for body in ({"fields": {key: text}}, {"spec": document_of(key, value)}):
            answer = call_api("POST", PLAN, body, If_Match="r1")
            assert (answer.status_code, set(answer.json()["problems"])) == (400, {key})
    assert not Change.objects.exists()
    assert AuditEntry.objects.filter(outcome="refused").count() == 2 * len(NETWORKING)


def test_plan_confirm_and_log(call_api: CallApi) -> None:
    """The whole way; the same Idempotency-Key makes one change; the log names token and request."""
    headers = {"If_Match": "r1", "Idempotency_Key": "k", "X_Request_Id": "req-1"}
    first = call_api("POST", PLAN, {"fields": {"graceful_tunnel_closing": "true"}}, **headers)
    again = call_api("POST", PLAN, {"fields": {"graceful_tunnel_closing": "true"}}, **headers)
    assert (first.status_code, again.json()["id"]) == (201, first.json()["id"])
    assert first.headers["X-Request-Id"] == "req-1"
    assert first.json()["plan"]["closing"]["rule"] == "rfd"
    path = f"/api/v1/changes/{first.json()['id']}"
    assert set(step(call_api, path, "confirm", {"reason": ""}).json()["problems"]) == {"reason"}
    assert step(call_api, path, "confirm", {"reason": "by script"}).status_code == 202
    assert step(call_api, path, "confirm", {"reason": "by script"}).status_code == 409
    assert call_api("GET", path).json()["state"] == "confirmed"
    assert step(call_api, path, "approve").status_code == 409
    assert step(call_api, path, "cancel").json()["state"] == "cancelled"
    assert call_api("GET", "/api/v1/changes").json()["changes"][0]["state"] == "cancelled"
    entries = call_api("GET", "/api/v1/audit?q=req-1").json()["entries"]
    assert {entry["action"] for entry in entries} == {"networking-config.plan"}
    assert entries[0]["actor_name"].startswith("API token ci (")


def test_going_back_to_a_revision(call_api: CallApi) -> None:
    """By its name."""
    store_revision(replace(STORED, keep_alive_count_max=5), "r2")
    assert (
        call_api("POST", PLAN, {"revision": "r1"}, If_Match="r2").json()["title"]
        == "Set keep alive count max to 3"
    )


def test_blind_pollers_are_409(call_api: CallApi, fake_reader: FakeReader) -> None:
    """With the sentence."""
    fake_reader.as_of = 1.0
    answer = call_api("POST", PLAN, {"fields": {"graceful_tunnel_closing": "true"}}, If_Match="r1")
    assert (answer.status_code, "No current data" in answer.json()["detail"]) == (409, True)


def test_session_must_be_proven_again(client: Client, call_api: CallApi) -> None:
    """A browser's session confirms by the page only, unless it was proven a moment ago."""
    change = call_api("POST", PLAN, {"fields": {"keep_alive_count_max": "7"}}, If_Match="r1").json()["id"]
    client.force_login(User.objects.get())
    answer = client.post(
        f"/api/v1/changes/{change}/cancel", content_type="application/json", headers={"X-Csrftoken": "x"}
    )
    assert answer.status_code == 403


def test_operator_may_not_confirm_a_config(client: Client, call_api: CallApi, person: MakeUser) -> None:
    """Acting on the fleet is not changing its config."""
    change = call_api("POST", PLAN, {"fields": {"keep_alive_count_max": "7"}}, If_Match="r1").json()["id"]
    _token, secret = create_token(
        person("operator"), "ops", [Permission.ACT_ON_FLEET], lifetime=None, now=timezone.now()
    )
    answer = client.post(
        f"/api/v1/changes/{change}/confirm",
        {"reason": "because"},
        content_type="application/json",
        headers={"Authorization": f"Bearer {secret}"},
    )
    assert answer.status_code == 403


def test_viewers_attempt_is_in_the_log(client: Client, call_api: CallApi, person: MakeUser) -> None:
    """Refused before there is a change."""
    _token, secret = create_token(
        person("viewer"), "curious", [Permission.CHANGE_CONFIG], lifetime=None, now=timezone.now()
    )
    headers = {"Authorization": f"Bearer {secret}", "If-Match": "r1"}
    answer = client.post(PLAN, {"fields": {}}, content_type="application/json", headers=headers)
    entry = AuditEntry.objects.get(action="api.plan_networking_change", outcome="refused")
    assert (answer.status_code, entry.outcome, entry.subject) == (403, "refused", PLAN)
    assert entry.actor_name.startswith("API token curious (")
