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

from dashboards.shared.permissions import ALLAUTH, PUBLIC, AccessRequirement, access_of
from fleet.models.access import ROLES

_LOCAL_HOSTS = {"localhost", "127.0.0.1", "[::1]", "testserver"}


@dataclass(frozen=True, slots=True)
class UrlRoute:
    """One URL pattern, and who may use it; None when it does not say."""

    path: str
    name: str
    #: HTTP methods that it was declared for; empty when it takes all.
    methods: tuple[str, ...]
    access: AccessRequirement | None


def routes(resolver: URLResolver | None = None, path: str = "/") -> Iterator[UrlRoute]:
    """Walk every URL pattern of the console: pages, API operations, allauth."""
    for entry in (resolver or get_resolver()).url_patterns:
        full_path = path + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from routes(entry, full_path)
        else:
            yield from _routes_of_pattern(entry, full_path)


@register(Tags.security, Tags.urls)
def check_route_access(app_configs: Sequence[Any] | None, **_: Any) -> list[CheckMessage]:
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
def check_single_sign_on(app_configs: Sequence[Any] | None, **_: Any) -> list[CheckMessage]:
    """Refuse half-set OpenID Connect and roles that do not exist."""
    role_names = {role for role, _group in settings.REFLOAT_OIDC_ROLES}
    role_names |= {settings.REFLOAT_OIDC_DEFAULT_ROLE} if settings.REFLOAT_OIDC_DEFAULT_ROLE else set()
    messages: list[CheckMessage] = [
        Error(
            f"REFLOAT_OIDC_ROLES or REFLOAT_OIDC_DEFAULT_ROLE names the role {role!r}, which does not exist.",
            hint=f"The roles are: {', '.join(ROLES)}.",
            id="dashboards.E002",
        )
        for role in sorted(role_names - set(ROLES))
    ]
    if not settings.REFLOAT_OIDC_ISSUER:
        return messages
    if not settings.REFLOAT_OIDC_CLIENT_ID:
        messages.append(
            Error(
                "REFLOAT_OIDC_ISSUER is set without REFLOAT_OIDC_CLIENT_ID.",
                hint="Register the console at the identity provider and set the id it gives.",
                id="dashboards.E003",
            )
        )
    if not role_names:
        messages.append(
            checks.Warning(
                "Single sign-on is on, but gives nobody a role.",
                hint="Set REFLOAT_OIDC_ROLES, for example viewer=staff, or REFLOAT_OIDC_DEFAULT_ROLE.",
                id="dashboards.W001",
            )
        )
    if urlsplit(settings.REFLOAT_OIDC_ISSUER).scheme != "https":
        messages.append(
            checks.Warning(
                f"The identity provider {settings.REFLOAT_OIDC_ISSUER} is not asked over https.",
                hint="Anybody on the way can sign in as anybody: use an https:// issuer.",
                id="dashboards.W002",
            )
        )
    return messages


@register(Tags.security)
def check_remote_access(app_configs: Sequence[Any] | None, **_: Any) -> list[CheckMessage]:
    """Warn when others than this machine may come, in the clear or into debug pages."""
    remote_hosts = sorted(set(settings.ALLOWED_HOSTS) - _LOCAL_HOSTS)
    messages: list[CheckMessage] = []
    if remote_hosts and not settings.REFLOAT_HTTPS:
        messages.append(
            checks.Warning(
                f"The console answers to {', '.join(remote_hosts)}, but not over https.",
                hint="Put it behind a TLS proxy and set REFLOAT_HTTPS=true.",
                id="dashboards.W003",
            )
        )
    if settings.REFLOAT_HTTPS and not settings.REFLOAT_TRUSTED_PROXIES:
        messages.append(
            checks.Warning(
                "REFLOAT_HTTPS=true without REFLOAT_TRUSTED_PROXIES: all people have the address of the proxy.",
                hint="Set REFLOAT_TRUSTED_PROXIES=1: failed sign-ins are counted by address.",
                id="dashboards.W004",
            )
        )
    if remote_hosts and settings.DEBUG:
        messages.append(
            Error(
                f"Debug pages are on where {', '.join(remote_hosts)} can see them.",
                hint="Unset REFLOAT_DEBUG: its pages show settings and variables.",
                id="dashboards.E004",
            )
        )
    return messages


def _routes_of_pattern(entry: URLPattern, path: str) -> Iterator[UrlRoute]:
    callback, name = entry.callback, entry.name or ""
    operations = _api_operations(callback)
    if operations is not None:
        for operation in operations.operations:
            guards = [access_of(guard) for guard in operation.auth_callbacks]
            access = guards[0] if len(guards) == 1 else None
            yield UrlRoute(path, name, tuple(operation.methods), access)
        return
    # Redirects that allauth keeps for old links lead to pages that are guarded themselves.
    is_old_link = callback.__module__ == "django.views.generic.base" and path.startswith("/accounts/social/")
    access = PUBLIC if is_old_link or name == "api-root" else access_of(callback) or ALLAUTH.get(name)
    yield UrlRoute(path, name, (), access)


def _api_operations(callback: Any) -> PathView | None:
    """Find the operations behind a view that ninja made; they are in its closure and nowhere else."""
    if not inspect.isfunction(callback) or callback.__module__ != "ninja.operation":
        return None
    owner = inspect.getclosurevars(callback).nonlocals.get("self")
    return owner if isinstance(owner, PathView) else None
