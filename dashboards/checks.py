"""System checks of the console: every route says who may use it, and the sign-in settings hold together."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.urls import URLPattern, URLResolver, get_resolver
from ninja.operation import PathView

from dashboards.shared.permissions import ALLAUTH, PUBLIC, Access, declared
from fleet.models.access import ROLES

_LOCAL = {"localhost", "127.0.0.1", "[::1]", "testserver"}


@dataclass(frozen=True, slots=True)
class Route:
    """One URL pattern, and who may use it; None when it does not say."""

    path: str
    name: str
    #: HTTP methods that it was declared for; empty when it takes all.
    methods: tuple[str, ...]
    access: Access | None


def routes(resolver: URLResolver | None = None, path: str = "/") -> Iterator[Route]:
    """Walk every URL pattern of the console: pages, API operations, allauth."""
    for entry in (resolver or get_resolver()).url_patterns:
        here = path + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from routes(entry, here)
        else:
            yield from _of_pattern(entry, here)


@register(Tags.security, Tags.urls)
def every_route_says_who_may_use_it(app_configs: Sequence[Any] | None, **_: Any) -> list[CheckMessage]:
    """Refuse a route that declares no access."""
    return [
        Error(
            f"The route {route.path} does not say who may use it.",
            hint="Mark the view with @requires(Permission...) or @public, the API operation with auth=ApiAccess(...).",
            id="dashboards.E001",
        )
        for route in routes()
        if route.access is None
    ]


@register(Tags.security)
def single_sign_on_is_whole(app_configs: Sequence[Any] | None, **_: Any) -> list[CheckMessage]:
    """Refuse half-set OpenID Connect and roles that do not exist."""
    named = {role for role, _group in settings.REFLOAT_OIDC_ROLES}
    named |= {settings.REFLOAT_OIDC_DEFAULT_ROLE} if settings.REFLOAT_OIDC_DEFAULT_ROLE else set()
    found: list[CheckMessage] = [
        Error(
            f"REFLOAT_OIDC_ROLES or REFLOAT_OIDC_DEFAULT_ROLE names the role {role!r}, which does not exist.",
            hint=f"The roles are: {', '.join(ROLES)}.",
            id="dashboards.E002",
        )
        for role in sorted(named - set(ROLES))
    ]
    if not settings.REFLOAT_OIDC_ISSUER:
        return found
    if not settings.REFLOAT_OIDC_CLIENT_ID:
        found.append(
            Error(
                "REFLOAT_OIDC_ISSUER is set without REFLOAT_OIDC_CLIENT_ID.",
                hint="Register the console at the identity provider and set the id it gives.",
                id="dashboards.E003",
            )
        )
    if not named:
        found.append(
            checks.Warning(
                "Single sign-on is on, but gives nobody a role.",
                hint="Set REFLOAT_OIDC_ROLES, for example viewer=staff, or REFLOAT_OIDC_DEFAULT_ROLE.",
                id="dashboards.W001",
            )
        )
    if urlsplit(settings.REFLOAT_OIDC_ISSUER).scheme != "https":
        found.append(
            checks.Warning(
                f"The identity provider {settings.REFLOAT_OIDC_ISSUER} is not asked over https.",
                hint="Anybody on the way can sign in as anybody: use an https:// issuer.",
                id="dashboards.W002",
            )
        )
    return found


@register(Tags.security)
def others_come_over_https(app_configs: Sequence[Any] | None, **_: Any) -> list[CheckMessage]:
    """Warn when others than this machine may come, in the clear or into debug pages."""
    others = sorted(set(settings.ALLOWED_HOSTS) - _LOCAL)
    found: list[CheckMessage] = []
    if others and not settings.REFLOAT_HTTPS:
        found.append(
            checks.Warning(
                f"The console answers to {', '.join(others)}, but not over https.",
                hint="Put it behind a TLS proxy and set REFLOAT_HTTPS=true.",
                id="dashboards.W003",
            )
        )
    if settings.REFLOAT_HTTPS and not settings.REFLOAT_TRUSTED_PROXIES:
        found.append(
            checks.Warning(
                "REFLOAT_HTTPS=true without REFLOAT_TRUSTED_PROXIES: all people have the address of the proxy.",
                hint="Set REFLOAT_TRUSTED_PROXIES=1: failed sign-ins are counted by address.",
                id="dashboards.W004",
            )
        )
    if others and settings.DEBUG:
        found.append(
            Error(
                f"Debug pages are on where {', '.join(others)} can see them.",
                hint="Unset REFLOAT_DEBUG: its pages show settings and variables.",
                id="dashboards.E004",
            )
        )
    return found


def _of_pattern(entry: URLPattern, path: str) -> Iterator[Route]:
    callback, name = entry.callback, entry.name or ""
    operations = _api_operations(callback)
    if operations is not None:
        for operation in operations.operations:
            guards = [declared(guard) for guard in operation.auth_callbacks]
            access = guards[0] if len(guards) == 1 else None
            yield Route(path, name, tuple(operation.methods), access)
        return
    # Redirects that allauth keeps for old links lead to pages that are guarded themselves.
    old_link = callback.__module__ == "django.views.generic.base" and path.startswith("/accounts/social/")
    access = PUBLIC if old_link or name == "api-root" else declared(callback) or ALLAUTH.get(name)
    yield Route(path, name, (), access)


def _api_operations(callback: Any) -> PathView | None:
    """Find the operations behind a view that ninja made; they are in its closure and nowhere else."""
    if not inspect.isfunction(callback) or callback.__module__ != "ninja.operation":
        return None
    owner = inspect.getclosurevars(callback).nonlocals.get("self")
    return owner if isinstance(owner, PathView) else None
