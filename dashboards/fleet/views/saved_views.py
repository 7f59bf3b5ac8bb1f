"""Saved views of the list of agents: the page where they are renamed, shared and deleted, and saving one."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.fleet.agent_list import saved_views
from dashboards.shared.pages import signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import requires
from dashboards.shared.request_actor import signed_in_actor_of
from dashboards.shared.row_ids import parse_row_id
from fleet import saved_views as stored_views
from fleet.models.access import Permission, has_permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.saved_views import SavedViewError


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def agent_views(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the saved views, or (POST) save, change or delete one.

    `do`: `save` with `name`, `is_shared` and `parameters` (query string of the list), `change` or `delete` with `id`.
    Template `dashboards/saved_views.html`: `rows` (SavedView, query string, whether the user may change it),
    `can_share`, `error` (a sentence, or empty).
    """
    user = signed_in_user_of(request)
    error = ""
    if request.method == "POST":
        try:
            return redirect(f"{url_prefix_of(cluster)}/{_act(request, cluster)}")
        except SavedViewError as refusal:
            error = str(refusal)
    context = {
        "page": "agents",
        "rows": [
            (view, saved_views.query_string_of(view), stored_views.can_change(user, view))
            for view in stored_views.read_views(user, cluster).select_related("owner")
        ],
        "can_share": has_permission(user, Permission.ACT_ON_FLEET, cluster),
        "error": error,
    }
    return render(request, "dashboards/saved_views.html", context, status=400 if error else 200)


def _act(request: HttpRequest, cluster: str) -> str:
    """Carry out the action of a form and return the path to go on with. Raises SavedViewError."""
    user, actor = signed_in_user_of(request), signed_in_actor_of(request)
    name, is_shared = request.POST.get("name", ""), request.POST.get("is_shared") == "on"
    if request.POST.get("do") == "save":
        parameters = saved_views.parameters_of(QueryDict(request.POST.get("parameters", "")))
        view = saved_views.save_view(user, cluster, name, parameters, actor, is_shared=is_shared)
        messages.success(request, f"The view {view.name} was saved.")
        return f"agents/?{saved_views.query_string_of(view)}"
    stored_view = stored_views.find_view(user, cluster, parse_row_id(request.POST.get("id", "")))
    if stored_view is None:
        raise SavedViewError("This view was not found. Somebody may have deleted it.")
    if request.POST.get("do") == "delete":
        name = stored_view.name
        stored_views.delete_view(user, stored_view, actor)
        messages.success(request, f"The view {name} was deleted.")
    else:
        stored_views.change_view(user, stored_view, actor, name=name, is_shared=is_shared)
        messages.success(request, f"The view {stored_view.name} was changed.")
    return "agent-views/"
