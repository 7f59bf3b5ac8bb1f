"""API routes of saved views of the list of agents. docs/reference/api.md, "Saved views"."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router
from ninja.errors import HttpError
from pydantic import Field

from dashboards.fleet.agent_list import saved_views
from dashboards.shared.api.access import ApiAccess, describe_missing_scope
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    caller_of,
    request_actor_of,
    require_cluster,
)
from dashboards.shared.api.parameters import RequestBody, Schema
from dashboards.shared.api.per_cluster import PerCluster
from fleet import saved_views as stored_views
from fleet.models.access import Permission
from fleet.models.saved_views import SavedView
from fleet.saved_views import SavedViewError, SavedViewForbiddenError, ViewParameters

router = Router()
per_cluster = PerCluster(router)
_VIEW = ApiAccess(Permission.VIEW_FLEET)
#: A token that may only read changes nothing. On the page, viewers save private views too.
_ACT = ApiAccess(Permission.ACT_ON_FLEET)
#: Ids in a path; larger numbers are in no database.
_MAX_ID = 2**63 - 1


class SavedViewItem(Schema):
    """A saved view of the list of agents."""

    id: int
    """Number of the view."""
    name: str
    """Name of the view."""
    owner: str
    """User who saved the view."""
    is_shared: bool
    """Whether everybody who sees the cluster sees the view."""
    q: str
    """Filter of the view."""
    group: str
    """Grouping of the view: `cause`; empty: none."""
    sort: str
    """Sort key of the view."""
    columns: str
    """Columns of the view, separated by commas; empty: the default columns."""
    path: str
    """Path of the page that shows the view."""
    updated_at: datetime
    """When the view was saved or changed."""


class SavedViewsResponse(Schema):
    """The saved views that the caller sees in a cluster."""

    cluster: str
    """Id of the cluster."""
    views: list[SavedViewItem]
    """The views of the caller and the shared ones, by name."""


class SaveViewRequest(RequestBody):
    """A view to save; a view of the caller with the same name is replaced."""

    name: Annotated[str, Field(max_length=300)]
    """Name of the view, at most 100 characters."""
    q: Annotated[str, Field(max_length=4000)] = ""
    """Filter in the syntax of the Agents page."""
    group: Annotated[str, Field(max_length=400)] = ""
    """Grouping: `cause`, `state`, `proxy`, `auth`, `version` or `label.KEY`; empty: none."""
    sort: Annotated[str, Field(max_length=100)] = ""
    """Sort key."""
    columns: Annotated[str, Field(max_length=400)] = ""
    """Columns, separated by commas."""
    is_shared: bool = False
    """Share the view with everybody who sees the cluster."""


class ChangeViewRequest(RequestBody):
    """New values of a view; what is missing stays as it is."""

    name: Annotated[str, Field(max_length=300)] | None = None
    """New name."""
    is_shared: bool | None = None
    """Share the view, or make it private."""


@per_cluster.get("/agent-views", auth=_VIEW, response={200: SavedViewsResponse, **REFUSAL_RESPONSES})
def list_saved_views(request: HttpRequest, cluster: str) -> Any:
    """List saved views of the list of agents.

    The list has the views of the caller and the shared ones.
    """
    views = stored_views.read_views(caller_of(request), require_cluster(cluster)).select_related("owner")
    return {"cluster": cluster, "views": [_item_of(view) for view in views]}


@per_cluster.post("/agent-views", auth=_ACT, response={200: SavedViewItem, **REFUSAL_RESPONSES})
def save_view(request: HttpRequest, cluster: str, body: SaveViewRequest) -> Any:
    """Save a view of the list of agents.

    A view of the caller with the same name is replaced.
    """
    parameters = ViewParameters(body.q.strip(), body.group, body.sort, body.columns)
    try:
        view = saved_views.save_view(
            caller_of(request),
            require_cluster(cluster),
            body.name,
            parameters,
            request_actor_of(request),
            is_shared=body.is_shared,
        )
    except SavedViewError as error:
        raise _refusal_of(error) from error
    return _item_of(view)


@per_cluster.post("/agent-views/{int:number}", auth=_ACT, response={200: SavedViewItem, **REFUSAL_RESPONSES})
def change_view(request: HttpRequest, cluster: str, number: int, body: ChangeViewRequest) -> Any:
    """Rename a saved view, share it, or make it private.

    Only its owner and administrators may.
    """
    view = _require_own_view(request, cluster, number)
    try:
        stored_views.change_view(
            caller_of(request), view, request_actor_of(request), name=body.name, is_shared=body.is_shared
        )
    except SavedViewError as error:
        raise _refusal_of(error) from error
    return _item_of(view)


@per_cluster.post(
    "/agent-views/{int:number}/delete", auth=_ACT, response={200: SavedViewItem, **REFUSAL_RESPONSES}
)
def delete_view(request: HttpRequest, cluster: str, number: int) -> Any:
    """Delete a saved view.

    Only its owner and administrators may. The response has the deleted view.
    """
    view = _require_own_view(request, cluster, number)
    deleted_item = _item_of(view)
    try:
        stored_views.delete_view(caller_of(request), view, request_actor_of(request))
    except SavedViewError as error:
        raise _refusal_of(error) from error
    return deleted_item


def _require_own_view(request: HttpRequest, cluster: str, number: int) -> SavedView:
    """Return a view that the caller sees; one of somebody else needs a token for it. Raises HttpError 403, 404."""
    view = _require_view(request, cluster, number)
    token = getattr(request, "refloat_token", None)
    if token is not None and view.owner_id != token.user_id and not token.allows(Permission.MANAGE_ACCESS):
        raise HttpError(403, describe_missing_scope(token, Permission.MANAGE_ACCESS))
    return view


def _require_view(request: HttpRequest, cluster: str, number: int) -> SavedView:
    """Return a view that the caller sees. Raises HttpError 404."""
    view = None
    if number <= _MAX_ID:
        view = stored_views.find_view(caller_of(request), require_cluster(cluster), number)
    if view is None:
        raise HttpError(404, f"Saved view {number} was not found in cluster {cluster}.")
    return view


def _refusal_of(error: SavedViewError) -> HttpError:
    return HttpError(403 if isinstance(error, SavedViewForbiddenError) else 400, str(error))


def _item_of(view: SavedView) -> SavedViewItem:
    return SavedViewItem(
        id=view.pk,
        name=view.name,
        owner=view.owner.get_username(),
        is_shared=view.is_shared,
        q=view.q,
        group=view.grouping,
        sort=view.sort,
        columns=view.columns,
        path=saved_views.path_of(view),
        updated_at=view.updated_at,
    )
