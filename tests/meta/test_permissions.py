"""Every route and every socket, for every role and without a sign-in: each admits exactly the roles it declares.

One test walks all routes for one role, with one user and one session, and lists every violation.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable

import pytest
from channels.layers import get_channel_layer
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import transaction
from django.http import HttpResponseBase
from django.shortcuts import resolve_url
from django.test import Client
from django.urls import URLPattern
from pytest_django import Settings

from dashboards import reading
from dashboards.checks import Route, routes
from dashboards.permissions import Access, declared
from dashboards.routing import application, websocket_urlpatterns
from dashboards.sockets import NOT_ALLOWED, SIGNED_OUT
from fleet.models.access import ROLES, Permission, give_role
from tests.fakes.policy_nodes import FakePolicyBook
from tests.fakes.reader import FakeReader
from tests.fakes.sockets import Headers, Socket
from tests.fakes.waiting import DEADLINE

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
#: Without repeats: an address with two operations stands in the URL patterns under both names.
_ROUTES = sorted(
    {(route.path, route.methods, route.access): route for route in routes()}.values(),
    key=lambda route: (route.path, route.methods),
)
#: No sign-in, a user without a role, and each role.
_ROLES = (None, "", *ROLES)
#: A request that Refloat admits may still be incomplete, out of date, or about an object that does not exist.
_ADMITTED = frozenset({200, 304, 400, 404, 409, 428})


class Visitor:
    """One user with one role, or nobody, who sends requests through the whole middleware stack."""

    def __init__(self, role: str | None) -> None:
        self.role = role
        self._client = Client()
        if role is not None:
            user = User.objects.create_user(f"user-{role}", password="correct horse")
            give_role(user, role)
            self._client.force_login(user)
        self._cookies = {name: morsel.value for name, morsel in self._client.cookies.items()}

    @property
    def name(self) -> str:
        """The role, as a failure names it."""
        return "no sign-in" if self.role is None else self.role or "no role"

    @property
    def headers(self) -> Headers:
        """The headers of a handshake from a page of the console, with the session if there is one."""
        origin = [(b"host", b"localhost"), (b"origin", b"http://localhost")]
        return origin + [(b"cookie", f"{name}={value}".encode()) for name, value in self._cookies.items()]

    def satisfies(self, access: Access) -> bool:
        """Return whether this visitor has the sign-in and the permission that `access` requires."""
        if access.permission is None:
            return not access.sign_in or self.role is not None
        return access.permission in ROLES.get(self.role or "", frozenset())

    def send(self, route: Route) -> HttpResponseBase:
        """Send one request and undo its effects: rows, the session, cookies, and counts for rate limits."""
        with transaction.atomic():
            response = self._client.generic((route.methods or ("GET",))[0], _url(route))
            transaction.set_rollback(True)
        cache.clear()
        self._client.cookies.clear()
        self._client.cookies.load(self._cookies)
        return response


@pytest.fixture(autouse=True)
def fleet_in_memory(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Give the console a fleet to show."""
    # Hundreds of refusals are what the walk is for: their tracebacks would hide the violations.
    caplog.set_level(logging.ERROR, "django.request")
    fake = FakeReader(as_of=time.time())
    monkeypatch.setattr(reading, "reader", lambda: fake)
    monkeypatch.setattr(reading, "policy_book", FakePolicyBook)


def test_routes_are_walked() -> None:
    """The walk contains pages, the API, allauth and the sockets."""
    names = {route.name for route in _ROUTES}
    assert {"fleet-now", "map-of-cluster", "tokens", "account_login", "mfa_index"} <= names
    assert any(route.path == "/api/v1/agents" and route.methods == ("GET",) for route in _ROUTES)
    assert websocket_urlpatterns


def test_every_route_declares_its_access() -> None:
    """The system check refuses a route without it too; this list does not depend on the check."""
    _report(f"{_name(route)} declares no access" for route in _ROUTES if route.access is None)


def test_every_socket_declares_a_permission() -> None:
    """A socket shows a fleet, so a sign-in alone is not enough."""
    _report(
        f"{pattern.pattern} declares no permission"
        for pattern in websocket_urlpatterns
        if (access := _socket_access(pattern)) is None or access.permission is None
    )


def test_no_api_write_is_open_to_viewers() -> None:
    """An API operation that changes something requires more than the permissions to read."""
    reads = {Permission.VIEW_FLEET, Permission.VIEW_METRICS, Permission.VIEW_AUDIT, None}
    _report(
        f"{_name(route)} declares only {_declaration(route.access)}"
        for route in _ROUTES
        if set(route.methods) - {"GET"} and route.access is not None and route.access.permission in reads
    )


