"""The headline of a cluster for pages, API and sockets: one per round for all of them. docs/reference/headline.md."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db import Error

from dashboards.shared import record_reader
from dashboards.shared.fleet_activity import read_activity, read_activity_at
from dashboards.shared.pages import url_prefix_of
from dashboards.shared.rewind import Moment
from fleet.alerts import store
from fleet.alerts.headlines.actions import HeadlineAction
from fleet.alerts.headlines.activity import NO_ACTIVITY, Activity, HeadlineChange
from fleet.alerts.headlines.headline import Headline, HeadlineCause, OpenIncident, describe_fleet
from fleet.alerts.notifications import format_iso
from fleet.monitoring.views import FleetTable

#: By cluster: what the newest headline was made from, and that headline. A table is one object per round.
_cache: dict[str, tuple[FleetTable, tuple[OpenIncident, ...], Activity, object, Headline]] = {}


def read_headline(cluster: str, now: float) -> Headline:
    """Return the headline of the newest round. Raises StateUnavailableError."""
    table = record_reader.reader().table(cluster, now)
    return headline_of(table, read_open_incidents(cluster), now, read_activity(cluster, now))


def read_open_incidents(cluster: str) -> tuple[OpenIncident, ...]:
    """Return the open incidents of a cluster; none while the database is down, so that a headline never fails."""
    try:
        return store.read_open_incidents(cluster)
    except Error:
        return ()


def headline_of(
    table: FleetTable, incidents: tuple[OpenIncident, ...], now: float, activity: Activity = NO_ACTIVITY
) -> Headline:
    """Return the headline of a table, at most once per round, set of incidents, activity, and day."""
    today = datetime.fromtimestamp(now, UTC).date()
    entry = _cache.get(table.cluster)
    if entry is not None and entry[0] is table and entry[1:4] == (incidents, activity, today):
        return entry[4]
    headline = describe_fleet(table, incidents, now, activity)
    _cache[table.cluster] = (table, incidents, activity, today, headline)
    return headline


def headline_at(moment: Moment, cluster: str) -> Headline:
    """Return the headline of the round that a request shows, with the incidents and changes of its time."""
    if moment.past_at is None:
        return read_headline(cluster, moment.now)
    table = moment.reader.table(cluster, moment.now)
    incidents = store.read_incidents_open_at(cluster, moment.past_at)
    return describe_fleet(table, incidents, moment.now, read_activity_at(cluster, moment.past_at))


def present_headline(headline: Headline, cluster: str) -> dict[str, Any]:
    """Return a headline as data, for API and sockets, without its round and counts."""
    prefix = url_prefix_of(cluster)
    return {
        "state": headline.state.slug,
        "count": headline.count,
        "text": headline.text,
        "lead": headline.lead,
        "more_count": headline.more_count,
        "tab_title": headline.tab_title,
        "summary": headline.summary,
        "recovery": headline.recovery,
        "activity": headline.activity,
        "since": format_iso(headline.since),
        "recovers_at": format_iso(headline.recovers_at),
        "strands_at": format_iso(headline.strands_at),
        "causes": [_present_cause(cause) for cause in headline.causes],
        "actions": [_present_action(action, prefix) for action in headline.actions],
        "preventions": [_present_action(action, prefix) for action in headline.preventions],
        "incidents": list(headline.incidents),
        "changes": [_present_change(change, prefix) for change in headline.changes],
        "links": [_present_action(link, prefix) for link in headline.links],
    }


def _present_cause(cause: HeadlineCause) -> dict[str, Any]:
    return {
        "key": cause.key,
        "name": cause.name,
        "description": cause.description,
        "since": format_iso(cause.since),
        "counts": {state.slug: count for state, count in cause.counts.items()},
        "incident": cause.incident,
    }


def _present_action(action: HeadlineAction, prefix: str) -> dict[str, str]:
    return {"label": action.label, "path": f"{prefix}{action.path}", "permission": action.permission}


def _present_change(change: HeadlineChange, prefix: str) -> dict[str, Any]:
    return {
        "number": change.number,
        "kind": change.kind,
        "text": change.sentence,
        "is_running": change.is_running,
        "total_count": change.total_count,
        "finished_count": change.finished_count,
        "path": f"{prefix}{change.path}",
        "instances": dict(change.instances),
    }
