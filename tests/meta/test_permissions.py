"""Every route and every socket, for every role and without a sign-in: each admits exactly the roles it declares.

One test walks all routes for one role, with one user and one session, and lists every violation.
`tests/meta/test_limits.py` walks them with limits by cluster, and with bodies.
"""

from __future__ import annotations

import pytest
from django.shortcuts import resolve_url
from django.urls import URLPattern

from dashboards.checks import UrlRoute
from dashboards.live.routing import websocket_urlpatterns
from dashboards.live.sockets import NOT_ALLOWED, SIGNED_OUT
from dashboards.shared.permissions import AccessRequirement, access_of
from fleet.models.access import ROLES, Permission
from tests.meta.walk import ADMITTED, ROUTES, Visitor, frames_of, name_of, report

pytestmark = pytest.mark.usefixtures("fleet_in_memory")

#: No sign-in, a user without a role, and each role.
_ROLES = (None, "", *ROLES)


def test_routes_are_walked() -> None:
    """The walk contains pages, the API, allauth and the sockets."""
    names = {route.name for route in ROUTES}
    assert {"fleet-now", "map-of-cluster", "tokens", "account_login", "mfa_index"} <= names
    assert any(route.path == "/api/v1/agents" and route.methods == ("GET",) for route in ROUTES)
    assert websocket_urlpatterns


def test_every_route_declares_its_access() -> None:
    """The system check refuses a route without it too; this list does not depend on the check."""
    report(f"{name_of(route)} declares no access" for route in ROUTES if route.access is None)


def test_every_socket_declares_a_permission() -> None:
    """A socket shows a fleet, so a sign-in alone is not enough."""
    report(
        f"{pattern.pattern} declares no permission"
        for pattern in websocket_urlpatterns
        if (access := _socket_access(pattern)) is None or access.permission is None
    )


def test_no_api_write_is_open_to_viewers() -> None:
    """An API operation that changes something requires more than the permissions to read."""
    reads = {Permission.VIEW_FLEET, Permission.VIEW_METRICS, Permission.VIEW_AUDIT, None}
    report(
        f"{name_of(route)} declares only {_declaration(route.access)}"
        for route in ROUTES
        if set(route.methods) - {"GET"} and route.access is not None and route.access.permission in reads
    )


@pytest.mark.django_db
@pytest.mark.parametrize("role", _ROLES, ids=lambda role: "no sign-in" if role is None else role or "no role")
def test_every_route_admits_exactly_the_declared_roles(role: str | None) -> None:
    """Each failure names the role, the route, its answer and its declaration."""
    visitor = Visitor(role)
    report(
        f"{visitor.name}: {name_of(route)} {problem}; it declares {_declaration(route.access)}"
        for route in ROUTES
        # allauth's own pages admit every role.
        if role is None or not route.path.startswith("/accounts/")
        if route.access is not None
        if (problem := _problem(visitor, route, route.access))
    )


@pytest.mark.django_db(transaction=True)
async def test_every_socket_admits_exactly_the_declared_roles(socket_visitors: list[Visitor]) -> None:
    """A refused visitor gets the close code for the reason, an admitted one the first frame of the fleet."""
    violations = []
    for pattern in websocket_urlpatterns:
        access = _socket_access(pattern)
        assert access is not None
        path = "/" + str(pattern.pattern).replace("<slug:cluster>", "default")
        for visitor in socket_visitors:
            expected = "hello default" if visitor.satisfies(access) else str(NOT_ALLOWED)
            if visitor.role is None:
                expected = str(SIGNED_OUT)
            (actual,) = await frames_of(path, visitor.headers)
            if actual != expected:
                violations.append(
                    f"{visitor.name}: {path} answered {actual} instead of {expected}; "
                    f"it declares {_declaration(access)}"
                )
    report(violations)


@pytest.fixture
def socket_visitors(socket_layer: None) -> list[Visitor]:
    """One visitor per role."""
    return [Visitor(role) for role in _ROLES]


def _problem(visitor: Visitor, route: UrlRoute, access: AccessRequirement) -> str:
    """Ask the route once; return how its answer differs from its declaration, or nothing."""
    response = visitor.send(route)
    status, location = response.status_code, response.headers.get("Location", "")
    if visitor.role is None and not access.needs_sign_in:
        # allauth's page about a failed sign-in has the status 401 and is shown to everybody.
        return f"refused with {status}" if status == 403 or status >= 500 else ""
    if visitor.role is None and (route.path.startswith("/api/") or route.path == "/metrics"):
        return "" if status == 401 else f"answered {status} instead of 401"
    if visitor.role is None:
        to_sign_in = status == 302 and location.startswith(resolve_url("account_login"))
        return "" if to_sign_in else f"answered {status} {location} instead of leading to the sign-in page"
    if visitor.satisfies(access):
        return "" if status in ADMITTED else f"refused with {status}"
    return "" if status == 403 else f"answered {status} instead of 403"


def _socket_access(pattern: URLPattern) -> AccessRequirement | None:
    return access_of(getattr(pattern.callback, "consumer_class"))  # noqa: B009 - put there by Channels' as_asgi


def _declaration(access: AccessRequirement | None) -> str:
    if access is None:
        return "nothing"
    return str(access.permission or ("a sign-in" if access.needs_sign_in else "that it is public"))
