"""The map: its page, and what the page requests beside the live columns: instances, groups, names and matches.

All of them show the present, or the moment of `?at=`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from typing import Any

import numpy as np
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotModified, JsonResponse
from django.shortcuts import render
from django.utils.http import parse_etags
from django.views.decorators.http import require_safe

from dashboards.fleet import agent_query, map_groups
from dashboards.fleet.agent_query import QueryError
from dashboards.fleet.map_instances import instances_as_json
from dashboards.fleet.map_looks import looks_as_json
from dashboards.fleet.topology_room import topology_height_of
from dashboards.shared import headlines, presenters, record_reader
from dashboards.shared.capabilities.missing import missing_capabilities_of
from dashboards.shared.pages import needs_record
from dashboards.shared.permissions import requires
from dashboards.shared.rewind import answers_moment, moment_of, shows_moment
from dashboards.shared.script_modules import find_imported_modules
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.monitoring.state.tables import summary_of
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.capabilities import Capability

_SCRIPT = "dashboards/js/map.js"
#: Maximum number of agents whose names are sent at once: those of one screen.
MAX_NAMES = 2000


@requires(Permission.VIEW_FLEET)
@require_safe
@shows_moment
@needs_record
def fleet_map(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the page of the map, now or at `?at=`; the states come by the socket, or from views.replay.

    Template `dashboards/map.html`: presenters.live_page_context_of, `looks` (map_looks.looks_as_json),
    `groupings` (map_groups.list_groupings), `has_auths` (whether the source tells the
    auth of an agent), `modules` (static paths of the modules of its script), `headline`
    (fleet.alerts.headlines.headline.Headline), `topology_height` (topology_room.topology_height_of), `current_ms`
    (time of the server, milliseconds since the epoch).
    """
    moment = moment_of(request, cluster)
    table = moment.reader.table(cluster, moment.now)
    context = {
        **presenters.live_page_context_of(summary_of(table), moment.now, "map"),
        "looks": looks_as_json(),
        "groupings": map_groups.list_groupings(table),
        "has_auths": Capability.AGENT_TO_AUTH not in missing_capabilities_of(cluster),
        "modules": find_imported_modules(_SCRIPT),
        "headline": headlines.headline_at(moment, cluster),
        "topology_height": topology_height_of(table),
        "current_ms": round(record_reader.current_time() * 1000),
    }
    return render(request, "dashboards/map.html", context)


@requires(Permission.VIEW_FLEET)
@require_safe
@answers_moment
@needs_record
def instances(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Send `epoch` and `instances` (map_instances) as JSON."""
    table = _read_table(request, cluster)
    return send_json(request, {"epoch": table.epoch, "instances": instances_as_json(table)})


@requires(Permission.VIEW_FLEET)
@require_safe
@answers_moment
@needs_record
def groups(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Send `epoch` and the agents grouped `?by=` an attribute (map_groups) as JSON; 400 if it is unknown."""
    table = _read_table(request, cluster)
    try:
        grouping = map_groups.group_agents(table, request.GET.get("by", ""))
    except QueryError as error:
        return JsonResponse({"detail": str(error)}, status=400)
    return send_json(request, {"epoch": table.epoch} | map_groups.grouping_as_json(grouping))


@requires(Permission.VIEW_FLEET)
@require_safe
@answers_moment
@needs_record
def names(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Send `epoch`, and `ids` and `names` of the agents with the indices `?agents=0,5-9`, in this order, as JSON.

    Responds with 400 and `detail` if the indices are invalid, or more than MAX_NAMES.
    """
    table = _read_table(request, cluster)
    try:
        indices = parse_indices(request.GET.get("agents", ""), len(table.ids))
    except ValueError as error:
        return JsonResponse({"detail": str(error)}, status=400)
    return send_json(
        request,
        {
            "epoch": table.epoch,
            "ids": [table.ids[index] for index in indices],
            "names": [table.names[index] for index in indices],
        },
    )


@requires(Permission.VIEW_FLEET)
@require_safe
@answers_moment
@needs_record
def matches(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Send which agents match `?q=` (agent_query): `epoch`, `count`, `agents` (number of all agents) and `bits`.

    `bits`: one bit per agent, the lowest bit of a byte first, compressed with zlib, in base64. Responds with 400 and
    `detail` if the query is invalid.
    """
    table = _read_table(request, cluster)
    try:
        indices = agent_query.select(table, agent_query.parse(request.GET.get("q", "")))
    except QueryError as error:
        return JsonResponse({"detail": str(error)}, status=400)
    mask = np.zeros(len(table.ids), np.bool_)
    mask[indices] = True
    bits = zlib.compress(np.packbits(mask, bitorder="little").tobytes())
    body = {"count": len(indices), "agents": len(mask), "bits": base64.b64encode(bits).decode()}
    return send_json(request, {"epoch": table.epoch} | body)


def parse_indices(text: str, agent_count: int) -> list[int]:
    """Return agent indices from a list of numbers and ranges, `0,5-9`. Raises ValueError with a sentence."""
    indices: list[int] = []
    for part in text.split(","):
        first, hyphen, last = part.partition("-")
        bounds = (first, last if hyphen else first)
        if not all(bound.isascii() and bound.isdecimal() and len(bound) < 10 for bound in bounds):
            raise ValueError(f"Invalid agent index {part!r}. Use numbers and ranges: 0,5-9.")
        start, end = int(bounds[0]), int(bounds[1])
        if end >= agent_count or start > end:
            raise ValueError(f"Agent index {part} is out of range: there are {agent_count} agents.")
        if len(indices) + end - start >= MAX_NAMES:
            raise ValueError(f"Too many agents: a request can name up to {MAX_NAMES}.")
        indices.extend(range(start, end + 1))
    return indices


def _read_table(request: HttpRequest, cluster: str) -> FleetTable:
    moment = moment_of(request, cluster)
    return moment.reader.table(cluster, moment.now)


def send_json(request: HttpRequest, content: dict[str, Any]) -> HttpResponseBase:
    """Send JSON with its hash as the ETag: a browser that has it gets 304."""
    body = json.dumps(content, separators=(",", ":")).encode()
    etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    # Compression makes the ETag weak; the weak ETag stands for the same content.
    client_etags = {tag.removeprefix("W/") for tag in parse_etags(request.headers.get("If-None-Match", ""))}
    response: HttpResponse
    if etag in client_etags:
        response = HttpResponseNotModified()
    else:
        response = HttpResponse(body, content_type="application/json")
    response["ETag"] = etag
    response["Cache-Control"] = "private, no-cache"
    return response
