"""Notification routes. docs/reference/alerts.md."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.alerts.forms.routes import RouteForm
from dashboards.shared import recent_proof
from dashboards.shared.pages import signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import require_write, requires, writable_owners_for
from dashboards.shared.request_actor import signed_in_actor_of
from fleet.alerts import setup_actions
from fleet.models.access import (
    Permission,
)
from fleet.models.alerting import Route, filter_applicable_to
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary.incidents import Severity


@requires(Permission.CHANGE_CONFIG)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def route(request: HttpRequest, route_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show and change a route (0: a new one), or delete it with its child routes.

    Template `dashboards/route.html`: `form`, `route`, `descendant_names` (of child routes), `is_deleting`: the deletion
    is being confirmed.
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
    list_url = f"{url_prefix_of(cluster)}/alerts/channels/"
    form_action = request.POST.get("do", "")
    if form_action == "delete" and row.pk and "confirm" in request.POST:
        setup_actions.delete_setting(row, signed_in_actor_of(request))
        return redirect(list_url)
    form = RouteForm(
        request.POST if request.method == "POST" and form_action != "delete" else None,
        instance=row,
        owners=writable_owners_for(user, Permission.CHANGE_CONFIG, cluster),
    )
    if form.is_bound and form.is_valid():
        setup_actions.save_setting(row, form.save, signed_in_actor_of(request))
        return redirect(list_url)
    context = {
        "page": "incidents",
        "tab": "channels",
        "form": form,
        "route": row,
        "descendant_names": _descendant_names_of(row) if row.pk else [],
        "is_deleting": bool(row.pk) and (form_action == "delete" or "delete" in request.GET),
    }
    return render(request, "dashboards/route.html", context)


def route_lines_of(cluster: str, writable_owners: Collection[str]) -> list[dict[str, Any]]:
    """Return the routes of a cluster with their depth in the tree: `depth`, `row`, `texts`, `can_change`."""
    rows = list(filter_applicable_to(Route.objects.prefetch_related("channels", "escalate_to"), cluster))
    lines: list[dict[str, Any]] = []

    def append_children(parent: int | None, depth: int) -> None:
        for row in rows:
            if row.parent_id == parent:
                line = {"depth": depth, "row": row, "texts": _describe_route(row)}
                lines.append(line | {"can_change": row.cluster in writable_owners})
                append_children(row.pk, depth + 1)

    append_children(None, 0)
    return lines


def _describe_route(row: Route) -> dict[str, str]:
    conditions = [f"severity {Severity(row.min_severity).slug} or higher"]
    conditions += [row.matchers] if row.matchers else []
    conditions += [f"cluster {row.cluster}"] if row.cluster else []
    options = []
    if row.escalate_after and row.escalate_to.all():
        escalation_names = ", ".join(channel_row.name for channel_row in row.escalate_to.all())
        options.append(
            f"escalates to {escalation_names} after {row.escalate_after / 60:g} min without acknowledgement"
        )
    if row.quiet_from is not None and row.quiet_until is not None:
        options.append(
            f"quiet hours {row.quiet_from:%H:%M} to {row.quiet_until:%H:%M} {row.quiet_zone} (not for critical)"
        )
    if row.continue_matching:
        options.append("continues with the next routes")
    names = ", ".join(channel_row.name for channel_row in row.channels.all())
    return {"conditions": ", ".join(conditions), "channels": names, "options": "; ".join(options)}


def _descendant_names_of(row: Route) -> list[str]:
    """Return the names of all child routes of a route, at any depth."""
    children = list(Route.objects.filter(parent=row))
    return [name for child in children for name in (child.name, *_descendant_names_of(child))]
