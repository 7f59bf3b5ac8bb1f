"""Fleet now: agents by state, instances, and the age of the data."""

from __future__ import annotations

import functools

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from dashboards.fleet.fleet_chart import PEAK_PARAMETER
from dashboards.fleet.fleet_chart_rows import read_chart, read_instance_trends
from dashboards.shared import headlines, presenters, record_reader
from dashboards.shared.pages import needs_record
from dashboards.shared.permissions import read_known_clusters, requires
from dashboards.shared.rewind import add_at, moment_of, parse_at, shows_moment
from fleet.models.access import Permission, has_permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.monitoring.history.minutes import find_peak_time
from fleet.monitoring.state.tables import summary_of

#: `?part=instances` leaves out the chart.
_PART_PARAMETER, _INSTANCES_PART = "part", "instances"


@requires(Permission.VIEW_FLEET)
@require_safe
@shows_moment
@needs_record
def fleet_now(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show agents by state, auths, proxies and current causes, now or at `?at=`.

    Template `dashboards/fleet.html`: presenters.live_page_context_of, `auths` and `proxies` (InstanceCard), `headline`
    (fleet.alerts.headlines.headline.Headline) and `can_act`, all of one round; `chart` (FleetChart) of the 24 h
    before, or None with `?part=instances`. `?peak_of=` with the start of a minute redirects to the moment of that
    minute in which most agents were stranded.
    """
    if PEAK_PARAMETER in request.GET:
        return redirect(f"{request.path}{_peak_query_of(request.GET[PEAK_PARAMETER], cluster)}")
    moment = moment_of(request, cluster)
    table, now = moment.reader.table(cluster, moment.now), moment.now
    context = {
        **presenters.live_page_context_of(summary_of(table), now, "fleet"),
        **presenters.instance_cards_of(
            tuple(table.instances.values()), now, read_instance_trends(cluster, now)
        ),
        # The script requests the instances much more often than the chart.
        "chart": None
        if request.GET.get(_PART_PARAMETER) == _INSTANCES_PART
        else read_chart(cluster, now, is_past=moment.past_at is not None),
        "headline": headlines.headline_at(moment, cluster),
        "can_act": moment.past_at is None and has_permission(request.user, Permission.ACT_ON_FLEET, cluster),
    }
    return render(request, "dashboards/fleet.html", context)


def _peak_query_of(minute_text: str, cluster: str) -> str:
    """Return `?at=` of the peak in the minute that begins then; empty for no minute. Raises MomentError."""
    now = record_reader.current_time()
    start = parse_at(minute_text, now)
    if start is None:
        return ""
    peak_time = find_peak_time(cluster, start)
    return add_at("", start if peak_time is None else min(peak_time, now))


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
