"""The page of one instance, over a real record."""

from __future__ import annotations

import pytest
from django.test import Client

from fleet.models.clusters import ensure_default_cluster
from fleet.monitoring.state.writer import Writer
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(client: Client, person: MakeUser, record: Writer) -> Client:
    """A browser of an operator."""
    ensure_default_cluster()
    client.force_login(person("operator"))
    return client


def test_page_of_a_proxy(operator: Client) -> None:
    """It shows the state, the agents, what a failure means, the heartbeat, and the actions."""
    response = operator.get("/instances/proxy-1-id/")
    assert response.status_code == 200
    page = response.content.decode()
    assert "If proxy-1 fails now, 2 agents lose their only tunnel." in page
    assert 'href="/agents/?q=only-proxy%3Aproxy-1"' in page
    assert 'href="/agents/?state=stranded&amp;proxy=proxy-1"' in page
    assert 'href="/instances/proxy-1-id/service/"' in page
    assert "Reconnect agents…" in page
    assert 'href="/silences/new/?matchers=cause%3Dproxy%2Fproxy-1-id"' in page
    assert "Last heartbeat" in page
    response = operator.get("/agents/?q=only-proxy%3Aproxy-1")
    assert [row.name for row in response.context["rows"]] == ["agent-1", "agent-3"]


def test_page_of_an_auth(operator: Client) -> None:
    """Of agents that report no mode, nothing is predicted."""
    page = operator.get("/instances/auth-1-id/").content.decode()
    assert "If auth-1 fails now, 3 agents lose their auth." in page
    assert "None of them reports a reconnect mode" in page
    assert "connection=auth" in page


def test_name_redirects_to_the_id(operator: Client) -> None:
    """With the query string, at both routes."""
    response = operator.get("/instances/proxy-2/?x=1")
    assert (response.status_code, response["Location"]) == (302, "/instances/proxy-2-id/?x=1")
    response = operator.get("/c/default/instances/proxy-2/")
    assert response["Location"] == "/instances/proxy-2-id/"


@pytest.mark.parametrize("name", ["nobody", "<b>x</b>", "x" * 300])
def test_unknown_instance_is_not_found(operator: Client, name: str) -> None:
    """404, with a way back."""
    response = operator.get(f"/instances/{name.replace('/', '%2F')}/")
    assert response.status_code == 404
    page = response.content.decode()
    assert "<b>x</b>" not in page


def test_missing_page_leads_back(operator: Client) -> None:
    """To the list of instances."""
    page = operator.get("/instances/nobody/").content.decode()
    assert "Instance nobody was not found in cluster default" in page
    assert 'href="/#instances"' in page


def test_viewer_sees_no_action(client: Client, person: MakeUser, operator: Client) -> None:
    """No button for what is not allowed."""
    client.force_login(person("viewer"))
    page = client.get("/instances/proxy-1-id/").content.decode()
    assert "View agents" in page
    for text in ("/service/", "Reconnect agents", "Silence…", "Audit log"):
        assert text not in page
