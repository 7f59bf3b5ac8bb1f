"""The API of clusters: added, read, changed, paused, tested and removed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from fleet.models.access import ClusterLimit, Permission
from fleet.models.changes import AuditEntry
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.tokens import create_token
from tests.dashboards.conftest import MakeUser
from tests.fleet.clusters.pem_files import create_pem_files

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("live_redis")]

_EU: dict[str, Any] = {"id": "eu", "name": "Europe", "auths": ["auth-1.eu.example:3025"]}


def _headers_of(user: Any, *scopes: Permission) -> dict[str, str]:
    _, secret = create_token(user, "t", scopes, lifetime=timedelta(days=1), now=timezone.now())
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture
def admin(person: MakeUser) -> dict[str, str]:
    """Headers of an admin's token with every scope."""
    return _headers_of(person("admin"), *Permission)


def _post(client: Client, path: str, body: Any, headers: dict[str, str]) -> Any:
    return client.post(f"/api/v1/clusters{path}", body, content_type="application/json", headers=headers)


def test_cluster_is_added_changed_paused_resumed_and_removed(client: Client, admin: dict[str, str]) -> None:
    """Fields that are left out keep their values; a change of an old version is refused."""
    response = _post(client, "", _EU, admin)
    assert response.status_code == 201, response.content
    added_cluster = response.json()
    assert (added_cluster["id"], added_cluster["address_kind"], added_cluster["tls_source"]) == (
        "eu",
        "static",
        "settings",
    )
    assert client.get("/api/v1/clusters/eu", headers=admin).json() == added_cluster
    assert client.get("/api/v1/clusters", headers=admin).json() == {"clusters": ["default", "eu"]}

    changed_cluster = _post(
        client, "/eu", {"production": True, "version": added_cluster["version"]}, admin
    ).json()
    assert changed_cluster == added_cluster | {"production": True, "version": changed_cluster["version"]}
    assert _post(client, "/eu", {"name": "x", "version": added_cluster["version"]}, admin).status_code == 409
    assert _post(client, "/eu/pause", None, admin).json()["is_paused"] is True
    assert _post(client, "/eu/resume", None, admin).json()["is_paused"] is False

    refusal = _post(client, "/eu/delete", {"confirmation": "eu"}, admin)
    assert (refusal.status_code, list(refusal.json()["problems"])) == (400, ["confirmation"])
    removal = _post(client, "/eu/delete", {"confirmation": "Europe"}, admin)
    assert removal.json() == {"id": "eu", "name": "Europe", "notified_channels": []}
    assert not Cluster.objects.filter(pk="eu").exists()
    assert client.get("/api/v1/clusters/eu", headers=admin).status_code == 404
    entries = AuditEntry.objects.filter(action__startswith="cluster.", outcome="succeeded").order_by("pk")
    assert [entry.action for entry in entries] == [
        f"cluster.{action}" for action in ("create", "update", "pause", "resume", "remove")
    ]
    assert entries[0].actor_kind == "token"


def test_uploads_are_in_no_response(client: Client, admin: dict[str, str], tmp_path: Path) -> None:
    """But their owner and expiry are; a change keeps them."""
    pem = create_pem_files(tmp_path)
    uploads = {"authority": pem.authority, "certificate": pem.certificate, "key": pem.key}
    response = _post(client, "", _EU | {"tls_source": "uploaded", "tls_uploads": uploads}, admin)
    assert response.status_code == 201, response.content
    assert [(file["part"], file["common_name"]) for file in response.json()["tls_uploads"]] == [
        ("authority", "Refloat CA"), ("certificate", "console"), ("key", ""),
    ]  # fmt: skip
    secrets = Cluster.objects.get(pk="eu").tls_secrets
    change = _post(client, "/eu", {"name": "EU", "tls_uploads": {"key": None}}, admin)
    assert change.json()["tls_uploads"] == response.json()["tls_uploads"]
    assert Cluster.objects.get(pk="eu").tls_secrets == secrets
    refusal = _post(client, "/eu", {"tls_uploads": {"key": pem.other_key}}, admin)
    assert list(refusal.json()["problems"]) == ["tls_uploads.key"]
    for text in (response.content, change.content, refusal.content):
        assert b"BEGIN" not in text


