"""API route of one instance, with what its page shows. docs/reference/instance.md, "API"."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router
from ninja.errors import HttpError

from dashboards.fleet.api import schemas
from dashboards.fleet.api.responses import build_dated_fields, instance_item_of
from dashboards.instances import page, records
from dashboards.instances.day_chart import DayChart
from dashboards.instances.facts import find_forecast_reason, find_state_start
from dashboards.instances.failure_text import FailureForecast, forecast_failure
from dashboards.instances.lookup import find_by_id, find_by_name, query_term_of
from dashboards.shared.api import change_responses
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.parameters import QueryParameters, Schema
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.capabilities.missing import missing_capabilities_of
from dashboards.shared.presenters import to_moment_or_none
from dashboards.shared.rewind import open_moment
from fleet.changes.operations import drains
from fleet.models.access import Permission
from fleet.models.moments import to_moment

router = Router()
per_cluster = PerCluster(router)
_VIEW = ApiAccess(Permission.VIEW_FLEET)


class InstanceParameters(QueryParameters):
    """Query parameters of one instance."""

    at: str = ""
    """Past moment as ISO 8601 with an offset, `2026-11-23T10:14:07Z`: the fleet as the history has it. Empty: now."""


class FailureForecastItem(Schema):
    """What agents lose if the instance fails now."""

    text: str
    """The forecast as a sentence: `If proxy-2 fails now, 37 agents lose their only tunnel.`"""
    details: list[str]
    """More sentences: which agents move automatically, and what prevents it."""
    agent_count: int
    """Agents that lose their only tunnel, or their auth."""
    agent_query: str
    """Filter of *Agents* that selects these agents: `only-proxy:proxy-2`; empty without agents."""
    automatic_count: int | None
    """Of an auth: agents that move to another auth automatically; null for a proxy."""
    waiting_count: int | None
    """Of an auth: agents that stay until the auth closes their connections; null for a proxy."""


class InstancePeriodItem(Schema):
    """A period in which the instance was in one state."""

    lane: str
    """What the state is of: `state`, `health` or `drain`."""
    label: str
    """The state in words: `not responding`."""
    since: datetime
    """Start of the period, or of the 24 h."""
    until: datetime
    """End of the period; that of the last one is the moment of the response."""


class InstanceIncidentItem(Schema):
    """An incident that the instance caused, or its region, proxy group or backend."""

    number: int
    """Number of the incident."""
    severity: str
    """Severity: `info`, `warning` or `critical`."""
    summary: str
    """What happened, in one line."""
    is_resolved: bool
    """Whether the incident has ended."""
    peak_count: int
    """Most agents that were affected."""
    opened_at: datetime | None
    """When the incident was opened."""


class InstanceChangeItem(Schema):
    """A change to the instance."""

    number: int
    """Number of the change."""
    title: str
    """What the change does, in one line."""
    state: str
    """State of the change: `verified`, `running`, `failed` and so on."""
    actor_name: str
    """Who made the change."""
    at: datetime
    """When the change began, or was planned."""


class InstanceResponse(schemas.DatedResponse):
    """One auth or proxy with what its page shows."""

    instance: schemas.InstanceItem
    """The instance, as in the list of instances."""
    since: datetime | None
    """When the present state began; null if that was not recorded."""
    agent_counts: dict[str, int]
    """Agents that the list of agents has for the instance, by state; states without agents are left out."""
    failure_forecast: FailureForecastItem | None
    """What agents lose if the instance fails now; null if that cannot be predicted."""
    forecast_reason: str
    """Why the source does not allow a forecast, as a sentence; empty if it does."""
    history: list[InstancePeriodItem]
    """Periods of the last 24 h, by lane, the oldest first."""
    incidents: list[InstanceIncidentItem]
    """Incidents that the instance caused, or its region, proxy group or backend: open ones first, then the newest.
    Empty with `at`.
    """
    changes: list[InstanceChangeItem]
    """The newest changes to the instance. Empty with `at`."""


@per_cluster.get(
    "/instances/{instance_id}",
    auth=_VIEW,
    response={200: InstanceResponse, frozenset({400, 401, 403, 404, 503}): schemas.Problem},
)
def get_instance(
    request: HttpRequest, cluster: str, instance_id: str, parameters: Query[InstanceParameters]
) -> Any:
    """Get one instance.

    `instance_id` may also be a name: of several instances with it, a registered one, then the newest. The response has
    the state of the instance, what agents lose if it fails now, its last 24 h, and its incidents and changes.
    """
    moment = open_moment(parameters.at, change_responses.require_cluster(cluster))
    now, is_past = moment.now, moment.past_at is not None
    table = moment.reader.table(cluster, now)
    view = find_by_id(table, instance_id) or find_by_name(table, instance_id)
    if view is None:
        raise HttpError(404, change_responses.describe_unknown_id("Instance", instance_id, cluster))
    facts = view.facts
    forecast_reason = find_forecast_reason(table, view, missing_capabilities_of(cluster))
    forecast = None if forecast_reason else forecast_failure(table, view, query_term_of(table, view))
    return InstanceResponse(
        **build_dated_fields(cluster, table.as_of, now, is_stale=table.stale),
        instance=instance_item_of(view, frozenset() if is_past else drains.read_requested_ids(cluster)),
        since=to_moment_or_none(find_state_start(cluster, view, now)),
        agent_counts={state.slug: count for state, count in page.count_agents_by_state(table, view) if count},
        failure_forecast=None if forecast is None else _forecast_item_of(forecast),
        forecast_reason=forecast_reason,
        history=_period_items_of(records.read_day(cluster, facts.id, facts.kind, now)),
        incidents=[]
        if is_past
        else [
            InstanceIncidentItem(
                number=incident.number,
                severity=incident.severity.slug,
                summary=incident.summary,
                is_resolved=incident.is_resolved,
                peak_count=incident.peak_count,
                opened_at=incident.opened_at,
            )
            for incident in records.read_incidents(cluster, facts, now)
        ],
        changes=[]
        if is_past
        else [
            InstanceChangeItem(
                number=change.number,
                title=change.title,
                state=change.state,
                actor_name=change.actor_name,
                at=change.at,
            )
            for change in records.read_changes(cluster, facts.id, now)
        ],
    )


def _forecast_item_of(forecast: FailureForecast) -> FailureForecastItem:
    impact = forecast.auth_impact
    return FailureForecastItem(
        text=forecast.sentence,
        details=list(forecast.details),
        agent_count=forecast.agent_count,
        agent_query=forecast.query,
        automatic_count=None if impact is None else impact.automatic_count if impact.has_other_auth else 0,
        waiting_count=None if impact is None else impact.waiting_count,
    )


def _period_items_of(day: DayChart) -> list[InstancePeriodItem]:
    return [
        InstancePeriodItem(
            lane=lane.name.lower(),
            label=period.label,
            since=to_moment(period.start),
            until=to_moment(period.end),
        )
        for lane in day.lanes
        for period in lane.periods
    ]
