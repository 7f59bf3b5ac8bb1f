from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from fleet.models.access import Permission
from fleet.models.clusters import ensure_default_cluster
from fleet.models.tokens import create_token
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db


@pytest.fixture
def headers(person: MakeUser) -> dict[str, str]:
    """Of a token of an administrator."""
    ensure_default_cluster()
    _token, secret = create_token(
        person("admin"), "ci", [Permission.MANAGE_ACCESS], lifetime=None, now=timezone.now()
    )
    return {"Authorization": f"Bearer {secret}"}


def _post(client: Client, headers: dict[str, str], path: str, body: dict[str, Any] | None = None) -> Any:
    return client.post(f"/api/v1{path}", body or {}, content_type="application/json", headers=headers)


def test_invited_user_is_listed_and_changed(client: Client, headers: dict[str, str]) -> None:
    """As on the page: link, role, limits, disabled."""
    answer = _post(client, headers, "/users", {"username": "ada", "role": "viewer", "clusters": ["default"]})
    assert answer.status_code == 201
    assert answer.json()["user"]["state"] == "invited"
    assert client.get(answer.json()["link"]).status_code == 200
    body = {"role": "operator", "clusters": [], "is_active": False}
    document = _post(client, headers, "/users/ada", body).json()
    assert (document["role"], document["clusters"], document["state"]) == ("operator", [], "disabled")
    users = client.get("/api/v1/users", headers=headers).json()["users"]
    assert [user["username"] for user in users] == ["ada", "admin"]
    assert client.get("/api/v1/users/ada", headers=headers).json() == document
    assert "link" not in document


def test_access_is_ended(client: Client, headers: dict[str, str]) -> None:
    user = User.objects.create_user("grace", password="correct horse battery")
    Client().force_login(user)
    create_token(user, "ci", [Permission.VIEW_FLEET], lifetime=None, now=timezone.now())
    assert _post(client, headers, "/users/grace/end-sessions").json() == {"count": 1}
    assert _post(client, headers, "/users/grace/revoke-tokens").json() == {"count": 1}
    assert _post(client, headers, "/users/grace/reset-second-factor").json() == {"count": 0}


@pytest.mark.parametrize(
    ("path", "body", "status", "phrase"),
    [
        ("/users/admin", {"is_active": False}, 409, "You cannot disable yourself"),
        ("/users/admin/invitation", None, 409, "has a password already"),
        ("/users/admin", {"role": "king"}, 400, "unknown role"),
        ("/users/admin", {"rolle": "viewer"}, 400, "rolle"),
        ("/users", {"username": "admin", "role": "viewer"}, 400, "already exists"),
        ("/users", {"username": "a/b", "role": "viewer"}, 400, "valid username"),
        ("/users/nobody", {"role": "viewer"}, 404, "User nobody was not found."),
    ],
)
def test_refusals_say_why(
    client: Client, headers: dict[str, str], path: str, body: dict[str, Any] | None, status: int, phrase: str
) -> None:
    answer = _post(client, headers, path, body)
    assert (answer.status_code, phrase in answer.json()["detail"]) == (status, True), answer.json()


def test_unknown_cluster_is_refused(client: Client, headers: dict[str, str]) -> None:
    User.objects.create_user("grace")
    answer = _post(client, headers, "/users/grace", {"clusters": ["nowhere"]})
    assert (answer.status_code, answer.json()["detail"]) == (
        409,
        "There is no cluster nowhere: choose one of the list.",
    )
