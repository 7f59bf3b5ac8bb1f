"""API routes of gateways and tunnel servers. docs/reference/edge-instances.md, "API"."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Router
from ninja.errors import HttpError

from dashboards.clusters.cluster_lookup import require_row
from dashboards.fleet.api import schemas
from dashboards.instances import route_words
from dashboards.shared import record_reader
from dashboards.shared.api import change_responses
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.parameters import Schema
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.edge_instances import EdgeRow, read_edge_report, read_edge_rows
from dashboards.shared.presenters import to_moment_or_none
from fleet.models.access import Permission
from fleet.vocabulary.edge_instances import GatewayReport, RouteRule, TunnelServerReport

router = Router()
per_cluster = PerCluster(router)
_VIEW = ApiAccess(Permission.VIEW_FLEET)
_PROBLEMS = {frozenset({401, 403, 404, 503}): schemas.Problem}


class EdgeInstanceItem(Schema):
    """A gateway or tunnel server."""

    name: str
    """Its name in the cluster."""
    address: str
    """host:port of its diag port."""
    kind: str
    """`gateway` or `tunnel-server`; empty until it reported something."""
    state: str
    """`ok`, `unhealthy`, `silent` (not responding) or `unknown`."""
    label: str
    """The state in words: `not responding`."""
    explanation: str
    """What is wrong, as a sentence; empty if nothing is."""
    summary: str
    """What it reported last: `3 rules, 4 destinations`; empty before a report."""
    polled_at: datetime | None
    """End of the last poll; null before the first."""
    answered_at: datetime | None
    """End of the last poll that it responded to; null without one."""


class RouteBackendItem(Schema):
    """A backend of a rule."""

    backend: str
    """`name:port` of the backendRef."""
    shares: dict[str, float]
    """Share of the calls of the rule, 0 to 1, by address."""


class RouteRuleItem(Schema):
    """A rule of a gateway."""

    name: str
    """Name of the route, and the number of the rule in it: `foo-route/0`."""
    hostnames: list[str]
    """Hosts that it applies to; empty: all."""
    matches: list[str]
    """`service/method` that it applies to, with `*` for all; empty: all."""
    backends: list[RouteBackendItem]
    """Its backends."""
    retry: str
    """Its retry policy as a sentence."""
    timeouts: str
    """Its timeouts as a sentence."""
    call_count: int
    """Calls that ended since the gateway started."""
    retry_counts: dict[str, int]
    """Retried attempts since the gateway started, by their status."""


class GatewayDestinationItem(Schema):
    """An address that a gateway sends calls to."""

    address: str
    """host:port."""
    backends: list[str]
    """`name:port` of its backends."""
    health: str
    """`healthy`, `degraded`, `unhealthy` or `unknown`."""
    reason: str
    """Why it has this health."""
    error: str
    """Error of the last probe; empty without one."""
    is_ejected: bool
    """Whether no rule gives it calls."""
    is_draining: bool
    """Whether it asks for no new calls."""
    connection_count: int
    """Open connections of the gateway to it."""


class GatewayItem(Schema):
    """What a gateway reported last."""

    routes_file: str
    """Path of its routes file."""
    loaded_at: datetime | None
    """When it loaded the current rules."""
    problems: list[str]
    """Errors of the routes file; meanwhile the gateway keeps the previous rules."""
    unresolved_backends: list[str]
    """Backends without an address."""
    open_call_count: int
    """Calls in progress."""
    rules: list[RouteRuleItem]
    """Its rules, at most 1,000."""
    destinations: list[GatewayDestinationItem]
    """Its destinations, at most 1,000."""


class TunnelTargetItem(Schema):
    """A target of a tunnel server."""

    name: str
    """`NAME` or `NAME:TYPE`."""
    is_registered: bool
    """Whether a client has registered it."""
    client: str
    """Name of that client; empty without one."""
    service: str
    """host:port of its service, if the tunnel server itself serves it."""
    forward: str
    """host:port of the local port that leads to it; empty without one."""
    session_count: int
    """Open sessions."""


class TunnelServerItem(Schema):
    """What a tunnel server reported last."""

    client_count: int
    """Connected clients."""
    wires: list[str]
    """Versions of the protocol."""
    targets: list[TunnelTargetItem]
    """Its targets, at most 1,000."""


class EdgeInstancesResponse(Schema):
    """Gateways and tunnel servers of a cluster."""

    cluster: str
    """Id of the cluster."""
    edge_instances: list[EdgeInstanceItem]
    """Its gateways and tunnel servers, by name."""


class EdgeInstanceResponse(Schema):
    """A gateway or tunnel server with what it reported last."""

    cluster: str
    """Id of the cluster."""
    edge_instance: EdgeInstanceItem
    """The instance, as in the list."""
    gateway: GatewayItem | None
    """What it reported last; null if it is no gateway, or has not reported anything."""
    tunnel_server: TunnelServerItem | None
    """What it reported last; null if it is no tunnel server, or has not reported anything."""


@per_cluster.get("/edge-instances", auth=_VIEW, response={200: EdgeInstancesResponse, **_PROBLEMS})
def list_edge_instances(request: HttpRequest, cluster: str) -> Any:
    """List gateways and tunnel servers.

    The cluster names them: `edge_instances` of `POST /clusters/{cluster}`.
    """
    rows = _read_rows(cluster)
    return EdgeInstancesResponse(cluster=cluster, edge_instances=[_item_of(row) for row in rows])


@per_cluster.get("/edge-instances/{name}", auth=_VIEW, response={200: EdgeInstanceResponse, **_PROBLEMS})
def get_edge_instance(request: HttpRequest, cluster: str, name: str) -> Any:
    """Get a gateway or tunnel server.

    The response has its state, and what it reported last: routes and destinations, or targets and sessions.
    """
    row = next((row for row in _read_rows(cluster) if row.name == name), None)
    if row is None:
        raise HttpError(404, change_responses.describe_unknown_id("Gateway or tunnel server", name, cluster))
    report = read_edge_report(cluster, row)
    return EdgeInstanceResponse(
        cluster=cluster,
        edge_instance=_item_of(row),
        gateway=_gateway_of(report) if isinstance(report, GatewayReport) else None,
        tunnel_server=_tunnel_server_of(report) if isinstance(report, TunnelServerReport) else None,
    )


def _read_rows(cluster: str) -> list[EdgeRow]:
    return read_edge_rows(cluster, require_row(cluster).edge_instances, record_reader.current_time())


def _item_of(row: EdgeRow) -> EdgeInstanceItem:
    return EdgeInstanceItem(
        name=row.name,
        address=row.address,
        kind="" if row.kind is None else row.kind.value,
        state=row.state.slug,
        label=row.state.label,
        explanation=row.sentence,
        summary=row.summary,
        polled_at=row.polled_at,
        answered_at=row.answered_at,
    )


def _gateway_of(report: GatewayReport) -> GatewayItem:
    return GatewayItem(
        routes_file=report.routes_file,
        loaded_at=to_moment_or_none(report.loaded_at),
        problems=list(report.problems),
        unresolved_backends=list(report.unresolved_backends),
        open_call_count=report.open_call_count,
        rules=[_rule_of(rule) for rule in report.rules],
        destinations=[
            GatewayDestinationItem(
                address=destination.address,
                backends=list(destination.backends),
                health=destination.health.value,
                reason=destination.reason,
                error=destination.error,
                is_ejected=destination.is_ejected,
                is_draining=destination.is_draining,
                connection_count=destination.connection_count,
            )
            for destination in report.destinations
        ],
    )


def _rule_of(rule: RouteRule) -> RouteRuleItem:
    return RouteRuleItem(
        name=rule.name,
        hostnames=list(rule.hostnames),
        matches=list(rule.matches),
        backends=[RouteBackendItem(backend=backend, shares=dict(shares)) for backend, shares in rule.shares],
        retry=route_words.describe_retry(rule),
        timeouts=route_words.describe_timeouts(rule),
        call_count=rule.call_count,
        retry_counts=dict(rule.retry_counts),
    )


def _tunnel_server_of(report: TunnelServerReport) -> TunnelServerItem:
    return TunnelServerItem(
        client_count=report.client_count,
        wires=list(report.wires),
        targets=[
            TunnelTargetItem(
                name=target.name,
                is_registered=target.is_registered,
                client=target.client,
                service=target.service,
                forward=target.forward,
                session_count=target.session_count,
            )
            for target in report.targets
        ],
    )
