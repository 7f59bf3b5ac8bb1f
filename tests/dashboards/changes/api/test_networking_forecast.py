"""The forecast of a networking config by the API: the numbers of the page, and no plan."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.utils import timezone

from fleet.models.access import Permission
from fleet.models.changes import AuditEntry, Change
from fleet.models.networking import NetworkingReading
from fleet.models.tokens import create_token
from fleet.vocabulary.verdicts import State
from tests.dashboards.changes.views.test_networking import STORED, store_revision
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader
from tests.fakes.wrong_values import NETWORKING

pytestmark = pytest.mark.django_db
PATH = "/api/v1/clusters/default/networking-config/forecast"


@pytest.fixture
def viewer(client: Client, person: MakeUser, fake_reader: FakeReader) -> Client:
    """A client with a token of a viewer; every agent aims for one tunnel and has it."""
    store_revision(STORED, "r1")
    fake_reader.states, fake_reader.desired_count = [State.HEALTHY] * 4, 1
    _token, secret = create_token(
        person("viewer"), "test", [Permission.VIEW_FLEET], lifetime=timedelta(days=1), now=timezone.now()
    )
    client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {secret}"
    return client


def _forecast(viewer: Client, *fields: str, status: int = 200) -> Any:
    response = viewer.get(f"{PATH}?{urlencode({'field': fields}, doseq=True)}")
    assert response.status_code == status, response.content
    return response.json()


def test_current_config_is_forecast_without_fields(viewer: Client) -> None:
    """No field differs, and nothing moves; the default cluster has the short path too."""
    forecast = _forecast(viewer)
    assert (forecast["revision"], forecast["changes"], forecast["agent_count"]) == ("r1", [], 4)
    assert (forecast["closing"]["closing_count"], forecast["closing"]["opening_count"]) == ([0, 0], 0)
    assert viewer.get("/api/v1/networking-config/forecast").json()["revision"] == "r1"


def test_viewer_gets_a_forecast_and_nothing_is_recorded(viewer: Client) -> None:
    """Dials, changed fields in words, and each proxy before and after; no change and no entry in the audit log."""
    forecast = _forecast(viewer, "agent_connection_count=2", "keep_alive_interval=1m")
    assert (forecast["closing"]["opening_count"], forecast["closing"]["opening_agent_count"]) == (4, 4)
    assert [(row["key"], row["before"], row["after"]) for row in forecast["changes"]] == [
        ("keep_alive_interval", "5 min", "1 min"),
        ("tunnel_strategy.agent_connection_count", "1", "2"),
    ]
    assert [proxy["name"] for proxy in forecast["closing"]["proxies"]] == ["proxy-1", "proxy-2"]
    assert any(note.startswith("Half-open tunnels will be detected") for note in forecast["notes"])
    _forecast(viewer, "agent_connection_count=101", status=400)
    assert not Change.objects.exists()
    assert not AuditEntry.objects.exists()


def test_excess_tunnels_close_or_stay_open(viewer: Client, fake_reader: FakeReader) -> None:
    """How many, of how many agents and when; without a rule, what would close if it were on."""
    store_revision(replace(STORED, agent_connection_count=2), "r2")
    fake_reader.tunnels_per_agent = fake_reader.desired_count = 2
    without_rule = _forecast(viewer, "agent_connection_count=1")
    assert (without_rule["closing"]["rule"], without_rule["closing"]["closing_count"]) == ("none", [0, 0])
    assert without_rule["closing_if_on"]["closing_count"] == [4, 4]
    waits = ("tunnel_closing_wait_min=20s", "tunnel_closing_wait_max=40s")
    with_rule = _forecast(viewer, "agent_connection_count=1", "graceful_tunnel_closing=true", *waits)
    assert (with_rule["closing"]["rule"], with_rule["closing_if_on"]) == ("rfd", None)
    assert (with_rule["closing"]["closing_count"], with_rule["closing"]["agent_count"]) == ([4, 4], [4, 4])
    (step,) = with_rule["closing"]["steps"]
    latest_seconds = 40.0 + with_rule["closing"]["reaction_seconds"]
    assert (step["earliest_seconds"], step["latest_seconds"]) == (20.0, pytest.approx(latest_seconds))


def test_wrong_values_are_400_by_field(viewer: Client) -> None:
    """As for a plan; an unknown parameter too."""
    for key, text, _value, _ in NETWORKING:
        assert set(_forecast(viewer, f"{key}={text}", status=400)["problems"]) == {key}
    assert set(_forecast(viewer, "no_such=1", status=400)["problems"]) == {"no_such"}
    assert set(_forecast(viewer, "agent_connection_count", status=400)["problems"]) == {"field"}
    assert "unknown parameter 'fields'" in viewer.get(f"{PATH}?fields=a=1").json()["detail"]
    NetworkingReading.objects.update(knows_closing=False)
    refusal = _forecast(viewer, "graceful_tunnel_closing=true", status=400)
    assert set(refusal["problems"]) == {"graceful_tunnel_closing"}


def test_no_forecast_without_data(viewer: Client, fake_reader: FakeReader) -> None:
    """409 with the sentence: no current data of the fleet, or no config that was read."""
    fake_reader.as_of = 1.0
    assert "No current data" in _forecast(viewer, status=409)["detail"]
    NetworkingReading.objects.all().delete()
    assert _forecast(viewer, status=409)["detail"].endswith(".")
