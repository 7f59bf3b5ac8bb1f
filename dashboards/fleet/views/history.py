"""The History page: stranded agents over time, and proxies and auths over time."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from dashboards.fleet.timeline.chart_words import format_minute
from dashboards.fleet.timeline.history_rows import FleetHistory, read_history
from dashboards.fleet.timeline.line_chart import plot_data_of, range_as_json
from dashboards.fleet.timeline.time_range import (
    MIN_SECONDS,
    RANGE_LABELS,
    TimeRange,
    parse_range,
    query_of,
)
from dashboards.shared import record_reader
from dashboards.shared.pages import url_prefix_of
from dashboards.shared.permissions import requires
from dashboards.shared.rewind import MomentError, peak_query_of
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.moments import to_moment
from fleet.monitoring.history.past_table import read_first_moment


@requires(Permission.VIEW_FLEET)
@require_safe
def history(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show a time range: `?range=` (time_range.RANGES), or `?since=` and `?until=`; 400 if it is invalid.

    Template `dashboards/history.html`: `time_range` (TimeRange), `since` and `until` (aware datetimes), `ranges` as
    (name, label), `earlier_query`, `later_query`, `wider_query` (query strings; the last two may be empty), `chart`
    (HistoryChart), `strips` as (noun, HeatStrip), `notice` (a sentence, or empty) and `notice_query` (query string of
    its link, or empty), `compare_query` (query string of the comparison with the worst moment of the range, or empty),
    `script_data`.
    """
    now = record_reader.current_time()
    try:
        time_range = parse_range(request.GET.dict(), now)
    except MomentError as error:
        problem = {"sentence": str(error), "heading": "Invalid time range", "back": "Show the last 24 h"}
        return render(request, "400_moment.html", problem, status=400)
    fleet_history = read_history(cluster, time_range, now)
    later, wider = time_range.later(now), time_range.wider(now)
    notice, notice_query = _describe_missing(fleet_history, time_range, now)
    chart = fleet_history.chart
    context = {
        "page": "history",
        "time_range": time_range,
        "since": to_moment(time_range.since),
        "until": to_moment(time_range.until),
        "ranges": RANGE_LABELS,
        "earlier_query": time_range.earlier().query(),
        "later_query": later.query() if later else "",
        "wider_query": wider.query() if wider else "",
        "chart": chart,
        "strips": [
            (noun, strip)
            for noun, strip in (("proxy", fleet_history.proxies), ("auth", fleet_history.auths))
            if strip.rows
        ],
        "notice": notice,
        "notice_query": notice_query,
        "compare_query": _find_compare_query(cluster, fleet_history),
        "script_data": {
            **range_as_json(fleet_history.buckets),
            "prefix": url_prefix_of(cluster),
            "now": round(now * 1000),
            "shortest": round(MIN_SECONDS * 1000),
            "chart": plot_data_of(chart),
            "strips": {"proxy": fleet_history.proxies.data, "auth": fleet_history.auths.data},
        },
    }
    return render(request, "dashboards/history.html", context)


def _find_compare_query(cluster: str, fleet_history: FleetHistory) -> str:
    """Return the query string of the moment with the most affected agents; empty if there is none to be shown."""
    worst_start, first_at = fleet_history.chart.worst_start, read_first_moment(cluster)
    if worst_start is None or first_at is None or worst_start < first_at or not fleet_history.chart.peak:
        return ""
    return peak_query_of(worst_start)


def _describe_missing(fleet_history: FleetHistory, time_range: TimeRange, now: float) -> tuple[str, str]:
    """Return why the range has no counts, or none at its start, and the query string of a range that has some."""
    recorded = fleet_history.recorded
    if recorded is None:
        return (
            "Refloat has not recorded any counts yet: it writes the first counts within a minute after the first poll.",
            "",
        )
    first, last = recorded
    if fleet_history.chart.has_data:
        # Less than a minute cannot be seen.
        if first - time_range.since < MIN_SECONDS / 5:
            return "", ""
        return f"The history begins at {format_minute(first)} UTC.", ""
    if time_range.until <= first:
        return (
            f"This range ends before the history begins at {format_minute(first)} UTC.",
            query_of(min(first, now - MIN_SECONDS), min(first + time_range.seconds, now)),
        )
    sentence = (
        "No counts were recorded in this range: polling had stopped. "
        f"The last counts are of {format_minute(last)} UTC."
    )
    start = max(last - time_range.seconds, first)
    return sentence, query_of(min(start, last - MIN_SECONDS), last)
