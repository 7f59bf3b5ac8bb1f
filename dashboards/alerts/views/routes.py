"""Notification routes. docs/reference/alerts.md."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.alerts.forms.routes import RouteForm
from dashboards.shared import recent_proof
from dashboards.shared.pages import signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import require_write, requires, writable_owners_for
from dashboards.shared.request_actor import signed_in_actor_of
from dashboards.shared.row_ids import parse_row_id
from fleet.alerts import setup_actions
from fleet.alerts.setup.routes import descendant_rows_of
from fleet.models.access import Permission
from fleet.models.alerting import Channel, Route, filter_applicable_to
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary.incidents import Severity


@requires(Permission.CHANGE_CONFIG)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def route(request: HttpRequest, route_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show and change a route (0: a new one), or delete it with its child routes.

    `?parent=` and `?channel=` fill in the form of a new route. Template `dashboards/route.html`: `form`, `route`,
    `has_parent`, `descendant_names` (of child routes), `is_deleting`: the deletion is being confirmed.
    """
    row = (
        get_object_or_404(filter_applicable_to(Route.objects.all(), cluster), pk=route_id)
        if route_id
        else Route()
    )
    if route_id:
        require_write(request, Permission.CHANGE_CONFIG, row.cluster)
    if request.method == "POST":
        recent_proof.require(request)
    user = signed_in_user_of(request)
    list_url = f"{url_prefix_of(cluster)}/alerts/channels/#routes"
    form_action = request.POST.get("do", "")
    if form_action == "delete" and row.pk and "confirm" in request.POST:
        setup_actions.delete_setting(row, signed_in_actor_of(request))
        messages.success(request, f"Route {row.name} was deleted.")
        return redirect(list_url)
    form = RouteForm(
        request.POST if request.method == "POST" and form_action != "delete" else None,
        instance=row,
        initial={} if row.pk else _suggest_values(request, cluster),
        owners=writable_owners_for(user, Permission.CHANGE_CONFIG, cluster),
    )
    if form.is_bound and form.is_valid():
        setup_actions.save_setting(row, form.save, signed_in_actor_of(request))
        messages.success(request, f"Route {row.name} was saved.")
        return redirect(list_url)
    context = {
        "page": "incidents",
        "tab": "channels",
        "form": form,
        "route": row,
        "has_parent": bool(form["parent"].value()),
        "descendant_names": [route.name for route in descendant_rows_of(row)] if row.pk else [],
        "is_deleting": bool(row.pk) and (form_action == "delete" or "delete" in request.GET),
    }
    return render(request, "dashboards/route.html", context)


def _suggest_values(request: HttpRequest, cluster: str) -> dict[str, Any]:
    """Return values of a new route: below the requested route, or below the only root route; with a channel."""
    routes = filter_applicable_to(Route.objects.all(), cluster)
    parent = routes.filter(pk=parse_row_id(request.GET.get("parent", ""))).first()
    roots = list(routes.filter(parent=None)[:2])
    if parent is None and len(roots) == 1:
        parent = roots[0]
    values: dict[str, Any] = {"includes_parent_channels": True, "min_severity": int(Severity.CRITICAL)}
    if parent is not None:
        values |= {"parent": parent.pk}
    channels = filter_applicable_to(Channel.objects.all(), cluster)
    if channel := channels.filter(pk=parse_row_id(request.GET.get("channel", ""))).first():
        # A route of the installation cannot use the channel of a cluster.
        values |= {"channels": [channel.pk], "cluster": channel.cluster}
    return values
