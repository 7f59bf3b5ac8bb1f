"""The API routes of gateways and tunnel servers."""

from __future__ import annotations

import pytest
from django.test import Client

from fleet.models.clusters import Cluster
from fleet.monitoring.state.writer import Writer
from tests.dashboards.conftest import MakeUser
from tests.dashboards.instances.edge_scene import store_edge_instances

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(client: Client, person: MakeUser, record: Writer) -> Client:
    """A browser of a viewer."""
    store_edge_instances(record)
    client.force_login(person("viewer"))
    return client


def test_list(viewer: Client) -> None:
    """Each with its state and what it reported last."""
    document = viewer.get("/api/v1/edge-instances").json()
    rows = {row["name"]: row for row in document["edge_instances"]}
    assert {name: (row["kind"], row["state"]) for name, row in rows.items()} == {
        "gw-1": ("gateway", "ok"),
        "tunnel-1": ("tunnel-server", "ok"),
        "new": ("", "unknown"),
    }
    assert rows["gw-1"]["summary"] == "1 rule, 2 destinations, 1 ejected, 2 configuration problems"
    assert rows["new"]["polled_at"] is None


def test_gateway(viewer: Client) -> None:
    """The same facts as on the page."""
    document = viewer.get("/api/v1/clusters/default/edge-instances/gw-1").json()
    assert document["tunnel_server"] is None
    gateway = document["gateway"]
    (rule,) = gateway["rules"]
    assert rule["retry_counts"] == {"UNAVAILABLE": 10, "INTERNAL": 2}
    assert rule["retry"].startswith("Up to 3 retries after unavailable")
    assert rule["backends"] == [{"backend": "svc:1", "shares": {"10.0.0.1:1": 1.0, "10.0.0.2:1": 0.0}}]
    assert [row["is_ejected"] for row in gateway["destinations"]] == [False, True]


def test_tunnel_server(viewer: Client) -> None:
    """Targets with sessions; an instance without a report has neither part."""
    document = viewer.get("/api/v1/edge-instances/tunnel-1").json()
    assert document["gateway"] is None
    assert document["tunnel_server"]["targets"][0]["session_count"] == 2
    document = viewer.get("/api/v1/edge-instances/new").json()
    assert (document["gateway"], document["tunnel_server"]) == (None, None)


def test_unknown_name(viewer: Client) -> None:
    """404, also in a cluster that has none."""
    assert viewer.get("/api/v1/edge-instances/nobody").status_code == 404
    Cluster.objects.create(id="eu", name="EU")
    assert viewer.get("/api/v1/clusters/eu/edge-instances").json()["edge_instances"] == []
