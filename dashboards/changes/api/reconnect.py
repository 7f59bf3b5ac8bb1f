"""API routes of reconnect campaigns, and of the progress of campaigns and rollouts. docs/reference/api.md."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Query, Router, Status
from pydantic import Field

from dashboards.changes import campaign_plans, campaign_rows, change_rows
from dashboards.changes.api import changes as change_routes
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    ChangeResponse,
    PlanOptions,
    document_etag,
    document_if_match,
    planning_actor_of,
    request_actor_of,
    require_cluster,
    respond_with_change,
    revision_of,
    set_etag,
)
from dashboards.shared.api.parameters import QueryParameters, RequestBody, Schema
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.capabilities.missing import require_capability
from fleet.changes import kinds
from fleet.changes.kinds import kind_of
from fleet.models.access import Permission
from fleet.models.changes import Change
from fleet.models.moments import to_seconds
from fleet.vocabulary.campaigns import CampaignAgentState
from fleet.vocabulary.capabilities import Capability

router = Router()
per_cluster = PerCluster(router)
_VIEW, _ACT = ApiAccess(Permission.VIEW_FLEET), ApiAccess(Permission.ACT_ON_FLEET)
_IF_MATCH_200 = document_if_match("/changes/{id}", 200)


class CampaignTargetsRequest(RequestBody):
    """Target agents of a reconnect campaign. Agents must match every filter that is set."""

    connection: Literal["", "tunnel", "auth"] = ""
    """Connection that moves: `tunnel` (to a proxy) or `auth`; default: `auth` when `auth` is set, otherwise
    `tunnel`.
    """
    q: Annotated[str, Field(max_length=2000)] = ""
    """Filter of the Agents page."""
    proxy: Annotated[str, Field(max_length=200)] = ""
    """Name or id of the proxy that agents leave."""
    auth: Annotated[str, Field(max_length=200)] = ""
    """Name or id of the auth that agents leave."""
    agents: Annotated[list[str], Field(default_factory=list)]
    """Names or ids of agents."""


class CampaignPlanRequest(CampaignTargetsRequest):
    """Target agents and settings of a reconnect campaign."""

    preset: Annotated[str, Field(max_length=40)] = ""
    """Campaign settings by name: `careful`, `standard` (default) or `fast`."""
    settings: Annotated[dict[str, int | str], Field(default_factory=dict)]
    """Campaign settings that differ from the preset: `rate_per_minute`, `concurrency` (agents in progress per
    proxy or auth), `canary_size`,
    `soak_seconds`, `jitter_seconds`, `timeout_seconds`, `failure_threshold_percent`, `stranded_threshold` (agents),
    `window_start` and `window_end` (UTC).
    """


class LoadForecastItem(Schema):
    """The load of an instance before and after a campaign."""

    name: str
    """Name of the instance."""
    kind: Literal["auth", "proxy"]
    """Kind of the instance. Loads of auths are agents, loads of proxies are tunnels."""
    before: int
    """Load now."""
    after: int
    """Expected load after the campaign: agents choose at random between the instances that they can move to."""
    is_leaving: bool
    """Whether agents leave the instance."""


class CampaignForecastResponse(Schema):
    """What a campaign would do now."""

    target_count: int
    """Number of target agents."""
    reconnect_count: int
    """How many of them would be asked to reconnect."""
    skipped_by_reason: dict[str, int]
    """Number of skipped agents by reason."""
    agents_by_instance: dict[str, int]
    """Number of agents that reconnect, by the name of the instance that they leave."""
    loads: list[LoadForecastItem]
    """Instances that agents leave or can move to."""


class ChangeProgressResponse(Schema):
    """Progress of a change: agents of a campaign, instances of a rollout, or tunnels to close."""

    id: int
    """Number of the change."""
    revision: str
    """Revision in the ETag, to send as If-Match."""
    kind: str
    """Kind of the change."""
    state: str
    """State of the change."""
    state_label: str
    """State as pages name it: `aborted` for a change that was cancelled after it had started, otherwise the state."""
    detail: str
    """Progress in one sentence."""
    total_count: int
    """Number of agents, instances or tunnels."""
    finished_count: int
    """How many of them are finished; of a rollout, the instances that have restarted."""
    percent: int
    """Percentage that is finished."""
    failed_count: int
    """How many of them failed."""
    pending_count: int | None = None
    """Campaigns and rollouts: number of pending agents or instances; otherwise null."""
    scheduled_count: int | None = None
    """Campaigns: number of agents that Refloat asks to reconnect within seconds; otherwise null."""
    in_progress_count: int | None = None
    """Campaigns and rollouts: number of agents or instances in progress; otherwise null."""
    succeeded_count: int | None = None
    """Campaigns and rollouts: number of agents or instances that succeeded; otherwise null."""
    skipped_count: int | None = None
    """Campaigns and rollouts: number of skipped agents or instances; otherwise null."""
    eta_seconds: float | None = None
    """Campaigns: estimated seconds to the end; null while only canaries are in progress, and otherwise."""
    waiting_for: str = ""
    """Campaigns and rollouts: why no further agent or instance starts now; empty otherwise."""
    resume_warning: str = ""
    """Paused campaigns: that the campaign will abort soon after it is resumed, and why; empty otherwise."""


class CampaignAgentItem(Schema):
    """An agent of a campaign."""

    id: str
    """Host UUID of the agent."""
    name: str
    """Hostname of the agent."""
    state: str
    """State of the agent in the campaign: `pending`, `scheduled`, `in-progress`, `succeeded`, `failed` or `skipped`."""
    reason: str
    """Why the agent failed or was skipped."""
    from_instance: str
    """Proxy or auth that the agent is asked to leave."""
    via_proxy: str
    """Proxy that asks the agent to leave an auth."""
    new_proxy: str
    """Proxy that the agent moved to."""
    new_auth: str
    """Auth that the agent moved to."""
    duration_seconds: float | None
    """Seconds from the request to the result; null before that."""


class CampaignAgentsResponse(Schema):
    """One page of a campaign's agents."""

    next: int | None
    """Value of `after` for the next page; null on the last page."""
    agents: list[CampaignAgentItem]
    """Agents in the order of the campaign."""


