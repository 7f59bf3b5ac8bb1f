"""Instances out of service by the API."""

from __future__ import annotations

import pytest

from dashboards.changes import service
from fleet.models.changes import Change
from fleet.models.drains import Drain
from fleet.vocabulary.verdicts import State
from tests.dashboards.changes.api.test_networking import CallApi, call_api, step
from tests.fakes.reader import FakeReader

__all__ = ["call_api"]
pytestmark = pytest.mark.django_db
PATH = "/api/v1/instances/proxy-id-1/out-of-service/plan"


def test_plan_and_confirm(call_api: CallApi, fake_reader: FakeReader) -> None:
    """The plan says how many agents move and where to; nothing runs before the confirmation."""
    fake_reader.states = [State.HEALTHY] * 4
    answer = call_api("POST", PATH, {"preset": "careful", "settings": {"canary_size": 1}})
    plan = answer.json()
    assert (answer.status_code, plan["kind"], plan["state"]) == (201, "service", "planned")
    assert plan["question"] == "Take proxy-1 out of service and move 2 agents?"
    first_load = plan["plan"]["loads"][0]
    assert (first_load["name"], first_load["is_leaving"]) == ("proxy-1", True)
    settings = Change.objects.get().parameters["settings"]
    assert (settings["canary_size"], settings["rate_per_minute"]) == (1, 60)
    assert not Drain.objects.exists()
    confirmation = step(call_api, f"/api/v1/changes/{plan['id']}", "confirm", {"reason": "kernel update"})
    assert confirmation.json()["state"] == "confirmed"


def test_last_instance_needs_permission(
    call_api: CallApi, fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """409 with the field that allows it."""
    monkeypatch.setattr(service, "accepts_connections", lambda *_: False)
    answer = call_api("POST", PATH, {})
    assert (answer.status_code, "allow_last" in answer.json()["detail"]) == (409, True)
    assert call_api("POST", PATH, {"allow_last": True}).status_code == 201


@pytest.mark.parametrize(
    ("body", "field"),
    [({"preset": "reckless"}, "preset"), ({"settings": {"canary_size": -1}}, "canary_size")],
)
def test_invalid_settings_are_refused(
    call_api: CallApi, fake_reader: FakeReader, body: dict[str, object], field: str
) -> None:
    """With the field."""
    answer = call_api("POST", PATH, body)
    assert (answer.status_code, list(answer.json()["problems"])) == (400, [field])
    assert not Change.objects.exists()


def test_unknown_instance_is_not_found(call_api: CallApi) -> None:
    """404."""
    assert call_api("POST", PATH.replace("proxy-id-1", "nobody"), {}).status_code == 404
