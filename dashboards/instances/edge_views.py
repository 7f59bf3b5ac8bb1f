"""The page of one gateway or tunnel server. docs/reference/edge-instances.md."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from dashboards.instances import route_words
from dashboards.shared import presenters, record_reader
from dashboards.shared.edge_instances import read_edge_addresses, read_edge_report, read_edge_rows
from dashboards.shared.pages import needs_record
from dashboards.shared.permissions import requires
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary.edge_instances import GatewayDestination, GatewayReport, RouteRule, TunnelServerReport


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule of a gateway on its page."""

    rule: RouteRule
    retry: str
    timeouts: str
    #: Retried attempts by status; empty without retries.
    retry_counts: str
    #: Address, and its share of the calls in words, of each backend.
    backends: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


def rule_rows_of(report: GatewayReport) -> list[RuleRow]:
    """Return the rules of a gateway with their policies in words."""
    return [
        RuleRow(
            rule,
            route_words.describe_retry(rule),
            route_words.describe_timeouts(rule),
            route_words.describe_retry_counts(rule),
            tuple(
                (backend, tuple((address, route_words.format_share(share)) for address, share in shares))
                for backend, shares in rule.shares
            ),
        )
        for rule in report.rules
    ]


def order_destinations(report: GatewayReport) -> list[GatewayDestination]:
    """Return the destinations, those without calls first, then by health."""
    urgency = {"unhealthy": 0, "degraded": 1, "unknown": 2, "healthy": 3}
    return sorted(
        report.destinations,
        key=lambda destination: (
            not destination.is_ejected,
            urgency[destination.health],
            destination.address,
        ),
    )


@requires(Permission.VIEW_FLEET)
@require_safe
@needs_record
def edge_instance(request: HttpRequest, name: str, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show one gateway or tunnel server now; its history is not kept.

    Template `dashboards/edge_instance.html`: `row` (EdgeRow), `gateway` (GatewayReport or None) with `rules` (RuleRow),
    `destinations` and `loaded_at`, `tunnel_server` (TunnelServerReport or None). Template
    `dashboards/instance_missing.html`, with 404: `sentence`.
    """
    now = record_reader.current_time()
    rows = read_edge_rows(cluster, read_edge_addresses(cluster), now)
    row = next((row for row in rows if row.name == name), None)
    if row is None:
        sentence = f"Cluster {cluster} has no gateway or tunnel server {name}."
        return render(
            request, "dashboards/instance_missing.html", {"page": "fleet", "sentence": sentence}, status=404
        )
    report = read_edge_report(cluster, row)
    gateway = report if isinstance(report, GatewayReport) else None
    context = {
        "page": "fleet",
        "row": row,
        "gateway": gateway,
        "rules": [] if gateway is None else rule_rows_of(gateway),
        "destinations": [] if gateway is None else order_destinations(gateway),
        "loaded_at": None if gateway is None else presenters.to_moment_or_none(gateway.loaded_at),
        "tunnel_server": report if isinstance(report, TunnelServerReport) else None,
    }
    return render(request, "dashboards/edge_instance.html", context)
