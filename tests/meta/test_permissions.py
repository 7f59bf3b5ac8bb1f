"""Every route and every socket, with every role and with no sign-in: each lets in exactly whom it declares."""

from __future__ import annotations

import re
import time

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern
from pytest_django import Settings

from dashboards import reading
from dashboards.checks import Route, routes
from dashboards.permissions import declared
from dashboards.routing import websocket_urlpatterns
from dashboards.sockets import refusal
from fleet.models.access import ROLES, give_role
from tests.fakes.policy_nodes import FakePolicyBook
from tests.fakes.reader import FakeReader

#: Values for the parameters of paths.
_VALUES = {
    "cluster": "default",
    "agent_id": "id-1",
    "instance_id": "proxy-id-1",
    "change_id": "1",
    "target": "auth",
    "incident_id": "1",
    "number": "1",
    "rule_id": "0",
    "kind": "stranded",
    "channel_id": "0",
    "route_id": "0",
    "provider_id": "oidc",
    "uidb36": "1",
    "key": "x",
    "pk": "1",
}
_ALL = sorted(routes(), key=lambda route: (route.path, route.methods))
_OURS = [route for route in _ALL if not route.path.startswith("/accounts/")]


def _url(route: Route) -> str:
    """A path that the route matches."""
    filled = re.sub(r"<(?:\w+:)?(\w+)>", lambda found: _VALUES[found[1]], route.path)
    filled = re.sub(r"\(\?P<(\w+)>[^()]*\)", lambda found: _VALUES[found[1]], filled)
    return filled.replace("^", "").replace("$", "").replace("\\Z", "").replace("//", "/")


def _name(route: Route) -> str:
    return f"{'+'.join(route.methods)} {route.path}".strip()


def _ask(client: Client, route: Route) -> int:
    status: int = client.generic((route.methods or ("GET",))[0], _url(route)).status_code
    return status


@pytest.fixture(autouse=True)
def fleet_in_memory(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    """Something to show, and nothing that asks for a password hash."""
    fake = FakeReader(as_of=time.time())
    monkeypatch.setattr(reading, "reader", lambda: fake)
    monkeypatch.setattr(reading, "policy_book", FakePolicyBook)
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.mark.parametrize("route", websocket_urlpatterns, ids=lambda route: str(route.pattern))
def test_socket_declares_who_may_use_it(route: URLPattern) -> None:
    """Every consumer names a permission."""
    consumer = getattr(route.callback, "consumer_class")  # noqa: B009 - put there by Channels' as_asgi
    access = declared(consumer)
    assert access is not None
    assert access.permission is not None


@pytest.mark.django_db
@pytest.mark.parametrize("role", [None, "", *ROLES])
@pytest.mark.parametrize("route", websocket_urlpatterns, ids=lambda route: str(route.pattern))
def test_socket_with_role(client: Client, route: URLPattern, role: str | None) -> None:
    """A role gets in exactly where it has the permission; nobody without signing in."""
    access = declared(getattr(route.callback, "consumer_class"))  # noqa: B009 - as above
    assert access is not None
    headers = []
    if role is not None:
        client.force_login(_user(role))
        headers.append((b"cookie", f"sessionid={client.cookies['sessionid'].value}".encode()))
    expected = None if access.permission in ROLES.get(role or "", frozenset()) else 4403
    assert refusal({"headers": headers}, access, "default") == (4401 if role is None else expected)


def _user(role: str) -> User:
    user = User.objects.create_user("somebody", password="correct horse")
    give_role(user, role)
    return user


def test_routes_are_walked() -> None:
    """The walk sees pages, the API and allauth."""
    names = {route.name for route in _ALL}
    assert {"fleet-now", "map-of-cluster", "tokens", "account_login", "mfa_index"} <= names
    assert any(route.path == "/api/v1/agents" and route.methods == ("GET",) for route in _ALL)


@pytest.mark.parametrize("route", _ALL, ids=_name)
def test_route_declares_who_may_use_it(route: Route) -> None:
    """The system check refuses the others too; here they are named one by one."""
    assert route.access is not None


@pytest.mark.django_db
@pytest.mark.parametrize("route", _ALL, ids=_name)
def test_route_without_sign_in(client: Client, route: Route) -> None:
    """Public routes answer; the others lead to the sign-in page, or say 401 in the API."""
    assert route.access is not None
    status = _ask(client, route)
    if not route.access.sign_in:
        assert status not in {403, 500}  # the page of a failed sign-in says 401 and shows itself
    elif route.path.startswith("/api/"):
        assert status == 401
    else:
        assert status == 302


@pytest.mark.django_db
@pytest.mark.parametrize("role", ["", *ROLES])
@pytest.mark.parametrize("route", _OURS, ids=_name)
def test_route_with_role(client: Client, route: Route, role: str) -> None:
    """A role gets in exactly where it has the permission."""
    assert route.access is not None
    client.force_login(_user(role))
    status = _ask(client, route)
    if route.access.permission is None or route.access.permission in ROLES.get(role, frozenset()):
        # Of what is not there, or not sent as it must be, it may be said so: somebody was let in.
        assert status in {200, 304, 400, 404, 409, 428} or route.name == "api-root"
    else:
        assert status == 403
