"""Two moments of the fleet compared, as page and CSV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from dashboards.fleet.replay_markers import find_incidents
from dashboards.fleet.streaming import iterate_in_thread
from dashboards.fleet.timeline.comparison import DifferenceKind
from dashboards.fleet.timeline.comparison_rows import (
    ComparedMoments,
    compare_moments,
    describe_stale,
    iterate_csv_chunks,
    present_instances,
)
from dashboards.fleet.timeline.history_rows import read_worst_moment
from dashboards.shared import record_reader
from dashboards.shared.pages import needs_record
from dashboards.shared.permissions import requires
from dashboards.shared.rewind import PEAK_PARAMETER, MomentError, find_peak, format_at
from dashboards.shared.row_ids import parse_row_id
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.moments import to_moment
from fleet.monitoring.history.past_table import read_first_moment

#: Agents on a page.
_PAGE_SIZE = 100
#: Seconds before an incident at which the fleet is taken as unaffected.
_BEFORE_INCIDENT = 60.0
#: Incidents that the page offers: the newest ones of the last days.
_INCIDENT_LIMIT, _INCIDENT_DAYS = 5, 7.0
_DAY, _HOUR = 86_400.0, 3600.0
#: Filters by what differs, with their names on the page.
_KIND_LABELS = (
    (None, "All differences"),
    (DifferenceKind.STATE, "State"),
    (DifferenceKind.TUNNELS, "Tunnels"),
    (DifferenceKind.AUTH, "Auth"),
)


@dataclass(frozen=True, slots=True)
class _Request:
    """The parameters of the page."""

    first_text: str
    second_text: str
    kind: DifferenceKind | None
    page: int


@requires(Permission.VIEW_FLEET)
@require_safe
@needs_record
def compare(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Compare the moments `?a=` and `?b=` (empty: now), agents by `?show=` (DifferenceKind) and `?page=`.

    `?peak_of=` (shared.rewind) stands for `?a=` of that peak. Without both: the moment of the last 24 h with the most
    stranded agents, otherwise an hour ago. 400 with the form and a sentence if a parameter is invalid or a moment was
    not recorded.
    Template `dashboards/comparison.html`: `first_text` and `second_text` (values of the form), `error` (a sentence, or
    empty), `suggestions` as (label, query string); and if there is no error `stale_sentence`, `first_at`, `second_at`
    (aware datetimes), `second_is_now`, `first_url_part`, `second_url_part` (query strings of links to the moments),
    `counts` (StateCount), `instances` (InstanceDifferenceRow), `flows` as (heading, Flow), `kinds` as (label, query
    string, number of agents, whether it is selected), `agents` (AgentDifference), `agent_total` (number of agents that
    differ in anything), `previous_query`, `next_query`, `csv_query` (query strings).
    """
    now = record_reader.current_time()
    context: dict[str, Any] = {
        "page": "history",
        "suggestions": _list_suggestions(cluster, now),
        "error": "",
        "first_text": request.GET.get("a", ""),
        "second_text": request.GET.get("b", ""),
    }
    try:
        parameters = _read_parameters(request.GET, cluster, now)
        context |= {"first_text": parameters.first_text, "second_text": parameters.second_text}
        compared = compare_moments(parameters.first_text, parameters.second_text, cluster)
    except MomentError as error:
        # Without parameters, no parameter is wrong: the history is only too young.
        status = 400 if request.GET else 200
        return render(request, "dashboards/comparison.html", context | {"error": str(error)}, status=status)
    context |= _comparison_context_of(compared, parameters)
    return render(request, "dashboards/comparison.html", context)


