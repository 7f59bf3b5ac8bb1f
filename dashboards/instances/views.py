"""The page of one auth or proxy. docs/reference/instance.md."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from dashboards.fleet.history import read_instance_state_changes
from dashboards.instances import page, records
from dashboards.instances.day_chart import lane_rows_of
from dashboards.instances.facts import find_forecast_reason, find_state_start
from dashboards.instances.failure_text import forecast_failure
from dashboards.instances.lookup import find_by_id, find_by_name, query_term_of
from dashboards.shared import presenters
from dashboards.shared.capabilities.missing import missing_capabilities_of
from dashboards.shared.edge_instances import read_edge_addresses
from dashboards.shared.instance_states import find_stranding_instances
from dashboards.shared.pages import (
    edge_instance_path_of,
    instance_path_of,
    needs_record,
    url_prefix_of,
)
from dashboards.shared.permissions import requires
from dashboards.shared.rewind import Moment, moment_of, shows_moment
from fleet.changes.operations import drains
from fleet.models.access import Permission, has_permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.moments import to_moment
from fleet.monitoring.last_tunnels import is_responding
from fleet.monitoring.state.tables import summary_of
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceState


@requires(Permission.VIEW_FLEET)
@require_safe
@shows_moment
@needs_record
def instance(request: HttpRequest, instance_id: str, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show one instance by its id, now or at `?at=`; by its name, redirect to the page of its id.

    Template `dashboards/instance.html`: presenters.live_page_context_of, `card` (InstanceCard), `view`, `since` and
    `since_age_ms` of its state, `links` (page.InstanceLinks), `agent_counts`, `forecast` (FailureForecast or None) and
    `forecast_reason` (why there is none, or empty), `heartbeat` (page.InstanceHeartbeat or None), `polls`, `checks`,
    `heartbeat_auth` (InstanceFacts or None), `heartbeat_proxies`, `day` (DayChart), `day_problems`, `state_history`,
    `policies`, `policy_row` and `policies_reason`, `incidents`, `changes`, `can_act`, `can_move`, `is_responding`,
    `has_tunnel_counts`. Template `dashboards/instance_missing.html`, with 404: `sentence`.
    """
    moment = moment_of(request, cluster)
    table = moment.reader.table(cluster, moment.now)
    view = find_by_id(table, instance_id)
    if view is None:
        namesake = find_by_name(table, instance_id)
        if namesake is None:
            if instance_id in read_edge_addresses(cluster):
                return redirect(f"{url_prefix_of(cluster)}{edge_instance_path_of(instance_id)}")
            return _respond_missing(request, cluster, instance_id, moment)
        query = request.META.get("QUERY_STRING", "")
        path = f"{url_prefix_of(cluster)}{instance_path_of(namesake.facts.id)}"
        return redirect(f"{path}?{query}" if query else path)
    context = _context_of(request, cluster, table, view, moment)
    page_context = presenters.live_page_context_of(summary_of(table), moment.now, "fleet")
    return render(request, "dashboards/instance.html", page_context | context)


def _context_of(
    request: HttpRequest, cluster: str, table: FleetTable, view: InstanceView, moment: Moment
) -> dict[str, Any]:
    now, past_at, facts = moment.now, moment.past_at, view.facts
    missing_reasons = missing_capabilities_of(cluster)
    views_by_id = {other_view.facts.id: other_view for other_view in table.instances.values()}
    names = {other_id: other_view.facts.name for other_id, other_view in views_by_id.items()}
    query_term = query_term_of(table, view)
    day = records.read_day(cluster, facts.id, facts.kind, now)
    forecast_reason = find_forecast_reason(table, view, missing_reasons)
    policies = (
        None
        if past_at is not None or Capability.POLICIES in missing_reasons
        else page.policy_cells_of(cluster, facts.id)
    )
    since = find_state_start(cluster, view, now)
    can_act = past_at is None and has_permission(request.user, Permission.ACT_ON_FLEET, cluster)
    heartbeat_auth = views_by_id.get(facts.heartbeat_auth)
    return {
        "card": presenters.instance_card_of(
            view,
            now,
            names,
            is_stranding=facts.index in find_stranding_instances(table),
            is_drain_requested=past_at is None and facts.id in drains.read_requested_ids(cluster),
        ),
        "view": view,
        "is_gone": view.state is InstanceState.GONE,
        "gone_at": presenters.to_moment_or_none(facts.gone_at),
        "gone_age_ms": presenters.age_ms_of(facts.gone_at, now),
        "since": presenters.to_moment_or_none(since),
        "since_age_ms": presenters.age_ms_of(since, now),
        "first_seen_at": records.moment_of_first_sight(records.read_instance_row(cluster, facts.id)),
        "links": page.links_of(view, query_term, past_at),
        "agent_counts": [(state, count) for state, count in page.count_agents_by_state(table, view) if count],
        "forecast": None if forecast_reason else forecast_failure(table, view, query_term),
        "forecast_reason": forecast_reason,
        "heartbeat": page.heartbeat_of(view, now),
        "polls": page.poll_rows_of(view, now),
        "checks": page.check_rows_of(view, now),
        "heartbeat_auth": None if heartbeat_auth is None else heartbeat_auth.facts,
        "heartbeat_proxies": [
            other_view.facts
            for other_view in sorted(table.instances.values(), key=lambda other_view: other_view.facts.index)
            if facts.id
            and other_view.facts.heartbeat_auth == facts.id
            and other_view.facts.name in view.proxies
        ],
        "day": day,
        "day_problems": lane_rows_of(day),
        "state_history": read_instance_state_changes(cluster, {facts.id: ""}, now, until=past_at),
        "policy_row": None if policies is None else policies[0],
        "policies": [] if policies is None else policies[1],
        "policies_reason": missing_reasons.get(Capability.POLICIES, ""),
        "incidents": records.read_incidents(cluster, facts, now) if past_at is None else [],
        "changes": records.read_changes(cluster, facts.id, now) if past_at is None else [],
        "is_responding": is_responding(view),
        "can_act": can_act,
        "can_move": can_act and Capability.RECONNECT_ADVICE not in missing_reasons,
        "has_tunnel_counts": Capability.TUNNELS_BY_AGENT not in missing_reasons,
    }


def _respond_missing(request: HttpRequest, cluster: str, id_or_name: str, moment: Moment) -> HttpResponse:
    row = records.read_instance_row(cluster, id_or_name)
    if row is None:
        sentence = (
            f"Instance {id_or_name} was not found in cluster {cluster}: "
            "Refloat has never seen an instance with this name or ID."
        )
    elif moment.past_at is not None:
        sentence = (
            f"{row.name} was not known at {to_moment(moment.past_at):%Y-%m-%d %H:%M:%S} UTC. "
            f"Refloat first saw it at {row.first_seen_at:%Y-%m-%d %H:%M} UTC."
        )
    else:
        sentence = f"{row.name} is no longer in the fleet, and Refloat has no current data about it."
    context = {"page": "fleet", "sentence": sentence}
    return render(request, "dashboards/instance_missing.html", context, status=404)
