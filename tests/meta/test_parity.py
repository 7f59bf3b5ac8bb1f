"""What operators do on pages they can do by the API, or docs/reference/api.md names it as a page's alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from dashboards.api_v1 import api
from tests.meta.house import ROOT
from tests.meta.walk import ROUTES, Visitor

pytestmark = pytest.mark.usefixtures("db", "fleet_in_memory")

#: By page with a form: the operation of the API that does the same.
_OPERATIONS: Mapping[str, str] = {
    "service": "/instances/{instance_id}/out-of-service/plan",
    "degrade": "/instances/{instance_id}/degrade",
    "retire": "/agents/{agent_id}/retire",
    "retire-selected": "/retirements",
    "agent-set": "/agent-sets",
    "agent-views": "/agent-views",
    "networking": "/networking-config/plan",
    "policy-target": "/policies/plan",
    "policy-cell": "/policies/plan",
    "policy-preset": "/policies/plan",
    "reconnect": "/reconnect/plan",
    "change-abort": "/changes/{change_id}/actions",
    "change": "/changes/{change_id}/confirm",
    "incident": "/incidents/{number}/acknowledge",
    "incident-silence": "/silences",
    "incident-acknowledge": "/incidents/{number}/acknowledge",
    "silences": "/silences/{number}/end",
    "silence-new": "/silences",
    "silence-extend": "/silences/{number}/extend",
    "runbook-text": "/runbooks/{cause}",
    "window-new": "/maintenance-windows",
    "window": "/maintenance-windows/{number}",
    "window-delete": "/maintenance-windows/{number}/delete",
    "channels": "/deliveries/{number}/resend",
    "channel": "/channels/{number}",
    "new-channel": "/channels",
    "route": "/routes/{number}",
    "alert-rules": "/agent-sets",
    "alerting-import": "/alerting/apply",
    "alert-rule": "/alert-rules/{number}",
}
#: By page with a form about clusters themselves, or about users: the operation, which no cluster has.
_CLUSTER_OPERATIONS: Mapping[str, str] = {
    "cluster-new": "/clusters",
    "cluster-edit": "/clusters/{cluster}",
    "cluster": "/clusters/{cluster}/pause",
    "users": "/users",
    "user": "/users/{username}",
}
#: By forecast that a page shows beside its form: the operation of the API that returns the same.
_FORECASTS: Mapping[str, str] = {
    "networking-forecast": "/networking-config/forecast",
    "reconnect-forecast": "/reconnect/forecast",
}
#: By page with a form that no operation replaces: its row in docs/reference/api.md, "Actions without an API".
_PAGES_ONLY: Mapping[str, str] = {
    "tokens": "API tokens",
    # There is no user yet, so nobody has a token.
    "setup": "the first administrator",
    # Its link is the proof: the person has no password and no token yet.
    "invitation": "accepting an invitation",
}


def test_every_form_has_an_operation_or_is_documented() -> None:
    """A new page that changes something fails here until it has either."""
    visitor = Visitor("admin")
    pages = {
        route.name.removesuffix("-of-cluster")
        for route in ROUTES
        if not route.path.startswith(("/api/", "/accounts/"))
        and route.access is not None
        and visitor.send(route, body={}).status_code != 405
    }
    # A forecast may be requested by a form, too: its target agents may not fit into an address.
    assert pages - set(_FORECASTS) == {*_OPERATIONS, *_CLUSTER_OPERATIONS, *_PAGES_ONLY}


def test_every_forecast_of_a_page_has_an_operation() -> None:
    """A forecast needs no plan, by API either."""
    pages = {
        route.name
        for route in ROUTES
        if route.name.endswith("-forecast") and not route.path.startswith("/api/")
    }
    assert pages == set(_FORECASTS)
    paths = api.get_openapi_schema(path_prefix="/")["paths"]
    for path in _FORECASTS.values():
        assert {path, f"/clusters/{{cluster}}{path}"} <= set(paths)


def test_operations_are_posts_of_the_api() -> None:
    """Each exists, for the default cluster and for any cluster, unless it is about clusters."""
    paths = api.get_openapi_schema(path_prefix="/")["paths"]
    posts = {path for path, operations in paths.items() if "post" in operations}
    for path in _OPERATIONS.values():
        assert {path, f"/clusters/{{cluster}}{path}"} <= posts
    assert set(_CLUSTER_OPERATIONS.values()) <= posts


def test_forms_without_an_operation_are_documented() -> None:
    """docs/reference/api.md has a row for each under *Actions without an API*."""
    document = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    section = document.partition("## Actions without an API")[2]
    for reason in _PAGES_ONLY.values():
        assert f"| {reason}" in section
