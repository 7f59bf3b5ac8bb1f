"""The map: its page, and its layout as JSON."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotModified, JsonResponse
from django.shortcuts import render
from django.utils.http import parse_etags
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_safe

from dashboards.fleet import figures
from dashboards.shared import headlines, presenters, record_reader
from dashboards.shared.pages import needs_record
from dashboards.shared.permissions import requires
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.monitoring.state.tables import summary_of


@requires(Permission.VIEW_FLEET)
@require_safe
@needs_record
def fleet_map(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the page of the map; the states come by the socket.

    Template `dashboards/map.html`: presenters.live_page_context_of, `figure` (figures.build_map_figure), `headline`
    (fleet.alerts.headline.Headline).
    """
    now = record_reader.current_time()
    table = record_reader.reader().table(cluster, now)
    context = {
        **presenters.live_page_context_of(summary_of(table), now, "map"),
        "figure": figures.build_map_figure(),
        "headline": headlines.headline_of(table, headlines.read_open_incidents(cluster), now),
    }
    return render(request, "dashboards/map.html", context)


@requires(Permission.VIEW_FLEET)
@require_safe
@gzip_page
@needs_record
def layout(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Send the layout of the map as JSON. Its version is the ETag: a browser that has it gets 304."""
    reader = record_reader.reader()
    etag = f'"{cluster}-{reader.layout_version(cluster)}"'
    # gzip_page makes the ETag weak; the weak ETag stands for the same layout.
    client_etags = {tag.removeprefix("W/") for tag in parse_etags(request.headers.get("If-None-Match", ""))}
    response: HttpResponse
    if etag in client_etags:
        response = HttpResponseNotModified()
    else:
        fleet_layout = reader.layout(cluster)
        etag = f'"{cluster}-{fleet_layout.version}"'
        response = JsonResponse(
            {
                "version": fleet_layout.version,
                "ids": fleet_layout.ids,
                "names": fleet_layout.names,
                "homes": fleet_layout.homes,
                "blocks": fleet_layout.blocks,
            }
        )
    response["ETag"] = etag
    response["Cache-Control"] = "private, no-cache"
    return response
