from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest
from django.test import Client
from django.utils import timezone

from dashboards.shared import rewind
from fleet.models.access import Permission
from fleet.models.clusters import ensure_default_cluster
from fleet.models.history import FleetMinute
from fleet.models.tokens import create_token
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db

#: 2023-11-14T22:13:20Z.
AT = 1_700_000_000.0
AT_TEXT = "2023-11-14T22:13:20Z"


@pytest.fixture
def bearer(person: MakeUser) -> dict[str, str]:
    """Headers of a viewer's token."""
    ensure_default_cluster()
    _token, secret = create_token(
        person("viewer"), "test", [Permission.VIEW_FLEET], lifetime=timedelta(days=1), now=timezone.now()
    )
    return {"Authorization": f"Bearer {secret}"}


def _get(client: Client, path: str, bearer: dict[str, str], status: int = 200, **parameters: str) -> Any:
    response = client.get(f"/api/v1/{path}", parameters, headers=bearer)
    assert response.status_code == status, response.content
    return response.json()


def test_history_has_periods_with_data(client: Client, bearer: dict[str, str]) -> None:
    """Maxima, and the states of the newest minute; a gap is no item."""
    at = (time.time() - 7200) // 300 * 300
    counts = np.zeros(len(State), "<u4")
    counts[State.STRANDED] = 7
    for minute, peak in enumerate((9, 8)):
        FleetMinute.objects.create(
            cluster_id="default", at=at + 60 * minute, state_counts=counts.tobytes(), stranded_peak=peak,
            at_risk_peak=2, groups=b"",
        )  # fmt: skip
    history = _get(client, "fleet/history", bearer)
    (period,) = history["periods"]
    assert history["period_seconds"] == 300
    assert datetime.fromisoformat(period["at"]).timestamp() == at
    assert datetime.fromisoformat(history["recorded_since"]).timestamp() == at
    assert (period["stranded_peak"], period["at_risk_peak"], period["counts"]["stranded"]) == (9, 2, 7)
    assert set(period["counts"]) == {state.slug for state in State}
    past = _get(client, "clusters/default/fleet/history", bearer, since="2023-11-14T00:00:00Z", until=AT_TEXT)
    assert (past["periods"], past["period_seconds"]) == ([], 300)


def test_invalid_ranges_of_the_history(client: Client, bearer: dict[str, str]) -> None:
    """400 and a sentence."""
    assert "Invalid time" in _get(client, "fleet/history", bearer, 400, since="soon")["detail"]
    assert "add since" in _get(client, "fleet/history", bearer, 400, until=AT_TEXT)["detail"]
    assert "unknown parameter" in _get(client, "fleet/history", bearer, 400, range="24h")["detail"].lower()


@pytest.fixture
def _past(monkeypatch: pytest.MonkeyPatch, fake_reader: FakeReader) -> None:
    """In the past, the first of three agents was stranded and proxy-1 did not respond; now there are four."""

    def read(cluster: str, at: float, present: FleetTable) -> FleetTable:
        states = [State.STRANDED, State.HEALTHY, State.HEALTHY]
        past = FakeReader(states=states, as_of=AT, proxy_state=InstanceState.SILENT)
        return replace(past.table("default", AT), is_past=True)

    monkeypatch.setattr(rewind, "read_past_table", read)
    monkeypatch.setattr(rewind, "_past_readers", rewind._PastReaders())


@pytest.mark.usefixtures("_past")
def test_comparison(client: Client, bearer: dict[str, str]) -> None:
    """Counts, instances and agents; pages by offset."""
    comparison = _get(client, "fleet/comparison", bearer, a=AT_TEXT, limit="2")
    assert comparison["a"] == "2023-11-14T22:13:20Z"
    assert {row["state"]: (row["a"], row["b"]) for row in comparison["counts"]}["healthy"] == (2, 2)
    assert comparison["instances"] == [
        {
            "name": "proxy-1",
            "kind": "proxy",
            "a": {"state": "silent", "health": "unknown", "is_draining": False},
            "b": {"state": "ok", "health": "unknown", "is_draining": False},
        }
    ]
    assert (comparison["agent_count"], comparison["next_offset"]) == (3, 2)
    assert comparison["agents"] == [
        {
            "id": "id-2",
            "name": "agent-2",
            "a": {"state": "healthy", "auth": "auth-1", "proxies": ["proxy-1"]},
            "b": {"state": "stranded", "auth": "auth-1", "proxies": ["proxy-1"]},
        },
        {
            "id": "id-3",
            "name": "agent-3",
            "a": None,
            "b": {"state": "at_risk", "auth": "auth-2", "proxies": ["proxy-2"]},
        },
    ]
    last = _get(client, "fleet/comparison", bearer, a=AT_TEXT, limit="2", offset="2")
    assert ([agent["id"] for agent in last["agents"]], last["next_offset"]) == (["id-0"], None)
    assert _get(client, "fleet/comparison", bearer, a=AT_TEXT, difference="auth")["agent_count"] == 0


@pytest.mark.usefixtures("_past")
def test_invalid_comparisons(client: Client, bearer: dict[str, str]) -> None:
    """400 and a sentence."""
    assert (
        "Moment B: Invalid time" in _get(client, "fleet/comparison", bearer, 400, a=AT_TEXT, b="x")["detail"]
    )
    _get(client, "fleet/comparison", bearer, 400)
    _get(client, "fleet/comparison", bearer, 400, a=AT_TEXT, difference="colour")
