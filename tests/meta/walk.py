"""What the walks through the console share: every route, and visitors who send requests to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from channels.layers import get_channel_layer
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import transaction
from django.http import HttpResponseBase
from django.test import Client

from dashboards.checks import UrlRoute, iterate_routes
from dashboards.live.routing import application
from dashboards.shared.permissions import AccessRequirement
from fleet.models.access import ROLES, ClusterLimit, set_role
from tests.fakes.sockets import Headers, Socket
from tests.fakes.waiting import DEADLINE

#: Values for the parameters of paths.
VALUES: Mapping[str, str] = {
    "cluster": "default",
    "agent_id": "id-1",
    "instance_id": "proxy-id-1",
    "change_id": "1",
    "entry_id": "1",
    "target": "auth",
    "name": "TELEPORT_UNSTABLE_AUTH_ANNOUNCE_TTL",
    "slug": "failover",
    "incident_id": "1",
    "number": "1",
    "rule_id": "0",
    "cause": "auth",
    "channel_id": "0",
    "channel_kind": "email",
    "route_id": "0",
    "window_id": "0",
    "provider_id": "oidc",
    "uidb36": "1",
    "key": "x",
    "pk": "1",
    "token": "x",
    "username": "nobody",
}
#: Without repeats: an address with two operations stands in the URL patterns under both names.
ROUTES = sorted(
    {(route.path, route.methods, route.access): route for route in iterate_routes()}.values(),
    key=lambda route: (route.path, route.methods),
)
#: A request that Refloat admits may still be incomplete, out of date, or about an object that does not exist.
ADMITTED = frozenset({200, 301, 304, 400, 404, 409, 428})
_PASSWORD = "correct horse"


class Visitor:
    """One user with one role, or nobody, who sends requests through the whole middleware stack.

    `limit`: the only cluster that the user sees; empty: every cluster.
    """

    def __init__(self, role: str | None, limit: str = "") -> None:
        self.role, self.limit = role, limit
        self._client = Client()
        if role is not None:
            user = User.objects.create_user(f"user-{role}", password=_PASSWORD)
            set_role(user, role)
            if limit:
                ClusterLimit.objects.create(user=user, cluster=limit)
            self._client.force_login(user)
            # What outlives a session asks for recent proof: not what a walk looks for.
            self._client.post("/accounts/reauthenticate/", {"password": _PASSWORD})
        self._cookies = {name: morsel.value for name, morsel in self._client.cookies.items()}

    @property
    def name(self) -> str:
        """The role and the limit, as a failure names them."""
        role = "no sign-in" if self.role is None else self.role or "no role"
        return f"{role}, limited to {self.limit}" if self.limit else role

    @property
    def headers(self) -> Headers:
        """The headers of a handshake from a page of the console, with the session if there is one."""
        origin = [(b"host", b"localhost"), (b"origin", b"http://localhost")]
        return origin + [(b"cookie", f"{name}={value}".encode()) for name, value in self._cookies.items()]

    def satisfies(self, access: AccessRequirement, cluster: str = "default") -> bool:
        """Return whether this visitor has the sign-in, the permission and the cluster that `access` requires."""
        if access.permission is None:
            return not access.needs_sign_in or self.role is not None
        if access.is_per_cluster and self.limit and self.limit != cluster:
            return False
        return access.permission in ROLES.get(self.role or "", frozenset())

    def send(
        self,
        route: UrlRoute,
        values: Mapping[str, str] = VALUES,
        body: Any = None,
        before_undo: Callable[[], None] = lambda: None,
    ) -> HttpResponseBase:
        """Send one request, with a body by POST: a form to a page, JSON to the API.

        Then undo its effects on rows, the session, cookies, and counts for rate limits.
        """
        url = url_of(route, values)
        with transaction.atomic():
            if body is None:
                response: HttpResponseBase = self._client.generic((route.methods or ("GET",))[0], url)
            elif url.startswith("/api/"):
                response = self._client.post(url, body, content_type="application/json")
            else:
                response = self._client.post(url, body)
            before_undo()
            transaction.set_rollback(True)
        cache.clear()
        self._client.cookies.clear()
        self._client.cookies.load(self._cookies)
        return response


def url_of(route: UrlRoute, values: Mapping[str, str] = VALUES) -> str:
    """Return a path that the route matches."""
    path = re.sub(r"<(?:\w+:)?(\w+)>", lambda match: values[match[1]], route.path)
    path = re.sub(r"\(\?P<(\w+)>[^()]*\)", lambda match: values[match[1]], path)
    return path.replace("^", "").replace("$", "").replace("\\Z", "").replace("//", "/")


def name_of(route: UrlRoute) -> str:
    """Return a route as a failure names it."""
    return f"{'+'.join(route.methods)} {route.path}".strip()


def report(violations: Iterable[str]) -> None:
    """Fail with every violation of a walk, one per line."""
    lines = list(violations)
    if lines:
        pytest.fail("\n".join([f"{len(lines)} violations:", *lines]), pytrace=False)


async def frames_of(path: str, headers: Headers, *messages: str) -> list[str]:
    """Return the first frame of a socket, and the next `hello` after each message: its cluster, or the close code."""
    socket = Socket(application, path, headers)
    if not await socket.connect():
        return ["no handshake"]
    try:
        frames = [await _next_hello(socket)]
        for message in messages:
            await socket.send(text=message)
            frames.append(await _next_hello(socket))
        return frames
    finally:
        await socket.leave()
        layer = get_channel_layer()
        assert layer is not None
        await layer.flush()


async def _next_hello(socket: Socket) -> str:
    while True:
        frame = await socket.receive(DEADLINE)
        if frame["type"] == "websocket.close":
            return str(frame["code"])
        match = re.match(r'{"type": ?"hello", ?"cluster": ?"([\w-]+)"', frame.get("text") or "")
        if match:
            return f"hello {match[1]}"
