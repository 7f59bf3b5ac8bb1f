"""The API route of one instance, over a real record."""

from __future__ import annotations

import pytest
from django.test import Client

from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.monitoring.state.writer import Writer
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(client: Client, person: MakeUser, record: Writer) -> Client:
    """A browser of a viewer."""
    ensure_default_cluster()
    client.force_login(person("viewer"))
    return client


@pytest.mark.parametrize(
    "path", ["/api/v1/instances/proxy-1-id", "/api/v1/clusters/default/instances/proxy-1"]
)
def test_proxy(viewer: Client, path: str) -> None:
    """By id and by name: the same facts as on the page."""
    document = viewer.get(path).json()
    assert document["instance"]["name"] == "proxy-1"
    assert document["agent_counts"] == {"healthy": 1, "stranded": 1}
    assert document["failure_forecast"] == {
        "text": "If proxy-1 fails now, 2 agents lose their only tunnel.",
        "details": [],
        "agent_count": 2,
        "agent_query": "only-proxy:proxy-1",
        "automatic_count": None,
        "waiting_count": None,
    }


def test_auth_with_an_incident(viewer: Client) -> None:
    """Agents that report no mode are in neither count; incidents are those with the instance as their cause."""
    columns = {"cluster_id": "default", "cause_kind": "auth", "generation": 1, "severity": 1}
    for name in ("auth-1", "auth-2"):
        Incident.objects.create(
            **columns,
            key=f"auth/{name}-id",
            cause_id=f"{name}-id",
            cause_name=name,
            state="firing",
            opened_at=1.0,
        )
    document = viewer.get("/api/v1/instances/auth-1-id").json()
    forecast = document["failure_forecast"]
    assert (forecast["agent_count"], forecast["automatic_count"], forecast["waiting_count"]) == (3, 0, 0)
    assert len(document["incidents"]) == 1


def test_unknown_instance(viewer: Client) -> None:
    """404 with a sentence; unknown parameters are errors."""
    response = viewer.get("/api/v1/instances/nobody")
    assert response.status_code == 404
    assert "Instance nobody was not found in cluster default" in response.json()["detail"]
    assert viewer.get("/api/v1/instances/proxy-1?x=1").status_code == 400