class CampaignAgentFilters(QueryParameters):
    """Query parameters of the list of a campaign's agents."""

    state: CampaignAgentState | Literal[""] = ""
    """Only agents in this state."""
    after: Annotated[int, Field(ge=-1, lt=2**31)] = -1
    """Value of `next` in the previous page."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    """Most agents in the response."""


class ChangeActionRequest(RequestBody):
    """An action on a running change."""

    action: Literal["pause", "resume", "stop", "abort"]
    """`pause`, `resume`, `stop` (skip what is pending, finish what is in progress) or `abort` (campaigns: end now)."""


@per_cluster.post(
    "/reconnect/plan",
    auth=_ACT,
    response={201: ChangeResponse, **REFUSAL_RESPONSES},
    openapi_extra=document_etag(201),
)
def plan_reconnect_campaign(
    request: HttpRequest,
    response: HttpResponse,
    cluster: str,
    body: CampaignPlanRequest,
    options: Query[PlanOptions],
) -> Any:
    """Plan a reconnect campaign.

    The list of target agents is fixed when the plan is made. No agent is asked to reconnect before you confirm the
    change.
    """
    require_capability(require_cluster(cluster), Capability.RECONNECT_ADVICE)
    change = campaign_plans.plan_campaign(
        cluster,
        _filters_of(body),
        body.settings,
        planning_actor_of(request, options),
        timezone.now(),
        body.preset,
    )
    return Status(201, respond_with_change(response, change))


@per_cluster.get(
    "/changes/{int:change_id}/progress",
    auth=_VIEW,
    response={200: ChangeProgressResponse, **REFUSAL_RESPONSES},
    openapi_extra=document_etag(),
)
def get_change_progress(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    """Get the progress of a change.

    The numbers are agents of a campaign, instances of a rollout, or tunnels to close.
    """
    return _create_progress_response(response, change_routes.require_change(cluster, change_id))


@per_cluster.get(
    "/changes/{int:change_id}/agents", auth=_VIEW, response={200: CampaignAgentsResponse, **REFUSAL_RESPONSES}
)
def list_campaign_agents(
    request: HttpRequest, cluster: str, change_id: int, filters: Query[CampaignAgentFilters]
) -> Any:
    """List the agents of a campaign.

    Each agent has its state and its result.
    """
    return _create_agents_response(change_routes.require_change(cluster, change_id), filters)


@per_cluster.post(
    "/changes/{int:change_id}/actions",
    auth=_ACT,
    response={200: ChangeProgressResponse, **REFUSAL_RESPONSES},
    openapi_extra=_IF_MATCH_200,
)
def run_change_action(
    request: HttpRequest, response: HttpResponse, cluster: str, change_id: int, body: ChangeActionRequest
) -> Any:
    """Pause, resume, stop or abort a change.

    Only for running campaigns and rollouts.
    """
    row = change_routes.require_permitted_change(request, cluster, change_id)
    return _create_progress_response(
        response, kinds.run_action(row, body.action, request_actor_of(request), timezone.now())
    )


@per_cluster.post(
    "/reconnect/forecast", auth=_ACT, response={200: CampaignForecastResponse, **REFUSAL_RESPONSES}
)
def forecast_reconnect_campaign(request: HttpRequest, cluster: str, body: CampaignTargetsRequest) -> Any:
    """Forecast a reconnect campaign.

    Nothing is stored: the response says which agents a campaign would move now, and where to.
    """
    require_capability(require_cluster(cluster), Capability.RECONNECT_ADVICE)
    forecast = campaign_plans.forecast_targets(cluster, _filters_of(body))
    return CampaignForecastResponse(
        target_count=forecast.target_count,
        reconnect_count=forecast.reconnect_count,
        skipped_by_reason=dict(forecast.skipped_by_reason),
        agents_by_instance=dict(forecast.agents_by_instance),
        loads=[
            LoadForecastItem(
                name=load.name,
                kind=load.kind.value,
                before=load.before,
                after=load.after,
                is_leaving=load.is_leaving,
            )
            for load in forecast.loads
        ],
    )


def _filters_of(body: CampaignTargetsRequest) -> dict[str, str]:
    return {
        "connection": body.connection,
        "q": body.q,
        "proxy": body.proxy,
        "auth": body.auth,
        "agents": "\n".join(body.agents),
    }


def _create_progress_response(response: HttpResponse, row: Change) -> ChangeProgressResponse:
    set_etag(response, revision_of(row))
    common: dict[str, Any] = {
        "id": row.pk,
        "revision": revision_of(row),
        "kind": row.kind,
        "state": row.state,
        "state_label": row.state_label,
        "detail": row.detail,
    }
    return ChangeProgressResponse(**common, **kind_of(row).progress_of(row, to_seconds(timezone.now())))


def _create_agents_response(row: Change, filters: CampaignAgentFilters) -> CampaignAgentsResponse:
    agent_rows = row.campaign_agents.filter(position__gt=filters.after)
    if filters.state:
        agent_rows = agent_rows.filter(state=filters.state)
    rows, names = list(agent_rows[: filters.limit + 1]), change_rows.instance_names_of(row)
    page_rows = rows[: filters.limit]
    return CampaignAgentsResponse(
        next=page_rows[-1].position if len(rows) > filters.limit else None,
        agents=[
            CampaignAgentItem(**campaign_rows.campaign_agent_row_of(agent_row, names))
            for agent_row in page_rows
        ],
    )
