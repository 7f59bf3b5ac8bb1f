"""Replay on the map: one past moment of the whole fleet, and the markers of a time range."""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import Any

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.views.decorators.http import require_safe

from dashboards.fleet.map_instances import instances_as_json
from dashboards.fleet.replay_markers import Marker, find_changes, find_incidents
from dashboards.fleet.views.map import send_json
from dashboards.shared import headlines, record_reader
from dashboards.shared.pages import needs_record, url_prefix_of
from dashboards.shared.permissions import requires
from dashboards.shared.rewind import MomentError, answers_moment, format_at, moment_of, parse_at
from dashboards.shared.snapshot_frames import COLUMNS, ENCODING, pack_table_columns
from fleet.alerts.headlines.headline import Headline
from fleet.alerts.notifications import format_iso
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.monitoring.state.tables import summary_of
from fleet.monitoring.views import FleetTable

#: Maximum length of a time range, seconds.
_MAX_RANGE = 31 * 86400.0


@requires(Permission.VIEW_FLEET)
@require_safe
@answers_moment
@needs_record
def moment(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Send everything that the map shows of the moment `?at=`, as JSON.

    `at`; `hello` (fields of the message of the socket, docs/reference/live.md); `columns` (its binary frame in base64);
    `instances` (map_instances); `headline` (the message, without actions: nothing can be done from the past). 400 with
    `detail` if the moment is missing, invalid or was not recorded.
    """
    shown_moment = moment_of(request, cluster)
    if shown_moment.past_at is None:
        raise MomentError("The parameter at is missing: add the time, like ?at=2026-11-23T10:14:07Z.")
    table = shown_moment.reader.table(cluster, shown_moment.now)
    content = {
        "at": format_at(shown_moment.past_at),
        "hello": _create_hello(table),
        "columns": base64.b64encode(pack_table_columns(table)).decode(),
        "instances": instances_as_json(table),
        "headline": _present_past_headline(headlines.headline_at(shown_moment, cluster), cluster),
    }
    return send_json(request, content)


@requires(Permission.VIEW_FLEET)
@require_safe
@answers_moment
def markers(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Send `incidents` and `changes` between `?since=` and `?until=` as JSON: title, start, end, href, severity.

    `start` and `end` are milliseconds since the epoch; `end` is null while it has not ended. 400 with `detail` if the
    range is invalid.
    """
    now = record_reader.current_time()
    since, until = (parse_at(request.GET.get(name, ""), now) for name in ("since", "until"))
    if since is None or until is None or not 0 <= until - since <= _MAX_RANGE:
        return JsonResponse(
            {"detail": "Invalid range: add since and until, at most 31 days apart, in this order."},
            status=400,
        )
    prefix = url_prefix_of(cluster)
    return send_json(
        request,
        {
            "incidents": [_marker_as_json(row, prefix) for row in find_incidents(cluster, since, until)],
            "changes": [_marker_as_json(row, prefix) for row in find_changes(cluster, since, until)],
        },
    )


def _create_hello(table: FleetTable) -> dict[str, Any]:
    summary = summary_of(table)
    return {
        "cluster": table.cluster,
        "epoch": table.epoch,
        "seq": table.seq,
        "layout_version": "",
        "agents": len(table.ids),
        "interval_ms": round(summary.interval * 1000),
        "stale": table.stale,
        "counts": {state.slug: count for state, count in summary.counts.items()},
        "columns": COLUMNS,
        "encoding": ENCODING,
    }


def _present_past_headline(headline: Headline, cluster: str) -> dict[str, Any]:
    return {
        **headlines.present_headline(headline, cluster),
        "counts": {state.slug: count for state, count in headline.counts.items()},
        "as_of": format_iso(headline.as_of),
        "actions": [],
        "preventions": [],
    }


def _marker_as_json(marker: Marker, prefix: str) -> dict[str, Any]:
    fields = asdict(marker)
    path = fields.pop("path")
    fields.pop("state")
    return fields | {
        "start": round(marker.start * 1000),
        "end": None if marker.end is None else round(marker.end * 1000),
        "href": f"{prefix}{path}" if path else "",
    }
