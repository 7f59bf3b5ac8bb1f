"""Saved views of the list of agents: what a view of a page saves, the menu of views, and which parameters are valid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.http import HttpRequest, QueryDict

from dashboards.fleet import agent_query
from dashboards.fleet.agent_list.columns import COLUMNS, ColumnChoice
from dashboards.fleet.agent_list.groups import GROUPINGS
from dashboards.fleet.agent_query import LABEL_PREFIX, SORT_KEYS, QueryError
from dashboards.shared.pages import signed_in_user_of, url_prefix_of
from fleet import saved_views
from fleet.audit import RequestActor
from fleet.models.access import Permission, has_permission
from fleet.models.saved_views import SavedView
from fleet.saved_views import SavedViewError, ViewParameters, parameters_in, read_views

_MAX_QUERY_LENGTH = 2000
_MAX_GROUPING_LENGTH = 200


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
    return _query_string_of(parameters_in(view))


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
            replace(parameters, columns=view.columns and columns) == parameters_in(view),
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


def save_view(
    user: User, cluster: str, name: str, parameters: ViewParameters, actor: RequestActor, *, is_shared: bool
) -> SavedView:
    """Create a view of a user, or replace the one with this name. Raises SavedViewError."""
    return saved_views.save_view(
        user, cluster, name, parameters, actor, require_valid=_require_valid, is_shared=is_shared
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
