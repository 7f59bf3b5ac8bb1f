"""The pages of gateways and tunnel servers, over a real record."""

from __future__ import annotations

import time

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from dashboards.instances.edge_views import order_destinations, rule_rows_of
from fleet.monitoring.edge_documents import parse_gateway
from fleet.monitoring.state.writer import Writer
from tests.dashboards.conftest import MakeUser
from tests.dashboards.instances.edge_scene import poll_edge_instances, store_edge_instances
from tests.fleet.monitoring.test_edge_documents import DESTINATIONS, ROUTES

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(client: Client, person: MakeUser, record: Writer) -> Client:
    """A browser of a viewer."""
    store_edge_instances(record)
    client.force_login(person("viewer"))
    return client


def test_page_of_a_gateway(viewer: Client, django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    """Problems, destinations with the ejected one first, and routes with policy and counters."""
    with django_assert_max_num_queries(9):
        page = viewer.get("/edge-instances/gw-1/").content.decode()
    for text in (
        '<span class="instance-kind">gateway</span>',
        "<code>10.0.0.5:3000</code>",
        "spec.rules: missing",
        "<code>other:1</code> has no address.",
        "unhealthy, ejected",
        "Up to 3 retries after unavailable, at least 100 ms after the failure",
        "Timeouts: 10 s for the whole call and 2 s for each attempt.",
        "10 UNAVAILABLE, 2 INTERNAL",
        "<code>10.0.0.1:1</code> 100 %, <code>10.0.0.2:1</code> no calls",
    ):
        assert text in page
    assert page.index("10.0.0.2:1") < page.index("10.0.0.1:1")
    assert "The tables show the last report" not in page


def test_page_of_a_tunnel_server(viewer: Client) -> None:
    """Targets with client and sessions."""
    page = viewer.get("/c/default/edge-instances/tunnel-1/").content.decode()
    for text in ('<span class="instance-kind">tunnel server</span>', "r:SSH", "edge-1", "<code>h:1</code>"):
        assert text in page


def test_gateway_that_does_not_respond(viewer: Client, record: Writer) -> None:
    """The reason, and the last report with its time."""
    poll_edge_instances(record, "default", time.time(), is_failing=True)
    page = viewer.get("/edge-instances/gw-1/").content.decode()
    for text in (
        "not responding",
        "10.0.0.5:3000: connection refused.",
        "The tables show the last report",
        "r/0",
    ):
        assert text in page
    page = viewer.get("/").content.decode()
    assert 'data-edge-instance="gw-1" data-state="silent"' in page
    assert "1 rule, 2 destinations, 1 ejected, 2 configuration problems (last known)" in page


def test_instance_that_was_not_polled(viewer: Client) -> None:
    """It has a page without a report."""
    page = viewer.get("/edge-instances/new/").content.decode()
    assert "Refloat has not polled this instance yet." in page
    assert "This instance has not reported anything yet." in page


def test_list_is_below_auths_and_proxies(viewer: Client) -> None:
    """Also in the part that the script requests; not of a past moment, because polls are not kept."""
    for path in ("/", "/?part=instances"):
        page = viewer.get(path).content.decode()
        assert 'href="/edge-instances/tunnel-1/"' in page
        assert page.index("Proxies <span") < page.index("Gateways and tunnel servers <span")
    assert "edge-instances" not in viewer.get("/?at=2026-01-01T00:00:00Z").content.decode()


def test_cluster_without_edge_instances_has_no_list(client: Client, person: MakeUser, record: Writer) -> None:
    """Most clusters have none."""
    client.force_login(person("viewer"))
    assert "Gateways and tunnel servers" not in client.get("/").content.decode()


def test_names_lead_to_the_page(viewer: Client) -> None:
    """From the path of auths and proxies, too; an unknown name is not found."""
    assert viewer.get("/instances/gw-1/")["Location"] == "/edge-instances/gw-1/"
    response = viewer.get("/edge-instances/%3Cb%3E/")
    assert response.status_code == 404
    assert "has no gateway or tunnel server &lt;b&gt;" in response.content.decode()


def test_rows_and_order() -> None:
    """Ejected destinations first; each rule has its policy in words."""
    report = parse_gateway(ROUTES, DESTINATIONS)
    assert [row.address for row in order_destinations(report)] == ["10.0.0.2:1", "10.0.0.1:1"]
    (row,) = rule_rows_of(report)
    assert row.retry_counts == "10 UNAVAILABLE, 2 INTERNAL"
    assert row.backends == (("svc:1", (("10.0.0.1:1", "100 %"), ("10.0.0.2:1", "no calls"))),)
