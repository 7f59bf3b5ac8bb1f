"""API routes of incidents. docs/reference/api.md."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal

import numpy as np
from django.conf import settings
from django.http import HttpRequest
from ninja import Query, Router
from ninja.errors import HttpError
from pydantic import Field

from dashboards.alerts.api.writable_rows import row_id_or_zero
from dashboards.alerts.incident_figures import list_pairs
from dashboards.alerts.presenters import (
    IncidentView,
    find_common_attributes,
    find_describer,
    find_runbook_finder,
    next_notification_of,
    present_incident,
    read_active_silences,
)
from dashboards.fleet.api.responses import agent_items_of
from dashboards.fleet.api.schemas import AgentItem
from dashboards.shared import record_reader
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    caller_of,
    require_cluster,
)
from dashboards.shared.api.parameters import QueryParameters, Schema
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.pages import sentence_of, url_prefix_of
from fleet.alerts import incident_actions, store
from fleet.alerts.evidence.copies import read_copy_mark, read_evidence
from fleet.alerts.evidence.evidence import EvidenceError, agent_views_of, table_of_evidence
from fleet.models.access import Permission
from fleet.models.incidents import Incident
from fleet.models.moments import to_moment
from fleet.vocabulary.incidents import OPEN_STATES

router = Router()
per_cluster = PerCluster(router)
_VIEW = ApiAccess(Permission.VIEW_FLEET)
_ACT = ApiAccess(Permission.ACT_ON_FLEET)
#: Most timeline entries of an incident in a response, as on its page.
_MAX_TIMELINE_LENGTH = 100


class IncidentFilters(QueryParameters):
    """Query parameters of the list of incidents."""

    state: Literal["open", "pending", "resolved", "all"] = "open"
    """State of the incidents: `open`, `pending`, `resolved` or `all`."""
    limit: Annotated[int, Field(ge=1, le=500)] = 100
    """Most incidents in the response."""


class NextNotification(Schema):
    """The next notification about an incident."""

    at: datetime | None
    """When the next notification is sent; null when none is planned."""
    reason: str
    """Why then, or why no notification is planned."""
    channels: list[str]
    """Names of the notification channels."""
    resolved_channels: list[str]
    """Names of the channels that get only the notification that the incident is resolved; empty unless `at` is null."""
    recipients: str
    """These channels in words: `Slack (failing since 12:47 UTC), Webhook`; empty without any."""


class IncidentItem(Schema):
    """An incident with its cause, affected agents and next notification."""

    number: int
    """Number of the incident."""
    id: str
    """Permanent id: cluster, cause, and how often the cause has occurred."""
    state: str
    """State of the incident: `pending`, `firing`, `recovering` or `resolved`."""
    severity: str
    """Severity: `critical`, `warning` or `info`."""
    summary: str
    """The incident in one sentence."""
    cause_kind: str
    """Kind of the cause: `console`, `cluster`, `backend`, `region`, `auth`, `proxy-group`, `proxy`, `agents` or
    `fleet`.
    """
    cause: str
    """Name of the cause."""
    affected_count: int
    """Number of affected agents now."""
    peak_count: int
    """Highest number of affected agents so far."""
    agent_names: list[str]
    """Names of some affected agents."""
    opened_at: datetime | None
    """When the incident was opened."""
    resolved_at: datetime | None
    """When the incident was resolved; null while it is open."""
    duration_seconds: float
    """Seconds from the first match of an alert rule until no rule matched, or until now."""
    recovers_at: datetime | None
    """Latest time of automatic recovery; null when none is predicted."""
    is_flapping: bool
    """Whether the incident opens and resolves again and again."""
    acknowledged_by: str
    """User who acknowledged the incident; empty without one."""
    silenced_by: str
    """Silence or maintenance window that mutes the incident; empty without one."""
    inhibited_by: str
    """Key of the incident that inhibits this incident: `proxy/<id>`; empty without one."""
    next_notification: NextNotification
    """Next notification."""
    runbook: str
    """Cause of the runbook: `GET /runbooks/{cause}`."""
    runbook_path: str
    """Path of the page of the runbook, about this incident."""


class IncidentEvidenceItem(Schema):
    """A copy of the evidence of an incident, taken when most agents were affected."""

    taken_at: datetime
    """Time of the poll that the copy shows."""
    affected_count: int
    """Number of affected agents."""
    stranded_count: int
    """How many of them were stranded."""


class TimelineItem(Schema):
    """A timeline entry of an incident."""

    at: datetime
    """Time of the event."""
    kind: str
    """Kind of the event: `firing`, `severity`, `notification`, `delivery`, `escalated`, `acknowledged`, `resolved`."""
    actor: str
    """User who acted; empty: Refloat."""
    text: str
    """The event in words."""


class IncidentResponse(IncidentItem):
    """An incident, with its timeline and the size of the copy of its evidence."""

    timeline: list[TimelineItem]
    """Timeline, the newest entry first; at most 100."""

    evidence: IncidentEvidenceItem | None
    """Copy of the evidence; null without one: no agent was affected, or the incident is older than such copies."""


class CommonAttributePart(Schema):
    """One value of an attribute of the affected agents."""

    name: str
    """Value of the attribute: `proxy-1`."""
    count: int
    """Number of affected agents with this value."""
    share: int
    """Share of the affected agents, in percent."""


class CommonAttribute(Schema):
    """The most frequent values of one attribute of the affected agents."""

    title: str
    """Name of the attribute: `Home proxy`."""
    parts: list[CommonAttributePart]
    """The five most frequent values."""
    more: int
    """Number of other values."""


class PairItem(Schema):
    """The agents with one home proxy and one auth."""

    home_proxy: str
    """Name of the home proxy; `none` without one."""
    auth: str
    """Name of the auth of the last heartbeat; `none` without one."""
    affected_count: int
    """Number of affected agents."""
    agent_count: int
    """Number of agents of the fleet."""


class IncidentEvidenceResponse(IncidentEvidenceItem):
    """One page of the affected agents of an incident's copy, with what they have in common."""

    number: int
    """Number of the incident."""
    common_attributes: list[CommonAttribute]
    """Common attributes of all affected agents."""
    pairs: list[PairItem]
    """Affected agents by home proxy and auth: the data of the heat map. Pairs without affected agents are left out."""
    listed_count: int
    """Number of agents in the copy: fewer than `affected_count` if more than 100,000 agents were affected."""
    next_offset: int | None
    """Value of `offset` for the next page; null on the last page."""
    agents: list[AgentItem]
    """Agents on this page, stranded ones first. Times of heartbeats are not part of the copy."""


