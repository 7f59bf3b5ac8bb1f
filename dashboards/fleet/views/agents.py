"""The list of agents, as page and CSV, and the page of one agent with the evidence for its state."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

import numpy as np
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    JsonResponse,
    QueryDict,
    StreamingHttpResponse,
)
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from dashboards.fleet import agent_csv, agent_json, agent_query
from dashboards.fleet.agent_groups import LABEL_PREFIX, GroupingError, label_keys_of
from dashboards.fleet.agent_history import read_agent_changes
from dashboards.fleet.agent_list import filters as list_filters
from dashboards.fleet.agent_list import saved_views, typeahead
from dashboards.fleet.agent_list.columns import (
    COLUMNS,
    COOKIE,
    COOKIE_SECONDS,
    KEEP_PARAMETER,
    PARAMETER,
    choose_columns,
)
from dashboards.fleet.agent_list.filters import ListFilters, read_filters, read_list_query
from dashboards.fleet.agent_list.groups import GROUPINGS, MAX_GROUPS, group_agents
from dashboards.fleet.agent_paths import find_agent_paths
from dashboards.fleet.agent_query import AgentQuery, Page, QueryError
from dashboards.fleet.agent_report import present_agent_report
from dashboards.fleet.retire import retirement_of
from dashboards.fleet.streaming import iterate_in_thread
from dashboards.fleet.timeline.agent_strip import read_agent_strip
from dashboards.shared import presenters
from dashboards.shared.capabilities.missing import missing_capabilities_of
from dashboards.shared.map_links import map_url_of
from dashboards.shared.pages import needs_record, url_prefix_of
from dashboards.shared.permissions import requires
from dashboards.shared.presenters import Counts
from dashboards.shared.rewind import Moment, moment_of, shows_moment
from fleet.models.access import Permission, has_permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.monitoring.views import AgentView, FleetTable
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.verdicts import State

#: Maximum number of changes on the page of an agent.
_CHANGE_LIMIT = 50
#: Most keys of labels that the page offers to group by.
_MAX_LABEL_GROUPINGS = 6
#: Longest text that is being typed, characters: a longer one has no suggestions.
_MAX_TYPED_LENGTH = 200


@requires(Permission.VIEW_FLEET)
@require_safe
@shows_moment
@needs_record
def agents(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show one page of the list of agents: `?q=` (agent_query), `?sort=`, `?after=` (cursor), `?at=` (a past moment);
    and, of older links, `?state=` (repeatable), `?proxy=` and `?auth=`.

    Template `dashboards/agents.html`: presenters.live_page_context_of, `rows` (AgentRow), `filters` (ListFilters),
    `chips` (FilterChip), `state_links` (state, number, query string, whether it is a filter), `total_count`,
    `next_url`, `first_url` (either may be empty); with `?group=` (groups.group_agents) `group_rows` (ListedGroup and
    query string of its agents; None without a grouping) and `hidden_group_count`; `group_links` (name, query string,
    whether it is shown), `error` (a sentence if a filter, order or cursor is invalid, and `field_error` if it is a
    filter), `column_heads` (column headers by sort key), `column_choice` (ColumnChoice), `column_options` (AgentColumn,
    whether it is shown, why it is hidden by default), `sort`, `list_query` (query string of the first page),
    `clear_query` (the same without filters), `csv_url`, `json_url`, `suggestions_url`, `can_select` (the user may act
    on agents), `map_url`, saved_views.menu_context_of.
    """
    moment = moment_of(request, cluster)
    reader, now = moment.reader, moment.now
    table = reader.table(cluster, now)
    filters = read_filters(request.GET)
    page, error = _select_page(table, filters, request.GET)
    group_rows, hidden_group_count = None, 0
    if grouping := request.GET.get("group", ""):
        page = replace(page, indices=(), next_cursor=None)
        try:
            agent_groups = (
                [] if error else group_agents(table, grouping, agent_query.mask_of(table, filters.query))
            )
        except GroupingError as group_error:
            agent_groups, error = [], str(group_error)
        hidden_group_count = max(0, len(agent_groups) - MAX_GROUPS)
        group_rows = [
            (group, list_filters.query_string_of(request.GET, (*filters.tokens, group.filter), group=""))
            for group in agent_groups[:MAX_GROUPS]
        ]
    instances = {view.facts.id: view for view in table.instances.values()}
    prefix = url_prefix_of(cluster)
    choice = choose_columns(request, table, missing_capabilities_of(cluster))
    if KEEP_PARAMETER in request.GET:
        response = redirect(
            f"{prefix}/agents/?{list_filters.query_string_of(request.GET, filters.tokens, columns='')}"
        )
        response.set_cookie(COOKIE, choice.text, max_age=COOKIE_SECONDS, samesite="Lax")
        return response
    list_query = list_filters.query_string_of(request.GET, filters.tokens)
    download_query = list_filters.query_string_of(request.GET, filters.tokens, group="", columns=choice.text)
    context = {
        "rows": [
            presenters.agent_row_of(reader.agent(table, index), instances, now) for index in page.indices
        ],
        "filters": filters,
        "chips": list_filters.chips_of(request.GET, filters),
        "total_count": page.total_count,
        "first_url": f"{prefix}/agents/?{list_query}" if "after" in request.GET else "",
        "next_url": f"{prefix}/agents/?{_with_cursor(list_query, page.next_cursor)}"
        if page.next_cursor
        else "",
        "group_rows": group_rows,
        "hidden_group_count": hidden_group_count,
        "group_links": _group_links_of(table, filters, request.GET),
        "grouping": grouping,
        "error": error,
        "field_error": filters.error,
        "sort": request.GET.get("sort", ""),
        "list_query": list_query,
        "clear_query": list_filters.query_string_of(request.GET, ()),
        "column_heads": {
            column: _sort_head_of(request.GET, filters, column) for column in agent_query.SORT_KEYS
        },
        "column_choice": choice,
        "column_options": [
            (column, column.slug in choice.shown_slugs, choice.reasons.get(column.slug, ""))
            for column in COLUMNS
        ],
        "csv_url": f"{prefix}/agents.csv?{download_query}",
        "json_url": f"{prefix}/agents.json?{download_query}",
        "suggestions_url": f"{prefix}/agent-filters.json",
        "map_url": map_url_of(prefix, at=moment.past_at, query=filters.text),
    }
    context |= saved_views.menu_context_of(request, cluster, filters.text, choice)
    context["can_select"] = (
        moment.past_at is None
        and group_rows is None
        and has_permission(request.user, Permission.ACT_ON_FLEET, cluster)
    )
    page_context = presenters.live_page_context_of(reader.summary(cluster, now), now, "agents")
    counts = _count_matches_by_state(table, filters) or page_context["counts"]
    context["counts"] = counts
    context["state_links"] = [
        (
            state,
            count,
            list_filters.state_query_of(request.GET, filters, state),
            state in filters.query.states,
        )
        for state, count in counts
    ]
    return render(request, "dashboards/agents.html", page_context | context, status=400 if error else 200)


