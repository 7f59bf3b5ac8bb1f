"""System checks of the console: every route declares its access, and the sign-in settings are consistent."""

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

from dashboards.shared.permissions import ALLAUTH_PAGES, PUBLIC, AccessRequirement, access_of
from fleet.models.access import ROLES

_LOCAL_HOSTS = {"localhost", "127.0.0.1", "[::1]", "testserver"}


@dataclass(frozen=True, slots=True)
class UrlRoute:
    """One URL pattern and its declared access; None if it declares none."""

    path: str
    name: str
    #: HTTP methods of the route; empty means all.
    methods: tuple[str, ...]
    access: AccessRequirement | None


def iterate_routes(resolver: URLResolver | None = None, path: str = "/") -> Iterator[UrlRoute]:
    """Yield every URL pattern of the console: pages, API operations, allauth."""
    for entry in (resolver or get_resolver()).url_patterns:
        full_path = path + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from iterate_routes(entry, full_path)
        else:
            yield from _routes_of_pattern(entry, full_path)


@register(Tags.security, Tags.urls)
def check_route_access(app_configs: Sequence[Any] | None, **_: Any) -> list[CheckMessage]:
    """Return an error for every route that declares no access."""
    return [
        Error(
            f"The route {route.path} does not declare who can use it.",
            hint="Mark the view with @requires(Permission...) or @public, the API operation with auth=ApiAccess(...).",
            id="dashboards.E001",
        )
        for route in iterate_routes()
        if route.access is None
    ]


@register(Tags.security)
def check_single_sign_on(app_configs: Sequence[Any] | None, **_: Any) -> list[CheckMessage]:
    """Return errors and warnings for incomplete OpenID Connect settings and unknown roles."""
    role_names = {role for role, _group in settings.REFLOAT_OIDC_ROLES}
    role_names |= {settings.REFLOAT_OIDC_DEFAULT_ROLE} if settings.REFLOAT_OIDC_DEFAULT_ROLE else set()
    messages: list[CheckMessage] = [
        Error(
            f"REFLOAT_OIDC_ROLES or REFLOAT_OIDC_DEFAULT_ROLE names the role {role!r}, which does not exist.",
            hint=f"Available roles: {', '.join(ROLES)}.",
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
                hint="Register the console at the identity provider and set the client id.",
                id="dashboards.E003",
            )
        )
    if not role_names:
        messages.append(
            checks.Warning(
                "Single sign-on is enabled, but no group is mapped to a role, so nobody can sign in with it.",
                hint="Set REFLOAT_OIDC_ROLES, for example viewer=staff, or REFLOAT_OIDC_DEFAULT_ROLE.",
                id="dashboards.W001",
            )
        )
    if urlsplit(settings.REFLOAT_OIDC_ISSUER).scheme != "https":
        messages.append(
            checks.Warning(
                f"The identity provider {settings.REFLOAT_OIDC_ISSUER} does not use https.",
                hint="An attacker on the network can sign in as any user. Set REFLOAT_OIDC_ISSUER to an https:// URL.",
                id="dashboards.W002",
            )
        )
    return messages


@register(Tags.security)
def check_remote_access(app_configs: Sequence[Any] | None, **_: Any) -> list[CheckMessage]:
    """Return errors and warnings if other hosts can reach the console without https or see debug pages."""
    remote_hosts = sorted(set(settings.ALLOWED_HOSTS) - _LOCAL_HOSTS)
    messages: list[CheckMessage] = []
    if remote_hosts and not settings.REFLOAT_HTTPS:
        messages.append(
            checks.Warning(
                f"The console serves {', '.join(remote_hosts)} over http only.",
                hint="Put it behind a TLS proxy and set REFLOAT_HTTPS=true.",
                id="dashboards.W003",
            )
        )
    if settings.REFLOAT_HTTPS and not settings.REFLOAT_TRUSTED_PROXIES:
        messages.append(
            checks.Warning(
                "REFLOAT_HTTPS=true without REFLOAT_TRUSTED_PROXIES: all clients appear with the address of the proxy.",
                hint="Set REFLOAT_TRUSTED_PROXIES=1, because failed sign-ins are limited per client address.",
                id="dashboards.W004",
            )
        )
    if remote_hosts and settings.DEBUG:
        messages.append(
            Error(
                f"Debug pages are enabled, and the console is reachable as {', '.join(remote_hosts)}.",
                hint="Unset REFLOAT_DEBUG, because debug pages show settings and variables.",
                id="dashboards.E004",
            )
        )
    return messages


def _routes_of_pattern(entry: URLPattern, path: str) -> Iterator[UrlRoute]:
    callback, name = entry.callback, entry.name or ""
    path_view = _find_path_view(callback)
    if path_view is not None:
        for operation in path_view.operations:
            requirements = [access_of(auth_callback) for auth_callback in operation.auth_callbacks]
            access = requirements[0] if len(requirements) == 1 else None
            yield UrlRoute(path, name, tuple(operation.methods), access)
        return
    # Redirects of allauth for old links: the pages that they lead to are guarded.
    is_old_link = callback.__module__ == "django.views.generic.base" and path.startswith("/accounts/social/")
    access = PUBLIC if is_old_link or name == "api-root" else access_of(callback) or ALLAUTH_PAGES.get(name)
    yield UrlRoute(path, name, (), access)


def _find_path_view(callback: Any) -> Any:
    """Return the PathView of a view that ninja created; None for other views. Only its closure has it."""
    if not inspect.isfunction(callback) or callback.__module__ != "ninja.operation":
        return None
    # Only with the API: every command registers these checks, and ninja takes a third of the time of its start.
    from ninja.operation import PathView

    owner = inspect.getclosurevars(callback).nonlocals.get("self")
    return owner if isinstance(owner, PathView) else None
