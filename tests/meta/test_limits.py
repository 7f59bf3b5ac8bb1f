"""Every door with a limit by cluster: pages, API, metrics, audit, bodies of POST, messages of sockets.

docs/reference/access.md, "Cluster limits". For the roles that may least and most; each visitor is limited to one of two
clusters, in which there is one object of every kind, as there is in the other one and in the installation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpResponseBase, StreamingHttpResponse

from dashboards.checks import UrlRoute
from dashboards.live.routing import websocket_urlpatterns
from dashboards.live.sockets import NOT_ALLOWED
from fleet.alerts.matchers import CONFIRMATION_WORD
from fleet.models.clusters import Cluster
from tests.meta.estate import FOREIGN, HIDDEN, INSTALLATION, OWN, OWNERS, create_objects, foreign_rows
from tests.meta.walk import ADMITTED, ROUTES, VALUES, Visitor, frames_of, name_of, report

pytestmark = pytest.mark.usefixtures("fleet_in_memory")

_WALKED = [route for route in ROUTES if not route.path.startswith("/accounts/") and route.access is not None]
#: A parameter of a path, and the kind of object that it names.
_OBJECTS = {
    "incident_id": "incident",
    "change_id": "change",
    "entry_id": "entry",
    "rule_id": "rule",
    "channel_id": "channel",
    "route_id": "route",
    "window_id": "window",
}
_SECRET_FREE = {"name": "mine", "kind": "email", "to": "me@example.com", "per_minute": "10"}
_RULE: Mapping[str, Any] = {
    "name": "mine", "kind": "stranded", "severity": "1", "min_count": "1", "pending_rounds": "2",
    "pending_seconds": "0", "recover_seconds": "5 min", "group_wait": "30 s", "group_interval": "5 min",
    "repeat_seconds": "1 h", "share_percent": "0",
}  # fmt: skip
_CLUSTER = {
    "name": "mine", "source": "refloat", "address_kind": "static", "auths": "auth-1:3025", "tls_source": "none",
}  # fmt: skip
_API_CLUSTER = {"name": "mine", "auths": ["auth-1:3025"], "tls_source": "none"}
_REASON = "a reason to act"

Ids = Mapping[str, int]


def _page_bodies(name: str, owner: str, ids: Ids) -> list[dict[str, Any]]:
    """Return the forms that try to change what an owner has, or to make something for it."""
    route = {"name": "mine", "position": "0", "min_severity": "1", "cluster": owner, "parent": ids["route"]}
    wrong_rules = f"rules: [{{name: mine, kind: stranded, severity: info, cluster: '{owner}'}}]"
    window = {
        "name": "mine", "matchers": "cause=x", "rule": "FREQ=DAILY", "first_day": "2026-01-01", "start_time": "22:00",
        "time_zone": "UTC", "reason": _REASON, "duration": "2 h", "cluster": owner,
    }  # fmt: skip
    by_name: Mapping[str, list[dict[str, Any]]] = {
        "channels": [{"do": "again", "id": ids["delivery"]}],
        "new-channel": [_SECRET_FREE | {"cluster": owner}],
        "channel": [
            _SECRET_FREE | {"do": "save", "cluster": owner},
            {"do": "test"},
            {"do": "delete", "confirm": "yes"},
        ],
        "route": [
            route | {"channels": [ids["channel"]]},
            route | {"parent": "", "escalate_to": [ids["channel"]], "escalate_after": "5 min"},
            {"do": "delete", "confirm": "yes"},
        ],
        "alert-rules": [
            {"do": "add-agent-set", "pattern": "x", "name": "critical"},
            {"do": "remove-agent-set", "agent_set_id": ids["agent_set"]},
            {"do": "import", "document": wrong_rules},
        ],
        "alert-rule": [
            {**_RULE, "cluster": owner},
            {"do": "delete", "confirm": "yes"},
            {"do": "override"},
            {**_RULE, "do": "try"},
        ],
        "alerting-import": [
            {"preview": "1", "document": wrong_rules},
            {"do": "apply", "document": wrong_rules, "fingerprint": "x"},
        ],
        "silences": [
            *({"do": do, "id": ids["silence"]} for do in ("extend", "end")),
            {"do": "switch", "id": ids["window"]},
        ],
        "silence-new": [
            {
                "do": "silence",
                "duration": "1 h",
                "matchers": "",
                "confirmation": CONFIRMATION_WORD,
                "reason": _REASON,
                "cluster": owner,
            }
        ],
        "silence-extend": [{"period": "3600"}],
        "window-new": [{"do": "window", **window}],
        "window": [{"do": "window", **window}],
        "window-delete": [{}],
        "runbook-text": [{"text": _REASON}],
        "incident": [
            {"do": "acknowledge"},
            {"do": "let-go"},
            {"do": "end-silence", "id": ids["silence"]},
            {"do": "note", "text": _REASON},
        ],
        "incident-silence": [{"period": "3600", "reason": _REASON}],
        "incident-acknowledge": [{}],
        "service": [{"action": "take-out", "reason": _REASON, "sure": "on"}],
        "degrade": [{"action": "mark", "minutes": "10", "reason": _REASON}],
        "retire": [{"action": "retire", "reason": _REASON, "sure": "on"}],
        "agent-views": [
            {"do": "save", "name": "mine", "parameters": "q=agent", "is_shared": "on"},
            *({"do": do, "id": ids.get("view", 0), "name": "mine"} for do in ("change", "delete")),
        ],
        "agent-set": [{"action": "add", "q": "agent", "count": "4", "agent_set": "critical"}],
        "retire-selected": [
            {"action": "retire", "q": "agent", "count": "4", "reason": _REASON, "sure": "on"}
        ],
        "networking": [{"agent_connection_count": "3"}],
        "policy-target": [{"preview": "1"}],
        "policy-cell": [{"value": "1m"}],
        "policy-preset": [{}],
        "reconnect": [{"q": "agent"}, {"q": "agent", "connection": "auth"}],
        "reconnect-forecast": [{"q": "agent"}],
        "change": [{"do": do, "reason": _REASON} for do in ("confirm", "approve", "cancel", "undo", "pause")],
        "change-abort": [{}],
        "setup": [{"username": "mine", "password": "x", "password_again": "y"}],
        "tokens": [{"revoke": ids.get("token", 0)}],
        "users": [{"username": "mine", "role": "admin"}],
        "user": [{"do": "role", "role": "admin"}, {"do": "disable"}],
        "invitation": [{"password": "x", "password_again": "y"}],
        "cluster-new": [_CLUSTER | {"cluster_id": "mine"}],
        "cluster": [
            *({"do": do} for do in ("test", "pause", "resume")),
            {"do": "remove", "confirmation": owner},
        ],
        "cluster-edit": [_CLUSTER],
    }
    return by_name[name]


def _api_bodies(path: str) -> list[dict[str, Any]]:
    """Return the documents for an operation that changes something; what they name is in the path."""
    by_end: Mapping[str, list[dict[str, Any]]] = {
        "/clusters": [_API_CLUSTER | {"id": "mine"}],
        "/clusters/<cluster>": [_API_CLUSTER],
        "/clusters/<cluster>/delete": [{"confirmation": FOREIGN}, {"confirmation": OWN}],
        "/users": [{"username": "mine", "role": "admin"}],
        "/users/<username>": [{"role": "admin"}],
        "/invitation": [{}],
        "/end-sessions": [{}],
        "/revoke-tokens": [{}],
        "/reset-second-factor": [{}],
        "/pause": [{}],
        "/resume": [{}],
        "/acknowledge": [{}],
        "/silences": [{"matchers": "", "reason": _REASON, "confirmation": CONFIRMATION_WORD}],
        "/end": [{}],
        "/maintenance-windows": [
            {
                "name": "mine",
                "matchers": "cause=x",
                "rule": "FREQ=DAILY",
                "start_time": "22:00",
                "end_time": "23:00",
                "reason": _REASON,
            }
        ],
        "/maintenance-windows/<int:number>": [{"name": "mine"}],
        "/runbooks/<cause>": [
            {"text": _REASON, "scope": "installation"},
            {"text": _REASON, "scope": "cluster"},
        ],
        "/channels": [
            {"name": "mine", "kind": "email", "values": {"to": "me@example.com"}, "scope": scope}
            for scope in ("installation", "cluster")
        ],
        "/channels/<int:number>": [{"name": "mine"}, {"values": {"to": "me@example.com"}}],
        "/test": [{}],
        "/resend": [{}],
        "/routes": [{"name": "mine", "scope": scope} for scope in ("installation", "cluster")],
        "/routes/<int:number>": [{"name": "mine", "is_root": True}],
        "/alert-rules": [
            {"name": "mine", "kind": "stranded", "severity": "info", "scope": scope}
            for scope in ("installation", "cluster")
        ],
        "/alert-rules/<int:number>": [{"name": "mine"}],
        "/override": [{}],
        "/alerting/plan": [{"document": "rules: [{name: mine, kind: rate, severity: info}]"}],
        "/alerting/apply": [
            {"document": "rules: [{name: mine, kind: rate, severity: info}]", "fingerprint": "x"}
        ],
        "/enable": [{}],
        "/disable": [{}],
        "/delete": [{}],
        "/extend": [{"hours": 1}],
        "/agent-views": [{"name": "mine", "q": "agent", "is_shared": True}],
        "/agent-views/<int:number>": [{"name": "mine", "is_shared": False}],
        "/agent-sets": [{"agent_set": "critical", "q": "agent"}],
        "/retirements": [{"is_retired": True, "reason": _REASON, "confirm_alive": True, "q": "agent"}],
        "/retire": [{"is_retired": True, "reason": _REASON, "confirm_alive": True}],
        "/drain": [{"is_drained": True, "reason": _REASON, "allow_last": True}],
        "/degrade": [{"is_degraded": True, "reason": _REASON}],
        "/confirm": [{"reason": _REASON}],
        "/approve": [{}],
        "/cancel": [{}],
        "/undo": [{}],
        "/actions": [{"action": "abort"}],
        "/networking-config/plan": [{"fields": {"agent_connection_count": "3"}}],
        "/policies/plan": [{"desired_values": {}}, {"preset": "failover"}],
        "/out-of-service/plan": [{"allow_last": True}],
        "/reconnect/forecast": [{"q": "agent"}],
        "/reconnect/plan": [{"q": "agent"}, {"q": "agent", "connection": "auth"}],
    }
    return next(bodies for end, bodies in by_end.items() if path.endswith(end))


@pytest.fixture
def ids(db: None) -> dict[str, dict[str, int]]:
    """The ids of objects by owner and kind."""
    return create_objects()


# What the roles between these two may see is a part of what an admin may; test_permissions walks every role.
@pytest.mark.parametrize("role", ["viewer", "admin"])
def test_limited_visitor_sees_one_cluster(ids: dict[str, dict[str, int]], role: str) -> None:
    """In the other cluster every door is shut; in its own it is as the role has it, and shows nothing of others."""
    visitor = Visitor(role, limit=OWN)
    report(
        f"{visitor.name}: {name_of(route)} of {cluster}, objects of {owner or 'the installation'}: {problem}"
        for route, cluster, owner, values in _visits(ids)
        if (problem := _problem(visitor, route, cluster, owner, values))
    )


@pytest.mark.parametrize(
    "role",
    [
        "admin",
        # What this role may change is a part of what an admin may.
        pytest.param("config admin", marks=pytest.mark.slow),
    ],
)
def test_limited_visitor_cannot_change_foreign_objects(ids: dict[str, dict[str, int]], role: str) -> None:
    """Requests with foreign ids or owners change no foreign row and create none."""
    visitor, violations = Visitor(role, limit=OWN), []
    before = foreign_rows()

    def compare() -> None:
        after = foreign_rows()
        if after != before:
            row_changes = [row for row in (*before, *after) if (row in before) is not (row in after)]
            violations.append(f"{visitor.name}: {description} changed {row_changes}")

    for route, cluster, owner, values in _visits(ids, with_bodies=True):
        assert route.access is not None
        for body in _bodies(route, owner, ids[owner]):
            description = f"{name_of(route)} of {cluster}, with {body} of {owner or 'the installation'}"
            response = visitor.send(route, values, body, before_undo=compare)
            if leak := _leak(response):
                violations.append(f"{visitor.name}: {description} shows {leak}")
            shut = route.access.is_per_cluster and cluster != OWN
            if shut and response.status_code not in (403, 404):
                violations.append(f"{visitor.name}: {description} answered {response.status_code}")
    report(violations)


def test_unlimited_visitor_changes_all_of_that(ids: dict[str, dict[str, int]]) -> None:
    """The same requests change what they name when no limit forbids it: the walk above tries what would work."""
    visitor, before = Visitor("admin"), foreign_rows()
    is_changed: dict[str, bool] = {}

    def compare() -> None:
        is_changed[name] = is_changed.get(name, False) or foreign_rows() != before

    for route in _WALKED:
        name = route.name
        if name in _ALERTING:
            values = _values(route, FOREIGN, ids[FOREIGN])
            for body in _bodies(route, FOREIGN, ids[FOREIGN]):
                visitor.send(route, values, body, before_undo=compare)
    assert is_changed == dict.fromkeys(_ALERTING, True)


def test_every_page_that_takes_a_form_is_walked_with_one(ids: dict[str, dict[str, int]]) -> None:
    """A page that is new here needs bodies that try to change what others own."""
    visitor = Visitor("admin")
    for route in _WALKED:
        if not route.path.startswith("/api/") and _takes_forms(visitor, route):
            assert _bodies(route, OWN, ids[OWN]), f"no bodies for {name_of(route)}"
        if "POST" in route.methods:
            assert _bodies(route, OWN, ids[OWN]), f"no bodies for {name_of(route)}"


@pytest.mark.django_db(transaction=True)
async def test_limited_visitor_opens_sockets_of_one_cluster(limited_visitors: list[Visitor]) -> None:
    """Whatever the client then asks for, it gets the fleet of the address."""
    messages = [json.dumps({"type": "resync", "cluster": FOREIGN})]
    violations = []
    for pattern in websocket_urlpatterns:
        for cluster in (OWN, FOREIGN):
            path = "/" + str(pattern.pattern)
            if "<slug:cluster>" not in path and cluster == OWN:
                continue
            path = path.replace("<slug:cluster>", cluster)
            for visitor in limited_visitors:
                is_allowed = visitor.role and cluster == OWN
                expected = [f"hello {OWN}"] * 2 if is_allowed else [str(NOT_ALLOWED)]
                actual = await frames_of(path, visitor.headers, *(messages if is_allowed else ()))
                if actual != expected:
                    violations.append(f"{visitor.name}: {path} answered {actual} instead of {expected}")
    report(violations)


@pytest.fixture
def limited_visitors(socket_layer: None) -> list[Visitor]:
    """One visitor per role, and their cluster."""
    Cluster.objects.create(id=OWN, name=OWN)
    return [Visitor(role, limit=OWN) for role in ("", "viewer", "admin")]


#: Pages whose forms change alerting.
_ALERTING = (
    "channels", "channel", "new-channel", "route", "alert-rules", "alert-rule", "silences", "silence-new",
    "silence-extend",
    "window-new", "window", "window-delete", "incident", "incident-silence", "incident-acknowledge",
)  # fmt: skip

#: Pages and operations without a body that change clusters, for which a limited admin is refused whatever the cluster.
_INSTALLATION_PAGES = ("cluster-new", "cluster-edit", "users", "user")
_INSTALLATION_OPERATIONS = (
    *("/clusters/<cluster>/pause", "/clusters/<cluster>/resume"),
    *("/users", "/users/<username>", "/invitation", "/end-sessions", "/revoke-tokens"),
    "/reset-second-factor",
)


def _visits(
    ids: Mapping[str, Ids], *, with_bodies: bool = False
) -> Iterator[tuple[UrlRoute, str, str, dict[str, str]]]:
    """Yield every route with each cluster and, where it names an object, with the objects of each owner.

    A body names objects too. What is of the own cluster may be changed, and is left out there; where the door of a
    cluster is shut, one owner tells.
    """
    for route in _WALKED:
        has_cluster = "cluster>" in route.path or "{cluster}" in route.path
        for cluster in (OWN, FOREIGN) if has_cluster else (FOREIGN,):
            owners: tuple[str, ...] = (cluster,)
            if with_bodies:
                owners = (
                    (FOREIGN, INSTALLATION) if cluster == OWN or not _is_of_cluster(route) else (FOREIGN,)
                )
            elif cluster == OWN and "<int:" in route.path:
                owners = OWNERS
            for owner in owners:
                yield route, cluster, owner, _values(route, cluster, ids[owner])


def _is_of_cluster(route: UrlRoute) -> bool:
    return route.access is not None and route.access.is_per_cluster


def _values(route: UrlRoute, cluster: str, ids: Ids) -> dict[str, str]:
    parts = (
        ("/incidents/", "incident"),
        ("/maintenance-windows/", "window"),
        ("/channels/", "channel"),
        ("/routes/", "route"),
        ("/alert-rules/", "rule"),
        ("/deliveries/", "delivery"),
        ("/agent-views/", "view"),
        ("", "silence"),
    )
    number = ids[next(kind for part, kind in parts if part in route.path)]
    objects = {parameter: str(ids[kind]) for parameter, kind in _OBJECTS.items()}
    return {**VALUES, **objects, "number": str(number), "cluster": cluster}


def _problem(visitor: Visitor, route: UrlRoute, cluster: str, owner: str, values: Mapping[str, str]) -> str:
    """Return how the answer to a request without a body differs from what the limit allows, or nothing."""
    assert route.access is not None
    response = visitor.send(route, values)
    status = response.status_code
    if leak := _leak(response):
        return f"shows {leak}"
    if not visitor.satisfies(route.access, cluster):
        if route.path == "/":
            # Where a sign-in leads: it goes on to the first cluster that the visitor sees.
            ahead = response.headers.get("Location", "")
            return "" if ahead == f"/c/{OWN}/" else f"answered {status} and leads to {ahead!r}"
        return "" if status == 403 else f"answered {status} instead of 403"
    if owner == FOREIGN and "<int:" in route.path:
        return "" if status in (400, 404, 428) else f"answered {status} instead of 404"
    # What the installation owns may be seen, or its change be refused.
    is_of_installation = (
        owner == INSTALLATION
        or route.name in _INSTALLATION_PAGES
        or route.path.endswith(_INSTALLATION_OPERATIONS)
    )
    # A saved view of the cluster belongs to its owner, who is somebody else here.
    is_of_somebody = route.path.endswith("/agent-views/<int:number>/delete")
    may_be_refused = is_of_installation or is_of_somebody
    expected_statuses = ADMITTED | {302, 403} if may_be_refused else ADMITTED | {302}
    return "" if status in expected_statuses else f"refused with {status}"


def _bodies(route: UrlRoute, owner: str, ids: Ids) -> list[dict[str, Any]]:
    """Return the bodies to post to a route; none where it takes no body."""
    if route.path.startswith("/api/"):
        return _api_bodies(route.path) if "POST" in route.methods else []
    try:
        return _page_bodies(_short(route), owner, ids)
    except KeyError:
        return []


def _short(route: UrlRoute) -> str:
    return route.name.removesuffix("-of-cluster")


def _takes_forms(visitor: Visitor, route: UrlRoute) -> bool:
    return visitor.send(route, VALUES, {}).status_code != 405


def _leak(response: HttpResponseBase) -> str:
    """Return the text of others that a response holds, or nothing."""
    chunks = async_to_sync(_stream)(response) if response.streaming else [getattr(response, "content", b"")]
    text = b"".join(chunks).decode()
    return ", ".join(hidden_text for hidden_text in HIDDEN if hidden_text in text)


async def _stream(response: HttpResponseBase) -> list[bytes]:
    assert isinstance(response, StreamingHttpResponse), "a response that is streamed"
    return [chunk async for chunk in response]
