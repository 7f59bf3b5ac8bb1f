from __future__ import annotations

from django.core.checks import CheckMessage
from django.http import HttpRequest, HttpResponse
from django.urls import URLResolver, path
from django.urls.resolvers import RegexPattern
from pytest_django import Settings

from dashboards import checks
from dashboards.shared.permissions import PUBLIC, public


def _ids(messages: list[CheckMessage]) -> set[str | None]:
    return {message.id for message in messages}


def _silent(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


def test_our_routes_all_declare() -> None:
    """Nothing to refuse."""
    assert checks.check_route_access(None) == []


def test_routes_undeclared_view_is_listed(settings: Settings) -> None:
    """A view without a declaration is reported, even beside declared ones."""

    @public
    def open_view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    patterns = [path("silent/", _silent), path("open/", open_view)]
    resolver = URLResolver(RegexPattern(r"^/"), patterns)
    assert [(route.path, route.access) for route in checks.iterate_routes(resolver)] == [
        ("/silent/", None),
        ("/open/", PUBLIC),
    ]


def test_single_sign_on_half_set(settings: Settings) -> None:
    """Each hole has its own id, and a hint."""
    settings.REFLOAT_OIDC_ISSUER = "http://idp.example.com"
    settings.REFLOAT_OIDC_CLIENT_ID = ""
    assert _ids(checks.check_single_sign_on(None)) == {
        "dashboards.E003",
        "dashboards.W001",
        "dashboards.W002",
    }
    settings.REFLOAT_OIDC_ROLES = (("owner", "staff"),)
    messages = checks.check_single_sign_on(None)
    assert "dashboards.E002" in _ids(messages)
    assert all(message.hint for message in messages)


def test_single_sign_on_whole_or_off(settings: Settings) -> None:
    """No message for a complete configuration, nor when it is off."""
    assert checks.check_single_sign_on(None) == []
    settings.REFLOAT_OIDC_ISSUER = "https://idp.example.com"
    settings.REFLOAT_OIDC_CLIENT_ID = "refloat"
    settings.REFLOAT_OIDC_ROLES = (("viewer", "staff"),)
    assert checks.check_single_sign_on(None) == []


def test_open_to_others(settings: Settings) -> None:
    """Hosts beyond this machine want https, and never debug pages."""
    assert checks.check_remote_access(None) == []
    settings.ALLOWED_HOSTS = ["console.example.com"]
    settings.DEBUG = True
    assert _ids(checks.check_remote_access(None)) == {"dashboards.W003", "dashboards.E004"}
    settings.REFLOAT_HTTPS, settings.REFLOAT_TRUSTED_PROXIES = True, 1
    settings.DEBUG = False
    assert checks.check_remote_access(None) == []


def test_https_without_a_trusted_proxy(settings: Settings) -> None:
    """Behind a TLS proxy, the client address is the proxy's."""
    settings.REFLOAT_HTTPS, settings.REFLOAT_TRUSTED_PROXIES = True, 0
    assert _ids(checks.check_remote_access(None)) == {"dashboards.W004"}
    settings.REFLOAT_TRUSTED_PROXIES = 1
    assert checks.check_remote_access(None) == []
