"""What a cluster's source cannot do, on pages and by the API: the reason instead of the form."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.test import Client

from dashboards.shared import record_reader
from dashboards.shared.capabilities.missing import missing_capabilities_of
from fleet.models.changes import Change
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.vocabulary.capabilities import Capability
from tests.dashboards.changes.api.test_networking import CallApi, call_api
from tests.dashboards.changes.views.test_networking import STORED, form_data, store_revision
from tests.dashboards.conftest import MakeUser
from tests.fakes.connection_tests import FakeConnectionTestStore
from tests.fakes.policy_nodes import FakePolicyBook
from tests.fakes.reader import FakeReader

__all__ = ["call_api"]
pytestmark = pytest.mark.django_db

_REASON = "The role refloat lacks the verb update."


@pytest.fixture
def page(
    client: Client, person: MakeUser, fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch
) -> Client:
    """A browser of an administrator."""
    monkeypatch.setattr(record_reader, "policy_report_store", FakePolicyBook)
    monkeypatch.setattr(record_reader, "connection_test_store", FakeConnectionTestStore)
    ensure_default_cluster()
    client.force_login(person("admin"))
    return client


@pytest.mark.parametrize(
    ("path", "capability", "control"),
    [
        ("/networking/", Capability.NETWORKING_READ, "has not been read yet"),
        ("/policies/", Capability.POLICIES, "Show only differences"),
        ("/reconnect/", Capability.RECONNECT_ADVICE, "Preview campaign"),
        ("/instances/proxy-id-1/service/", Capability.RECONNECT_ADVICE, "Take"),
    ],
)
def test_a_page_shows_the_reason_instead_of_its_form(
    page: Client, fake_reader: FakeReader, path: str, capability: Capability, control: str
) -> None:
    """A POST is refused, and plans nothing; without the finding the page is as always."""
    assert control in page.get(path).content.decode()
    fake_reader.found_capabilities = {capability: _REASON}
    response = page.get(path)
    html = response.content.decode()
    assert response.status_code == 200
    assert f"{_REASON} {capability.effect}" in html
    assert control not in html.replace("Take out of service", "")
    assert page.post(path, {"proxy": "proxy-1"}).status_code in {405, 409}
    assert not Change.objects.exists()


def test_a_networking_config_that_can_only_be_read(page: Client, fake_reader: FakeReader) -> None:
    """It is shown with the reason, and a change of it is refused."""
    store_revision(STORED, "r1")
    assert "Preview change" in page.get("/networking/").content.decode()
    fake_reader.found_capabilities = {Capability.NETWORKING_WRITE: _REASON}
    html = page.get("/networking/").content.decode()
    assert _REASON in html
    assert "Preview change" not in html
    page.post("/networking/", form_data(keep_alive_interval="1m"))
    assert not Change.objects.exists()
    assert html.count(_REASON) < page.get("/networking/").content.decode().count(_REASON)


@pytest.mark.parametrize(
    ("method", "path", "body", "capability"),
    [
        ("GET", "/networking-config", None, Capability.NETWORKING_READ),
        ("POST", "/reconnect/plan", {"proxy": "proxy-1"}, Capability.RECONNECT_ADVICE),
        ("GET", "/policies", None, Capability.POLICIES),
        ("GET", "/policies/presets", None, Capability.POLICIES),
        ("GET", "/networking-config/revisions", None, Capability.NETWORKING_READ),
        ("GET", "/networking-config/forecast", None, Capability.NETWORKING_READ),
        ("POST", "/reconnect/forecast", {"proxy": "proxy-1"}, Capability.RECONNECT_ADVICE),
        ("POST", "/instances/proxy-id-1/out-of-service/plan", {}, Capability.RECONNECT_ADVICE),
    ],
)
def test_the_api_has_one_error_for_it(
    call_api: CallApi,
    fake_reader: FakeReader,
    method: str,
    path: str,
    body: dict[str, str] | None,
    capability: Capability,
) -> None:
    """Status 409 with the reason, and the slug of the capability."""
    fake_reader.found_capabilities = {capability: _REASON}
    response = call_api(method, f"/api/v1{path}", body)
    assert response.status_code == 409
    document = response.json()
    assert (document["detail"], document["capability"]) == (_REASON, capability.value)
    assert not Change.objects.exists()


def test_pages_of_a_product_without_auths_do_not_speak_of_them(
    page: Client, fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown auth, and an unknown expiry, would be no information there."""
    agent_id = fake_reader.table("default", 0.0).ids[0]
    explanation = fake_reader.explain("default", agent_id, record_reader.current_time())
    assert explanation is not None
    view = replace(explanation.view, auth=None, expires_at=None)
    monkeypatch.setattr(fake_reader, "explain", lambda *_: replace(explanation, view=view))
    card_path, auth_fact, expiry_fact = (
        f"/agents/{agent_id}/?card",
        "<dt>Auth</dt>",
        "<dt>Heartbeat expires</dt>",
    )
    assert all(fact in page.get(card_path).content.decode() for fact in (auth_fact, expiry_fact))
    assert '<option value="auth">' in page.get("/map/").content.decode()
    fake_reader.found_capabilities = {
        Capability.AGENT_TO_AUTH: "NATS has no auths.",
        Capability.LAST_SEEN: "Leaf nodes send no heartbeats.",
    }
    card = page.get(card_path).content.decode()
    assert "<dt>Tunnels to</dt>" in card
    assert not any(fact in card for fact in (auth_fact, expiry_fact))
    assert '<option value="auth">' not in page.get("/map/").content.decode()


def test_the_page_and_the_api_of_a_cluster_list_what_it_lacks(page: Client, fake_reader: FakeReader) -> None:
    """A cluster with every capability has no such section."""
    assert "Not available" not in page.get("/clusters/default/").content.decode()
    assert page.get("/api/v1/clusters/default").json()["missing_capabilities"] == []
    fake_reader.found_capabilities = {Capability.TUNNELS_BY_AGENT: "This API does not name the agents."}
    assert "This API does not name the agents." in page.get("/clusters/default/").content.decode()
    [absence] = page.get("/api/v1/clusters/default").json()["missing_capabilities"]
    assert absence == {
        "capability": "tunnels-by-agent",
        "label": "Tunnels by agent",
        "reason": "This API does not name the agents.",
        "effect": Capability.TUNNELS_BY_AGENT.effect,
    }


def test_without_redis_only_the_declaration_counts(page: Client, fake_reader: FakeReader) -> None:
    fake_reader.found_capabilities = {Capability.WATCH: _REASON}
    assert missing_capabilities_of("default") == {Capability.WATCH: _REASON}
    fake_reader.down = True
    assert missing_capabilities_of("default") == {}


def test_nothing_is_known_of_a_source_that_is_not_installed(page: Client, fake_reader: FakeReader) -> None:
    """Its page says that it is not installed."""
    Cluster.objects.update(source="gone")
    fake_reader.found_capabilities = {Capability.WATCH: _REASON}
    assert missing_capabilities_of("default") == {}
    html = page.get("/clusters/default/").content.decode()
    assert "The source gone is not installed" in html
    assert "Source not installed" in html