@requires(Permission.VIEW_FLEET)
@require_safe
@never_cache
@needs_record
def agent_filters(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Send suggestions for a filter that is being typed (`text`) beside those of the list (`q`): typeahead.suggest.

    Responds with 400 and `detail` if a filter of the list is invalid.
    """
    moment = moment_of(request, cluster)
    table = moment.reader.table(cluster, moment.now)
    typed_text = request.GET.get("text", "")
    filters = read_filters(request.GET)
    if filters.error:
        return JsonResponse({"detail": filters.error}, status=400)
    is_long = len(typed_text) > _MAX_TYPED_LENGTH
    suggestions = [] if is_long else typeahead.suggest(table, filters.tokens, typed_text)
    return JsonResponse({"suggestions": [asdict(suggestion) for suggestion in suggestions]})


@requires(Permission.VIEW_FLEET)
@require_safe
@never_cache
@needs_record
def agent_ids(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Send the ids of all agents that match the filters of the list: a page keeps those of them that are selected.

    Responds with 400 and `detail` if a filter is invalid.
    """
    moment = moment_of(request, cluster)
    table = moment.reader.table(cluster, moment.now)
    try:
        indices = agent_query.select(table, read_list_query(request.GET))
    except QueryError as error:
        return JsonResponse({"detail": str(error)}, status=400)
    return JsonResponse({"ids": [table.ids[index] for index in indices.tolist()]})


@requires(Permission.VIEW_FLEET)
@require_safe
@shows_moment
@needs_record
def agents_csv(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Send all agents that match the filters as CSV, in the order of the list, as of one moment (agent_csv).

    Responds with 400 and a sentence if a filter is invalid.
    """
    moment = moment_of(request, cluster)
    table = moment.reader.table(cluster, moment.now)
    try:
        views = _iterate_matches(moment, table, request.GET)
    except QueryError as error:
        return HttpResponse(f"{error}\n", status=400, content_type="text/plain; charset=utf-8")
    chunks = agent_csv.iterate_csv_chunks(
        views, table.instances.values(), columns=_export_names_of(request, table)
    )
    return _download_of(chunks, "text/csv; charset=utf-8; header=present", "csv", table, moment.now)


@requires(Permission.VIEW_FLEET)
@require_safe
@shows_moment
@needs_record
def agents_json(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Send the same agents as one JSON object (agent_json), with the filter and the order.

    Responds with 400 and `detail` if a filter is invalid.
    """
    moment = moment_of(request, cluster)
    table = moment.reader.table(cluster, moment.now)
    try:
        views = _iterate_matches(moment, table, request.GET)
    except QueryError as error:
        return JsonResponse({"detail": str(error)}, status=400)
    fields = {
        "cluster": cluster,
        "as_of": agent_csv.format_iso(table.as_of) or None,
        "stale": table.stale,
        "filter": read_filters(request.GET).text,
        "sort": request.GET.get("sort", ""),
    }
    chunks = agent_json.iterate_json_chunks(
        views, table.instances.values(), fields, columns=_export_names_of(request, table)
    )
    return _download_of(chunks, "application/json", "json", table, moment.now)


@requires(Permission.VIEW_FLEET)
@require_safe
@shows_moment
@needs_record
def agent(request: HttpRequest, agent_id: str, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show one agent; with `?card`, only the card for the side panel of the map. The name of one agent leads to its id.

    Template `dashboards/agent.html`: presenters.live_page_context_of, `agent` (AgentRow),
    `tunnels_reason` (why the source does not report them, or empty),
    `paths` (AgentPaths), `strip` (AgentStrip or None), `json_url`, `evidence` as (label, value), `report`
    (AgentReportView or None), `history` (AgentChangeRow, newest first),
    `retirement` (or None), `can_act`. Template `dashboards/_agent_card.html`: `agent`, `has_auths`, `has_expiry`
    (whether the source tells the auth of an agent, and when its heartbeat expires).
    """
    moment = moment_of(request, cluster)
    reader, now = moment.reader, moment.now
    explanation = reader.explain(cluster, agent_id, now)
    if explanation is None:
        return _redirect_by_name(request, moment.reader.table(cluster, now), agent_id)
    report = present_agent_report(explanation, now)
    context = presenters.agent_context_of(explanation, now) | {"report": report}
    missing_capabilities = missing_capabilities_of(cluster)
    context["has_auths"] = Capability.AGENT_TO_AUTH not in missing_capabilities
    context["has_expiry"] = Capability.LAST_SEEN not in missing_capabilities
    context["can_act"] = moment.past_at is None and has_permission(
        request.user, Permission.ACT_ON_FLEET, cluster
    )
    if "card" in request.GET:
        return render(request, "dashboards/_agent_card.html", context)
    context["tunnels_reason"] = (
        ""
        if reader.table(cluster, now).fleet.has_tunnels
        else missing_capabilities.get(Capability.TUNNELS_BY_AGENT, "")
    )
    context["paths"] = find_agent_paths(explanation, report, now, has_auths=context["has_auths"])
    context["strip"] = read_agent_strip(cluster, agent_id, explanation.view.state, now)
    context["json_url"] = f"/api/v1/clusters/{quote(cluster)}/agents/{quote(agent_id, safe='')}"
    context["retirement"] = retirement_of(cluster, explanation, now)
    context["history"] = (
        read_agent_changes(
            cluster,
            agent_id,
            now,
            _CHANGE_LIMIT,
            # Up to and with the moment; times are kept to the millisecond.
            before=None if moment.past_at is None else moment.past_at + 0.001,
        )
        or []
    )
    page_context = presenters.live_page_context_of(reader.summary(cluster, now), now, "agents")
    return render(request, "dashboards/agent.html", page_context | context)


def _redirect_by_name(request: HttpRequest, table: FleetTable, name: str) -> HttpResponse:
    """Lead from the name of an agent to its page, and from a name that several have to the list of these.

    Raises Http404 for an unknown name.
    """
    indices = [index for index, other_name in enumerate(table.names) if other_name == name]
    if not indices:
        raise Http404(f"Agent {name} was not found in cluster {table.cluster}.")
    base_url = f"{url_prefix_of(table.cluster)}/agents/"
    if len(indices) > 1:
        return redirect(f"{base_url}?{urlencode({'q': shlex.join([name]), **request.GET.dict()})}")
    query = request.GET.urlencode()
    return redirect(f"{base_url}{quote(table.ids[indices[0]], safe='')}/{f'?{query}' if query else ''}")


def _iterate_matches(moment: Moment, table: FleetTable, params: QueryDict) -> Iterator[AgentView]:
    """Return all agents that match the filters, in the order of the list. Raises QueryError."""
    indices = agent_query.select_sorted(table, read_list_query(params), params.get("sort", ""))
    return moment.reader.agents(table, (int(index) for index in indices))


def _export_names_of(request: HttpRequest, table: FleetTable) -> tuple[str, ...]:
    """Return the columns of a download: those of `?columns=`, or else all."""
    if PARAMETER not in request.GET:
        return agent_csv.COLUMNS
    return choose_columns(request, table, {}).export_names


def _download_of(
    chunks: Iterator[str], content_type: str, suffix: str, table: FleetTable, now: float
) -> StreamingHttpResponse:
    """Return a file whose name has the cluster and the moment of the data."""
    response = StreamingHttpResponse(iterate_in_thread(chunks), content_type=content_type)
    as_of = datetime.fromtimestamp(table.as_of or now, UTC)
    name = f"agents-{table.cluster}-{as_of:%Y%m%dT%H%M%SZ}.{suffix}"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "private, no-store"
    return response


def _select_page(table: FleetTable, filters: ListFilters, params: QueryDict) -> tuple[Page, str]:
    """Return one page of the list and "", or an empty page and a sentence if the address is invalid."""
    empty_page = Page(indices=(), total_count=0, next_cursor=None)
    if filters.error:
        return empty_page, filters.error
    try:
        return agent_query.select_page(
            table,
            filters.query,
            cursor=params.get("after") or None,
            limit=agent_query.PAGE_SIZE,
            sort=params.get("sort", ""),
        ), ""
    except QueryError as error:
        return empty_page, str(error)


def _count_matches_by_state(table: FleetTable, filters: ListFilters) -> Counts | None:
    """Return the number of agents in each state that match the other filters; None without valid ones."""
    query = agent_query.parse_filters(list_filters.without_key(filters.tokens, "state"))
    if filters.error or query == AgentQuery():
        return None
    counts = np.bincount(table.verdicts["state"][agent_query.select(table, query)], minlength=len(State))
    return presenters.order_counts({state: int(counts[int(state)]) for state in State})


def _group_links_of(
    table: FleetTable, filters: ListFilters, params: QueryDict
) -> list[tuple[str, str, bool]]:
    """Return the ways to group the list: name, query string, and whether it is the present one."""
    label_keys = [key for key in label_keys_of(table) if ":" not in key][:_MAX_LABEL_GROUPINGS]
    names = {"": "None", **GROUPINGS, **{f"{LABEL_PREFIX}{key}": f"Label {key}" for key in label_keys}}
    grouping = params.get("group", "")
    return [
        (name, list_filters.query_string_of(params, filters.tokens, group=slug), slug == grouping)
        for slug, name in names.items()
    ]


def _sort_head_of(params: QueryDict, filters: ListFilters, column: str) -> dict[str, str]:
    """Return a column header: `query` of its link (first page, sorted; reversed if sorted already) and `aria`."""
    sort = params.get("sort", "")
    directions = {column: "ascending", f"-{column}": "descending"}
    query = list_filters.query_string_of(
        params, filters.tokens, sort=f"-{column}" if sort == column else column
    )
    return {"query": query, "aria": directions.get(sort, "")}


def _with_cursor(query: str, cursor: str) -> str:
    """Return the query string of the page at a cursor."""
    return "&".join(filter(None, (query, urlencode({"after": cursor}))))