@requires(Permission.VIEW_FLEET)
@require_safe
@needs_record
def compare_csv(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Send the agents that differ as CSV; parameters as in `compare`. Responds with 400 and a sentence if invalid."""
    try:
        parameters = _read_parameters(request.GET, cluster, record_reader.current_time())
        compared = compare_moments(parameters.first_text, parameters.second_text, cluster)
    except MomentError as error:
        return HttpResponse(f"{error}\n", status=400, content_type="text/plain; charset=utf-8")
    response = StreamingHttpResponse(
        iterate_in_thread(iterate_csv_chunks(compared.comparison, parameters.kind)),
        content_type="text/csv; charset=utf-8; header=present",
    )
    first, second = (
        f"{to_moment(moment.now):%Y%m%dT%H%M%SZ}" for moment in (compared.before, compared.after)
    )
    response["Content-Disposition"] = f'attachment; filename="comparison-{cluster}-{first}-{second}.csv"'
    return response


def _read_parameters(parameters: QueryDict, cluster: str, now: float) -> _Request:
    """Return the parameters with their defaults. Raises MomentError."""
    kind_text, page_text = parameters.get("show", ""), parameters.get("page", "") or "1"
    try:
        kind = DifferenceKind(kind_text) if kind_text else None
    except ValueError:
        raise MomentError(
            f"Unknown difference {kind_text[:40]!r}: use {', '.join(DifferenceKind)}, or leave show out."
        ) from None
    page = parse_row_id(page_text)
    if not page:
        raise MomentError(f"Invalid page {page_text[:40]!r}: enter a number from 1.")
    first_text = parameters.get("a", "") or _find_default_moment(parameters, cluster, now)
    return _Request(first_text, parameters.get("b", ""), kind, page)


def _find_default_moment(parameters: QueryDict, cluster: str, now: float) -> str:
    """Return `?a=` of `?peak_of=`, of the worst moment of the last 24 h, or of an hour ago. Raises MomentError."""
    # Counts may be older than what can be shown.
    first_at = read_first_moment(cluster) or 0.0
    peak = find_peak(parameters.get(PEAK_PARAMETER, ""), cluster, now)
    if peak is None:
        peak = read_worst_moment(cluster, max(now - _DAY, first_at), now)
    return format_at(max(now - _HOUR if peak is None else peak, first_at))


def _list_suggestions(cluster: str, now: float) -> list[tuple[str, str]]:
    """Return pairs of moments as (label, query string): before and after each of the newest incidents."""
    first_at = read_first_moment(cluster)
    if first_at is None:
        return []
    incidents = [
        incident
        for incident in find_incidents(cluster, now - _INCIDENT_DAYS * _DAY, now)
        if incident.start - _BEFORE_INCIDENT >= first_at
    ][-_INCIDENT_LIMIT:]
    return [
        (
            f"Before and {'now' if incident.end is None else 'after'}: {incident.title}",
            _query_of(
                format_at(incident.start - _BEFORE_INCIDENT),
                "" if incident.end is None else format_at(min(incident.end + _BEFORE_INCIDENT, now)),
            ),
        )
        for incident in reversed(incidents)
    ]


def _comparison_context_of(compared: ComparedMoments, parameters: _Request) -> dict[str, Any]:
    comparison = compared.comparison
    indices = comparison.select(parameters.kind)
    start = (parameters.page - 1) * _PAGE_SIZE
    # Pages, and the file, belong together: they have the present as the moment that it is now.
    texts = compared.before_at_text, compared.after_at_text
    slug = parameters.kind or ""
    return {
        "stale_sentence": describe_stale(compared),
        "first_at": to_moment(compared.before.now),
        "second_at": to_moment(compared.after.now),
        "second_is_now": compared.after.past_at is None,
        "first_url_part": f"?at={texts[0]}",
        "second_url_part": "" if compared.after.past_at is None else f"?at={texts[1]}",
        "counts": comparison.count_states(),
        "instances": present_instances(comparison),
        "flows": [
            (heading, flows)
            for heading, flows in (
                ("Changes of state", comparison.list_state_flows()),
                ("Moves between proxies", comparison.list_proxy_flows()),
                ("Moves between auths", comparison.list_auth_flows()),
            )
            if flows
        ],
        "kinds": [
            (
                label,
                _query_of(texts[0], parameters.second_text, kind or ""),
                comparison.count(kind),
                kind is parameters.kind,
            )
            for kind, label in _KIND_LABELS
        ],
        "agents": comparison.describe_agents(indices[start : start + _PAGE_SIZE]),
        "agent_total": comparison.count(),
        "previous_query": _query_of(*texts, slug, parameters.page - 1) if start else "",
        "next_query": _query_of(*texts, slug, parameters.page + 1)
        if start + _PAGE_SIZE < len(indices)
        else "",
        "csv_query": _query_of(*texts, slug),
    }


def _query_of(first_text: str, second_text: str, kind: str = "", page: int = 1) -> str:
    """Return the query string of a comparison."""
    parameters = {"a": first_text, "b": second_text, "show": kind, "page": "" if page == 1 else str(page)}
    return urlencode({name: text for name, text in parameters.items() if text}, safe=":")