@pytest.mark.django_db
@pytest.mark.parametrize("role", _ROLES, ids=lambda role: "no sign-in" if role is None else role or "no role")
def test_every_route_admits_exactly_the_declared_roles(role: str | None) -> None:
    """Each failure names the role, the route, its answer and its declaration."""
    visitor = Visitor(role)
    _report(
        f"{visitor.name}: {_name(route)} {problem}; it declares {_declaration(route.access)}"
        for route in _ROUTES
        # allauth's own pages admit every role.
        if role is None or not route.path.startswith("/accounts/")
        if route.access is not None
        if (problem := _problem(visitor, route, route.access))
    )


@pytest.mark.django_db(transaction=True)
async def test_every_socket_admits_exactly_the_declared_roles(
    socket_visitors: list[Visitor],
) -> None:
    """A refused visitor gets the close code for the reason, an admitted one the first frame of the fleet."""
    violations = []
    for pattern in websocket_urlpatterns:
        access = _socket_access(pattern)
        assert access is not None
        path = "/" + str(pattern.pattern).replace("<slug:cluster>", "default")
        for visitor in socket_visitors:
            expected = "hello" if visitor.satisfies(access) else str(NOT_ALLOWED)
            if visitor.role is None:
                expected = str(SIGNED_OUT)
            actual = await _first_frame(path, visitor.headers)
            if actual != expected:
                violations.append(
                    f"{visitor.name}: {path} answered {actual} instead of {expected}; "
                    f"it declares {_declaration(access)}"
                )
    _report(violations)


@pytest.fixture
def socket_visitors(
    transactional_db: None, settings: Settings, valkey_url: str, prefix: str
) -> list[Visitor]:
    """One visitor per role, and a channel layer for the sockets."""
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [valkey_url], "prefix": f"{prefix}:layer"},
        }
    }
    return [Visitor(role) for role in _ROLES]


async def _first_frame(path: str, headers: Headers) -> str:
    """Return the type of the first frame, or the close code."""
    socket = Socket(application, path, headers)
    if not await socket.connect():
        return "no handshake"
    try:
        frame = await socket.receive(DEADLINE)
        if frame["type"] == "websocket.close":
            return str(frame["code"])
        match = re.match(r'{"type": ?"(\w+)"', frame.get("text") or "")
        return match[1] if match else "a frame without a type"
    finally:
        await socket.leave()
        layer = get_channel_layer()
        assert layer is not None
        await layer.flush()


def _problem(visitor: Visitor, route: Route, access: Access) -> str:
    """Ask the route once; return how its answer differs from its declaration, or nothing."""
    response = visitor.send(route)
    status, location = response.status_code, response.headers.get("Location", "")
    if visitor.role is None and not access.sign_in:
        # allauth's page about a failed sign-in has the status 401 and is shown to everybody.
        return f"refused with {status}" if status == 403 or status >= 500 else ""
    if visitor.role is None and (route.path.startswith("/api/") or route.path == "/metrics"):
        return "" if status == 401 else f"answered {status} instead of 401"
    if visitor.role is None:
        to_sign_in = status == 302 and location.startswith(resolve_url("account_login"))
        return "" if to_sign_in else f"answered {status} {location} instead of leading to the sign-in page"
    if visitor.satisfies(access):
        return "" if status in _ADMITTED else f"refused with {status}"
    return "" if status == 403 else f"answered {status} instead of 403"


def _report(violations: Iterable[str]) -> None:
    """Fail with every violation of a walk, one per line."""
    lines = list(violations)
    if lines:
        pytest.fail("\n".join([f"{len(lines)} violations:", *lines]), pytrace=False)


def _socket_access(pattern: URLPattern) -> Access | None:
    return declared(getattr(pattern.callback, "consumer_class"))  # noqa: B009 - put there by Channels' as_asgi


def _url(route: Route) -> str:
    """Return a path that the route matches."""
    path = re.sub(r"<(?:\w+:)?(\w+)>", lambda match: _VALUES[match[1]], route.path)
    path = re.sub(r"\(\?P<(\w+)>[^()]*\)", lambda match: _VALUES[match[1]], path)
    return path.replace("^", "").replace("$", "").replace("\\Z", "").replace("//", "/")


def _name(route: Route) -> str:
    return f"{'+'.join(route.methods)} {route.path}".strip()


def _declaration(access: Access | None) -> str:
    if access is None:
        return "nothing"
    return str(access.permission or ("a sign-in" if access.sign_in else "that it is public"))
