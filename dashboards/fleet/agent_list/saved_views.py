"""Saved views of the list of agents: who sees and changes them, and each change with its audit entry.

Everybody who sees the cluster may save private views. Shared views need the permission to act on the fleet. Only the
owner and administrators change and delete a view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.http import HttpRequest, QueryDict
from django.utils import timezone

from dashboards.fleet import agent_query
from dashboards.fleet.agent_list.columns import COLUMNS, ColumnChoice
from dashboards.fleet.agent_list.groups import GROUPINGS
from dashboards.fleet.agent_query import LABEL_PREFIX, SORT_KEYS, QueryError
from dashboards.shared.pages import signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import describe_missing_permission
from fleet.audit import RequestActor, record_outcome
from fleet.models.access import Permission, has_permission
from fleet.models.saved_views import SavedView
from fleet.vocabulary.actions import AuditAction, RefusalError

#: Most views that one user saves in one cluster.
MAX_VIEWS = 100
MAX_NAME_LENGTH = 100
_MAX_QUERY_LENGTH = 2000
_MAX_GROUPING_LENGTH = 200


class SavedViewError(RefusalError, ValueError):
    """A view that cannot be saved; the message says why, as a sentence."""


class SavedViewForbiddenError(SavedViewError):
    """The user may not share, change or delete this view."""


@dataclass(frozen=True, slots=True)
class ViewParameters:
    """What a view saves: the parameters of the page, empty where it has its default."""

    q: str = ""
    grouping: str = ""
    sort: str = ""
    columns: str = ""


def read_views(user: User, cluster: str) -> QuerySet[SavedView]:
    """Return the views that a user sees in a cluster: the own ones and the shared ones, by name."""
    return SavedView.objects.filter(cluster_id=cluster).filter(Q(owner=user) | Q(is_shared=True))


def find_view(user: User, cluster: str, view_id: int) -> SavedView | None:
    """Return a view that the user sees; None if there is none."""
    return read_views(user, cluster).filter(pk=view_id).first()


def parameters_of(params: QueryDict) -> ViewParameters:
    """Return what a view of the page at this address saves."""
    return ViewParameters(
        " ".join(params.getlist("q")).strip(),
        params.get("group", ""),
        params.get("sort", ""),
        ",".join(params.getlist("columns")),
    )


def query_string_of(view: SavedView) -> str:
    """Return the query string of the page that shows a view."""
    return _query_string_of(_parameters_in(view))


def _parameters_in(view: SavedView) -> ViewParameters:
    return ViewParameters(view.q, view.grouping, view.sort, view.columns)


def _query_string_of(parameters: ViewParameters) -> str:
    pairs = (
        ("q", parameters.q),
        ("group", parameters.grouping),
        ("sort", parameters.sort),
        ("columns", parameters.columns),
    )
    return urlencode([(name, text) for name, text in pairs if text], safe=":,")


def path_of(view: SavedView) -> str:
    """Return the path of the page that shows a view."""
    query = query_string_of(view)
    return f"{url_prefix_of(view.cluster_id)}/agents/{'?' + query if query else ''}"


def menu_context_of(
    request: HttpRequest, cluster: str, filter_text: str, choice: ColumnChoice
) -> dict[str, Any]:
    """Return the context of the menu of views: `saved_view_links` (view, query string, whether the page shows it),
    `current_view` (or None), `view_query` (what a view of this page saves), `can_share`.
    """
    user = signed_in_user_of(request)
    columns = choice.text if choice.is_chosen else ""
    parameters = ViewParameters(
        filter_text, request.GET.get("group", ""), request.GET.get("sort", ""), columns
    )
    # A view without columns has those of the browser.
    matches = [
        (
            view,
            query_string_of(view),
            replace(parameters, columns=view.columns and columns) == _parameters_in(view),
        )
        for view in read_views(user, cluster)
    ]
    is_default = parameters == ViewParameters(columns=columns)
    shown_views = [view for view, _, is_shown in matches if is_shown and not is_default]
    return {
        "saved_view_links": matches,
        "current_view": shown_views[0] if shown_views else None,
        "view_query": _query_string_of(parameters),
        "can_share": has_permission(user, Permission.ACT_ON_FLEET, cluster),
    }


def can_change(user: User, view: SavedView) -> bool:
    """Return whether a user may rename, share and delete a view: the owner, and administrators."""
    return view.owner_id == user.pk or has_permission(user, Permission.MANAGE_ACCESS, view.cluster_id)


def save_view(
    user: User, cluster: str, name: str, parameters: ViewParameters, actor: RequestActor, *, is_shared: bool
) -> SavedView:
    """Create a view of a user, or replace the one with this name. Raises SavedViewError."""
    view = SavedView.objects.filter(cluster_id=cluster, owner=user, name=name.strip()).first()
    action = AuditAction.SAVED_VIEW_CREATE if view is None else AuditAction.SAVED_VIEW_UPDATE
    attempt = actor.create_attempt(action, cluster, name.strip(), before=_audit_values_of(view))
    with record_outcome(attempt):
        if view is None and SavedView.objects.filter(cluster_id=cluster, owner=user).count() >= MAX_VIEWS:
            raise SavedViewError(
                f"You have {MAX_VIEWS} views in this cluster, and no more are allowed. Delete one first."
            )
        _require_valid(parameters)
        view = view or SavedView(cluster_id=cluster, owner=user)
        view.q, view.grouping = parameters.q, parameters.grouping
        view.sort, view.columns = parameters.sort, parameters.columns
        _write(user, view, name, is_shared=is_shared)
        attempt.after = _audit_values_of(view)
    return view


def change_view(
    user: User,
    view: SavedView,
    actor: RequestActor,
    *,
    name: str | None = None,
    is_shared: bool | None = None,
) -> None:
    """Rename a view, share it, or make it private; None leaves as it is. Raises SavedViewError."""
    attempt = actor.create_attempt(
        AuditAction.SAVED_VIEW_UPDATE, view.cluster_id, view.name, before=_audit_values_of(view)
    )
    with record_outcome(attempt):
        _require_change(user, view)
        _write(
            user,
            view,
            view.name if name is None else name,
            is_shared=view.is_shared if is_shared is None else is_shared,
        )
        attempt.after = _audit_values_of(view)


def delete_view(user: User, view: SavedView, actor: RequestActor) -> None:
    """Delete a view. Raises SavedViewForbiddenError."""
    with record_outcome(
        actor.create_attempt(
            AuditAction.SAVED_VIEW_DELETE, view.cluster_id, view.name, before=_audit_values_of(view)
        )
    ):
        _require_change(user, view)
        view.delete()


def _write(user: User, view: SavedView, name: str, *, is_shared: bool) -> None:
    name = name.replace("\0", "").strip()
    if not name:
        raise SavedViewError("Enter a name for the view.")
    if len(name) > MAX_NAME_LENGTH:
        raise SavedViewError(
            f"The name has {len(name)} characters, and at most {MAX_NAME_LENGTH} are allowed. Shorten the name."
        )
    same_named_views = SavedView.objects.filter(cluster_id=view.cluster_id, owner_id=view.owner_id, name=name)
    if same_named_views.exclude(pk=view.pk).exists():
        raise SavedViewError(f"There is a view {name!r} already. Choose another name.")
    if is_shared and not has_permission(user, Permission.ACT_ON_FLEET, view.cluster_id):
        raise SavedViewForbiddenError(
            describe_missing_permission(user, Permission.ACT_ON_FLEET, view.cluster_id)
        )
    view.name, view.is_shared, view.updated_at = name, is_shared, timezone.now()
    view.save()


def _require_change(user: User, view: SavedView) -> None:
    if not can_change(user, view):
        raise SavedViewForbiddenError(
            f"Not allowed: only {view.owner.get_username()} and administrators can change this view."
        )


def _require_valid(parameters: ViewParameters) -> None:
    """Raise SavedViewError for parameters that the page would not accept."""
    if len(parameters.q) > _MAX_QUERY_LENGTH or "\0" in "".join((parameters.q, parameters.grouping)):
        raise SavedViewError(
            f"The filter is longer than {_MAX_QUERY_LENGTH:,} characters. Shorten the filter."
        )
    try:
        agent_query.parse(parameters.q)
    except QueryError as error:
        raise SavedViewError(str(error)) from None
    grouping = parameters.grouping
    is_label = grouping.startswith(LABEL_PREFIX) and grouping != LABEL_PREFIX
    if grouping and (len(grouping) > _MAX_GROUPING_LENGTH or (grouping not in GROUPINGS and not is_label)):
        raise SavedViewError(f"Unknown grouping. Available groupings: {', '.join(GROUPINGS)}, label.KEY.")
    if parameters.sort.removeprefix("-") not in {"", *SORT_KEYS}:
        raise SavedViewError(f"Unknown sort key. Available keys: {', '.join(SORT_KEYS)}.")
    slugs = {slug for slug in parameters.columns.split(",") if slug}
    if not slugs <= {"none", *(column.slug for column in COLUMNS)}:
        raise SavedViewError(
            f"Unknown column. Available columns: {', '.join(column.slug for column in COLUMNS)}, none."
        )


def _audit_values_of(view: SavedView | None) -> Mapping[str, Any] | None:
    if view is None:
        return None
    return {
        "name": view.name,
        "is_shared": view.is_shared,
        "owner": view.owner.get_username(),
        "q": view.q,
        "group": view.grouping,
        "sort": view.sort,
        "columns": view.columns,
    }