def test_diag_addresses(client: Client, admin: dict[str, str]) -> None:
    """By instance; a change replaces all of them, and the audit log has both."""
    body = _EU | {"source": "teleport", "tls_source": "settings"}
    addresses = {"auth-1": "10.0.0.1:3000", "proxy-1": "10.0.0.2:3000"}
    response = _post(client, "", body | {"diag_addresses": addresses}, admin)
    assert response.status_code == 201, response.content
    assert response.json()["diag_addresses"] == addresses
    change = _post(client, "/eu", {"diag_addresses": {"auth-1": "10.0.0.9:3000"}}, admin)
    assert change.json()["diag_addresses"] == {"auth-1": "10.0.0.9:3000"}
    assert _post(client, "/eu", {"name": "EU"}, admin).json()["diag_addresses"] == {"auth-1": "10.0.0.9:3000"}
    entry = AuditEntry.objects.filter(action="cluster.update").order_by("pk")[0]
    assert entry.before["diag_addresses"] == addresses
    refusal = _post(client, "/eu", {"diag_addresses": {"auth-1": "http://10.0.0.9:3000"}}, admin)
    assert "Enter host:port, such as 10.0.0.1:3000" in refusal.json()["problems"]["diag_addresses"]


def test_edge_instances(client: Client, admin: dict[str, str]) -> None:
    """By name, of any product; a change of other values keeps them."""
    response = _post(client, "", _EU | {"edge_instances": {"edge-1": "10.0.0.5:3000"}}, admin)
    assert response.json()["edge_instances"] == {"edge-1": "10.0.0.5:3000"}
    assert _post(client, "/eu", {"name": "EU"}, admin).json()["edge_instances"] == {"edge-1": "10.0.0.5:3000"}
    refusal = _post(client, "/eu", {"edge_instances": {"a/b": "10.0.0.5:3000"}}, admin)
    assert "without spaces and slashes" in refusal.json()["problems"]["edge_instances"]
    assert _post(client, "/eu", {"edge_instances": {}}, admin).json()["edge_instances"] == {}


def test_wrong_values_have_a_sentence_by_field(client: Client, admin: dict[str, str]) -> None:
    """Unknown names are errors, too."""
    refusal = _post(client, "", {"id": "EU", "name": "", "auths": ["auth-1:x"]}, admin)
    assert refusal.status_code == 400
    assert set(refusal.json()["problems"]) == {"cluster_id", "name", "auths"}
    assert _post(client, "", _EU | {"auth": "x"}, admin).status_code == 400
    assert not Cluster.objects.filter(pk="EU").exists()


def test_addresses_of_the_setting_cannot_be_changed(
    client: Client, admin: dict[str, str], settings: Settings
) -> None:
    """The sentence names the setting."""
    settings.REFLOAT_AUTHS = ["auth-1:3025"]
    assert client.get("/api/v1/clusters/default", headers=admin).json()["has_fixed_addresses"] is True
    refusal = _post(client, "/default", {"auths": ["auth-2:3025"]}, admin)
    assert "REFLOAT_AUTHS" in refusal.json()["problems"]["auths"]


def test_only_admins_without_a_cluster_limit_manage_clusters(client: Client, person: MakeUser) -> None:
    """Others read them; an admin who is limited to one cluster does not pause it either."""
    ensure_default_cluster(["auth-1:3025"])
    config_admin = _headers_of(person("config admin"), Permission.VIEW_FLEET, Permission.CHANGE_CONFIG)
    user = person("admin")
    limited_admin = _headers_of(user, *Permission)
    ClusterLimit.objects.create(user=user, cluster="default")
    for headers in (config_admin, limited_admin):
        assert client.get("/api/v1/clusters/default", headers=headers).status_code == 200
        for path, body in (("", _EU), ("/default", {"name": "x"}), ("/default/pause", None)):
            assert _post(client, path, body, headers).status_code == 403
    assert not Cluster.objects.filter(is_paused=True).exists()


def test_session_needs_recent_proof(client: Client, person: MakeUser) -> None:
    """As on the page."""
    client.force_login(person("admin"))
    refusal = client.post("/api/v1/clusters", _EU, content_type="application/json")
    assert (refusal.status_code, "Confirm your identity" in refusal.json()["detail"]) == (403, True)