class EvidencePage(QueryParameters):
    """Query parameters of the evidence of an incident."""

    offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Number of agents to skip."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    """Most agents in the response."""


class IncidentsResponse(Schema):
    """A list of incidents."""

    cluster: str
    """Id of the cluster."""
    incidents: list[IncidentItem]
    """Incidents, the newest first."""


@per_cluster.get("/incidents", auth=_VIEW, response={200: IncidentsResponse, **REFUSAL_RESPONSES})
def list_incidents(request: HttpRequest, cluster: str, filters: Query[IncidentFilters]) -> Any:
    """List incidents.

    The newest incidents are first.
    """
    now = record_reader.current_time()
    rows = Incident.objects.filter(cluster=require_cluster(cluster))
    if filters.state == "open":
        rows = rows.filter(state__in=OPEN_STATES)
    elif filters.state != "all":
        rows = rows.filter(state=filters.state)
    return {"cluster": cluster, "incidents": _present_incidents(rows[: filters.limit], cluster, now)}


@per_cluster.get("/incidents/{int:number}", auth=_VIEW, response={200: IncidentResponse, **REFUSAL_RESPONSES})
def show_incident(request: HttpRequest, cluster: str, number: int) -> Any:
    """Show an incident.

    The response has its timeline, and whether a copy of its evidence exists.
    """
    row = _require_incident(cluster, number)
    (incident,) = _present_incidents([row], cluster, record_reader.current_time())
    copy_mark = read_copy_mark(row.pk)
    return {
        **{name: getattr(incident, name) for name in IncidentItem.model_fields},
        "timeline": [
            TimelineItem(at=to_moment(event.at), kind=event.kind, actor=event.actor_name, text=event.text)
            for event in row.events.order_by("-at", "-pk")[:_MAX_TIMELINE_LENGTH]
        ],
        "evidence": None
        if copy_mark is None
        else IncidentEvidenceItem(
            taken_at=to_moment(copy_mark.taken_at),
            affected_count=copy_mark.affected_count,
            stranded_count=copy_mark.stranded_count,
        ),
    }


@per_cluster.get(
    "/incidents/{int:number}/evidence",
    auth=_VIEW,
    response={200: IncidentEvidenceResponse, **REFUSAL_RESPONSES},
)
def show_evidence(request: HttpRequest, cluster: str, number: int, page: Query[EvidencePage]) -> Any:
    """Show the evidence of an incident.

    The response has the agents that were affected when most agents were, and what they had in common.
    """
    row = _require_incident(cluster, number)
    try:
        evidence = read_evidence(row.pk)
    except EvidenceError as error:
        raise HttpError(409, sentence_of(error)) from error
    if evidence is None:
        raise HttpError(404, f"Incident {number} has no copy of its evidence.")
    table = table_of_evidence(evidence)
    listed_count = len(evidence.ids)
    all_positions = np.arange(listed_count)
    end = min(page.offset + page.limit, listed_count)
    views = agent_views_of(evidence, range(min(page.offset, listed_count), end))
    return {
        "number": row.pk,
        "taken_at": to_moment(evidence.taken_at),
        "affected_count": evidence.affected_count,
        "stranded_count": evidence.stranded_count,
        "common_attributes": find_common_attributes(table, all_positions),
        "pairs": list_pairs(table, all_positions, evidence.agent_count_by_pair),
        "listed_count": listed_count,
        "next_offset": end if end < listed_count else None,
        "agents": agent_items_of(views, table.instances.values()),
    }


@per_cluster.post(
    "/incidents/{int:number}/acknowledge", auth=_ACT, response={200: IncidentItem, **REFUSAL_RESPONSES}
)
def acknowledge_incident(request: HttpRequest, cluster: str, number: int) -> Any:
    """Acknowledge an incident.

    The incident is not escalated and its notifications are not repeated while it is acknowledged.
    """
    row = _require_incident(cluster, number)
    now = record_reader.current_time()
    incident_actions.acknowledge(row, caller_of(request).get_username(), now, settings.REFLOAT_PUBLIC_URL)
    row.refresh_from_db()
    return _present_incidents([row], cluster, now)[0]


def _require_incident(cluster: str, number: int) -> Incident:
    """Return an incident. Raises HttpError 404."""
    row = Incident.objects.filter(cluster=require_cluster(cluster), pk=row_id_or_zero(number)).first()
    if row is None:
        raise HttpError(404, f"Incident {number} was not found in cluster {cluster}.")
    return row


def _present_incidents(rows: Iterable[Incident], cluster: str, now: float) -> list[IncidentView]:
    rules, tree, rows = store.read_rules(cluster), store.read_routes(cluster), list(rows)
    active_silences, describer = read_active_silences(cluster, now), find_describer(cluster, now)
    finder = find_runbook_finder(rows, cluster, now)
    return [
        present_incident(
            row,
            now,
            url_prefix_of(cluster),
            active_silences=active_silences,
            describer=describer,
            next_notification=next_notification_of(row, rules, now, tree, active_silences),
            runbook=finder.find(store.incident_of(row)),
        )
        for row in rows
    ]
