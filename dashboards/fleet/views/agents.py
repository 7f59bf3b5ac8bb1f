"""The list of agents, as page and CSV, and the page of one agent with the evidence for its state."""

from __future__ import annotations

import shlex
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

from dashboards.fleet import agent_csv, agent_groups, agent_query
from dashboards.fleet.agent_history import read_agent_changes
from dashboards.fleet.agent_paths import find_agent_paths
from dashboards.fleet.agent_query import Page, QueryError
from dashboards.fleet.agent_report import present_agent_report
from dashboards.fleet.agent_selection import read_list_query
from dashboards.fleet.retire import retirement_of
from dashboards.fleet.timeline.agent_strip import read_agent_strip
from dashboards.shared import presenters
from dashboards.shared.capabilities.missing import missing_capabilities_of
from dashboards.shared.pages import needs_record, url_prefix_of
from dashboards.shared.permissions import requires
from dashboards.shared.presenters import Counts
from dashboards.shared.rewind import moment_of, shows_moment
from dashboards.shared.streaming import iterate_in_thread
from fleet.models.access import Permission, has_permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.verdicts import State

#: Maximum number of changes on the page of an agent.
_CHANGE_LIMIT = 50
#: Maximum number of suggestions of the search field.
_SUGGESTION_LIMIT = 50


@requires(Permission.VIEW_FLEET)
@require_safe
@shows_moment
@needs_record
def agents(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show one page of the list of agents: `?state=` (repeatable), `?proxy=`, `?auth=`, `?q=` (agent_query), `?sort=`,
    `?after=` (cursor), `?at=` (a past moment).

    Template `dashboards/agents.html`: presenters.live_page_context_of, `rows` (AgentRow), `selected_states` (slugs),
    `query`, `proxy`, `auth`, `total_count`, `next_url`, `first_url` (either may be empty), `error` (a sentence if a
    filter is invalid), `column_heads` (column headers by sort key), `sort`, `suggestions` (filters for the
    search field), `csv_url`, `can_select` (the user may act on agents).
    """
    moment = moment_of(request, cluster)
    reader, now = moment.reader, moment.now
    table = reader.table(cluster, now)
    page, error = _select_page(table, request.GET)
    instances = {view.facts.id: view for view in table.instances.values()}
    base_url = f"{url_prefix_of(cluster)}/agents/"
    context = {
        "rows": [
            presenters.agent_row_of(reader.agent(table, index), instances, now) for index in page.indices
        ],
        "selected_states": request.GET.getlist("state"),
        "query": request.GET.get("q", ""),
        "proxy": request.GET.get("proxy", ""),
        "auth": request.GET.get("auth", ""),
        "total_count": page.total_count,
        "first_url": f"{base_url}?{_query_string_of(request.GET)}" if "after" in request.GET else "",
        "next_url": f"{base_url}?{_query_string_of(request.GET, page.next_cursor)}"
        if page.next_cursor
        else "",
        "error": error,
        "sort": request.GET.get("sort", ""),
        "suggestions": agent_groups.suggest_filters(table, _SUGGESTION_LIMIT),
        "column_heads": {column: _sort_head_of(request.GET, column) for column in agent_query.SORT_KEYS},
        "csv_url": f"{url_prefix_of(cluster)}/agents.csv?{_query_string_of(request.GET)}",
    }
    context["can_select"] = moment.past_at is None and has_permission(
        request.user, Permission.ACT_ON_FLEET, cluster
    )
    page_context = presenters.live_page_context_of(reader.summary(cluster, now), now, "agents")
    context["counts"] = _count_matches_by_state(table, request.GET) or page_context["counts"]
    return render(request, "dashboards/agents.html", page_context | context, status=400 if error else 200)


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
    reader, now = moment.reader, moment.now
    table = reader.table(cluster, now)
    try:
        indices = agent_query.select_sorted(table, read_list_query(request.GET), request.GET.get("sort", ""))
    except QueryError as error:
        return HttpResponse(f"{error}\n", status=400, content_type="text/plain; charset=utf-8")
    views = reader.agents(table, (int(index) for index in indices))
    chunks = agent_csv.iterate_csv_chunks(views, table.instances.values())
    response = StreamingHttpResponse(
        iterate_in_thread(chunks), content_type="text/csv; charset=utf-8; header=present"
    )
    as_of = datetime.fromtimestamp(table.as_of or now, UTC)
    response["Content-Disposition"] = f'attachment; filename="agents-{cluster}-{as_of:%Y%m%dT%H%M%SZ}.csv"'
    response["Cache-Control"] = "private, no-store"
    return response


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


def _select_page(table: FleetTable, params: QueryDict) -> tuple[Page, str]:
    """Return one page of the list and "", or an empty page and a sentence if the filter is invalid."""
    try:
        query = read_list_query(params)
        return agent_query.select_page(
            table,
            query,
            cursor=params.get("after") or None,
            limit=agent_query.PAGE_SIZE,
            sort=params.get("sort", ""),
        ), ""
    except QueryError as error:
        return Page(indices=(), total_count=0, next_cursor=None), str(error)


def _count_matches_by_state(table: FleetTable, params: QueryDict) -> Counts | None:
    """Return the number of agents in each state that match the other filters; None without valid ones."""
    other_params = params.copy()
    other_params.setlist("state", [])
    try:
        query = read_list_query(other_params)
        if query == read_list_query(QueryDict()):
            return None
        states = table.verdicts["state"][agent_query.select(table, query)]
    except QueryError:
        return None
    counts = np.bincount(states, minlength=len(State))
    return presenters.order_counts({state: int(counts[int(state)]) for state in State})


def _sort_head_of(params: QueryDict, column: str) -> dict[str, str]:
    """Return a column header: `query` of its link (first page, sorted; reversed if sorted already) and `aria`."""
    sort = params.get("sort", "")
    directions = {column: "ascending", f"-{column}": "descending"}
    query = urlencode(
        [*_query_pairs_of(params, "after", "sort"), ("sort", f"-{column}" if sort == column else column)]
    )
    return {"query": query, "aria": directions.get(sort, "")}


def _query_string_of(params: QueryDict, after: str | None = None) -> str:
    """Return the query string of the same filters with another cursor."""
    return urlencode([*_query_pairs_of(params, "after"), *([("after", after)] if after else [])])


def _query_pairs_of(params: QueryDict, *excluded_keys: str) -> list[tuple[str, str]]:
    return [
        (key, text) for key, texts in params.lists() if key not in excluded_keys for text in texts if text
    ]
