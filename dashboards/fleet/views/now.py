"""Fleet now: agents by state, instances, and the age of the data."""

from __future__ import annotations

import functools

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from dashboards.fleet.failing_channels import read_failing_channels
from dashboards.fleet.timeline.history_rows import read_day_chart
from dashboards.fleet.timeline.trend_rows import read_instance_trends
from dashboards.shared import headlines, presenters
from dashboards.shared.capabilities.missing import missing_capabilities_of
from dashboards.shared.edge_instances import read_edge_rows
from dashboards.shared.instance_states import find_stranding_instances
from dashboards.shared.pages import needs_record, signed_in_user_of
from dashboards.shared.permissions import read_known_clusters, requires
from dashboards.shared.rewind import moment_of, shows_moment
from fleet.changes.operations import drains
from fleet.models.access import Permission, can_write, has_permission
from fleet.models.clusters import DEFAULT_CLUSTER, Cluster
from fleet.monitoring.history.minute_columns import PresentCounts
from fleet.monitoring.state.tables import summary_of
from fleet.monitoring.views import Summary
from fleet.source_plugins.registry import DEFAULT_SOURCE
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.verdicts import State

#: `?part=instances` leaves out the chart.
_PART_PARAMETER, _INSTANCES_PART = "part", "instances"


@requires(Permission.VIEW_FLEET)
@require_safe
@shows_moment
@needs_record
def fleet_now(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show agents by state, auths, proxies and current causes, now or at `?at=`.

    Template `dashboards/fleet.html`: presenters.live_page_context_of, `auths` and `proxies` (InstanceCard), `headline`
    (fleet.alerts.headlines.headline.Headline) and `can_act`, all of one round; `failing_channels` (FailingChannel) of
    now; `chart` (HistoryChart) of the 24 h
    before, or None with `?part=instances`; `cluster_row` (Cluster) if nothing is known of it, else None;
    `can_edit_cluster`; `no_auths_reason`: why the cluster has no auths, empty without one; `has_tunnel_counts`: the
    source reports the tunnels of each agent, so they can be counted; `edge_instances` (EdgeRow) of now.
    """
    moment = moment_of(request, cluster)
    table, now = moment.reader.table(cluster, moment.now), moment.now
    summary = summary_of(table)
    row = Cluster.objects.filter(pk=cluster).first()
    missing_reasons = missing_capabilities_of(cluster, DEFAULT_SOURCE if row is None else row.source)
    is_part = request.GET.get(_PART_PARAMETER) == _INSTANCES_PART
    context = {
        **presenters.live_page_context_of(summary, now, "fleet"),
        **presenters.instance_cards_of(
            tuple(table.instances.values()),
            now,
            read_instance_trends(cluster, now),
            find_stranding_instances(table),
            drains.read_requested_ids(cluster) if moment.past_at is None else frozenset(),
        ),
        # The script requests the instances much more often than the chart.
        "chart": None
        if is_part
        else read_day_chart(
            cluster, now, is_past=moment.past_at is not None, present=_present_counts_of(summary)
        ),
        "headline": headlines.headline_at(moment, cluster),
        "failing_channels": []
        if is_part or moment.past_at is not None
        else read_failing_channels(cluster, now, signed_in_user_of(request)),
        "cluster_row": None if is_part or moment.past_at is not None else _find_idle_cluster(row, summary),
        "can_edit_cluster": can_write(signed_in_user_of(request), Permission.MANAGE_ACCESS, ""),
        "can_act": moment.past_at is None
        and Capability.RECONNECT_ADVICE not in missing_reasons
        and has_permission(request.user, Permission.ACT_ON_FLEET, cluster),
        "has_tunnel_counts": Capability.TUNNELS_BY_AGENT not in missing_reasons,
        # Their polls are not kept.
        "edge_instances": read_edge_rows(cluster, row.edge_instances, now)
        if row is not None and moment.past_at is None
        else [],
    }
    is_without_auths = not context["auths"] and bool(context["proxies"])
    context["no_auths_reason"] = missing_reasons.get(Capability.AGENT_TO_AUTH, "") if is_without_auths else ""
    return render(request, "dashboards/fleet.html", context)


def _find_idle_cluster(row: Cluster | None, summary: Summary) -> Cluster | None:
    """Return the cluster if nothing is known of it: it is paused, has no addresses, or no auth has responded yet."""
    if row is None or row.is_paused:
        return row
    has_data = summary.as_of is not None and not summary.stale
    return row if (has_data and not summary.instance_count) or not (has_data or row.auths) else None


def _present_counts_of(summary: Summary) -> PresentCounts | None:
    """Return the counts of the newest round; None when they are out of date."""
    if summary.as_of is None or summary.stale:
        return None
    counts = summary.counts
    return PresentCounts(summary.as_of, counts[State.STRANDED], counts[State.AT_RISK])


@functools.wraps(fleet_now)
def home(request: HttpRequest) -> HttpResponseBase:
    """Show the default cluster, or redirect a user without access to it to the first cluster with access."""
    try:
        return fleet_now(request)
    except PermissionDenied:
        for cluster in read_known_clusters():
            if has_permission(request.user, Permission.VIEW_FLEET, cluster):
                return redirect("fleet-now-of-cluster", cluster=cluster)
        raise
