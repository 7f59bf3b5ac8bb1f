"""Access to sockets, at opening and later: origin, session or token, permission, cluster. docs/reference/access.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import User
from django.http import HttpRequest, parse_cookie
from django.http.request import split_domain_port, validate_host
from django.utils import timezone

from dashboards.shared.permissions import AccessRequirement, is_known_cluster
from fleet.models.access import has_permission
from fleet.models.tokens import find_token

#: Close codes: sign in again; not allowed.
SIGNED_OUT = 4401
NOT_ALLOWED = 4403

Scope = Mapping[str, Any]
Application = Callable[[Any, Any, Any], Awaitable[None]]


def require_same_origin(application: Application) -> Application:
    """Wrap an application so that it refuses handshakes of pages of other origins, which would send our cookie.

    The port of the origin counts too, because cookies are sent to all ports. Only a client with a token may omit the
    origin; pages cannot send one.
    """

    async def wrapper(scope: Any, receive: Any, send: Any) -> None:
        handler = application if is_origin_allowed(scope) else refuse
        await handler(scope, receive, send)

    return wrapper


async def refuse(_scope: Any, receive: Any, send: Any) -> None:
    """Refuse a handshake; the server responds with 403. The denier of Channels would need Redis."""
    await receive()
    await send({"type": "websocket.close"})


def is_origin_allowed(scope: Scope) -> bool:
    """Return whether a handshake comes from the console, a trusted origin, or a program with a token."""
    headers = _headers_of(scope)
    host = headers.get("host", "")
    if not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        return False
    origin = headers.get("origin")
    if origin is None:
        return "authorization" in headers
    parts = urlsplit(origin)
    return (
        parts.netloc.lower() == host.lower()
        or f"{parts.scheme}://{parts.netloc}" in settings.CSRF_TRUSTED_ORIGINS
    )


def close_code_of(scope: Scope, access: AccessRequirement, cluster: str) -> int | None:
    """Return the close code for a socket; None if it may stay open. Reads session, roles and limits in the database."""
    permission = access.permission
    assert permission is not None, "a socket shows a fleet, so it needs a permission"
    headers = _headers_of(scope)
    if "authorization" in headers:
        scheme, _, secret = headers["authorization"].partition(" ")
        token = find_token(secret, timezone.now()) if scheme.lower() == "bearer" else None
        if token is None:
            return SIGNED_OUT
        user, is_allowed = token.user, token.allows(permission)
    else:
        cookie_user = find_session_user(headers.get("cookie", ""))
        if cookie_user is None:
            return SIGNED_OUT
        user, is_allowed = cookie_user, True
    return (
        None
        if is_allowed and has_permission(user, permission, cluster) and is_known_cluster(cluster)
        else NOT_ALLOWED
    )


def find_session_user(cookie: str) -> User | None:
    """Return the user of a session cookie, read from the session store."""
    key = parse_cookie(cookie).get(settings.SESSION_COOKIE_NAME)
    if not key:
        return None
    session = import_module(settings.SESSION_ENGINE).SessionStore(session_key=key)
    # get_user reads only the session of a request; it also checks the hash of the password.
    user = get_user(cast(HttpRequest, SimpleNamespace(session=session)))
    return user if isinstance(user, User) and user.is_active else None


def _headers_of(scope: Scope) -> dict[str, str]:
    return {
        name.decode("latin-1").lower(): header_value.decode("latin-1")
        for name, header_value in scope["headers"]
    }
