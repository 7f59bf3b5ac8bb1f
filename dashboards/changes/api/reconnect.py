"""Reconnect campaigns by the API, and what is done to one, or to a rollout, that runs. docs/api.md."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Query, Router, Schema, Status
from pydantic import Field

from dashboards.changes import campaign_plans, campaign_rows, change_rows
from dashboards.changes.api import changes as change_routes
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    ChangeAnswer,
    respond_with_change,
    actor_of,
    document_etag,
    require_cluster,
    set_etag,
    version_of,
    document_if_match,
)
from dashboards.shared.api.parameters import Body, Parameters
from dashboards.shared.api.per_cluster import PerCluster
from fleet.changes import kinds
from fleet.changes.kinds import kind_of
from fleet.models.access import Permission
from fleet.models.changes import Change
from fleet.models.moments import to_seconds

router = Router()
per_cluster = PerCluster(router)
_VIEW, _ACT = ApiAccess(Permission.VIEW_FLEET), ApiAccess(Permission.ACT_ON_FLEET)
_STEP = document_if_match("/changes/{id}", 200)


class CampaignPlanBody(Body):
    """Whom (all that is given must hold), and how fast."""

    #: Which connection moves: the tunnel to a proxy, or the connection to an auth; default: "auth" if `auth` is given.
    connection: Literal["", "tunnel", "auth"] = ""
    #: The filter of the Agents page; the name or id of a proxy, or of an auth, to leave; names or ids of agents.
    q: Annotated[str, Field(max_length=2000)] = ""
    proxy: Annotated[str, Field(max_length=200)] = ""
    auth: Annotated[str, Field(max_length=200)] = ""
    agents: Annotated[list[str], Field(default_factory=list)]
    #: rate, per_proxy, canaries, hold, jitter, patience, max_failed, max_stranded, window_from, window_to.
    pace: Annotated[dict[str, int | str], Field(default_factory=dict)]


class ChangeProgress(Schema):
    """How far a change is: agents of a campaign, instances of a rollout, tunnels that were to close."""

    id: int
    #: What the change's ETag names, for If-Match.
    revision: str
    kind: str
    state: str
    detail: str
    total: int
    done: int
    percent: int
    failed: int
    #: Of a campaign.
    ok: int | None = None
    skipped: int | None = None
    remaining: int | None = None
    eta_seconds: float | None = None
    waits_for: str = ""


class ResultItem(Schema):
    """One agent of a campaign."""

    id: str
    name: str
    state: str
    reason: str
    #: The proxy or auth it was asked to leave.
    leaves: str
    #: The proxy through which it was asked to leave an auth.
    via: str
    new_proxy: str
    new_auth: str
    seconds: float | None


class ResultsAnswer(Schema):
    """Agents of a campaign in the order of their turns; `next` is the `after` of the page after it."""

    next: int | None
    agents: list[ResultItem]


class ResultFilters(Parameters):
    """Parameters of the results."""

    state: str = ""
    after: Annotated[int, Field(ge=-1, lt=2**31)] = -1
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class ChangeActionBody(Body):
    """What to do."""

    do: Literal["pause", "resume", "stop", "abort"]


@per_cluster.post(
    "/reconnect/plan",
    auth=_ACT,
    response={201: ChangeAnswer, **REFUSAL_RESPONSES},
    openapi_extra=document_etag(201),
)
def plan(request: HttpRequest, response: HttpResponse, cluster: str, body: CampaignPlanBody) -> Any:
    """Plan a campaign, its list of agents frozen; nobody is asked before it is confirmed."""
    filters = {
        "connection": body.connection,
        "q": body.q,
        "proxy": body.proxy,
        "auth": body.auth,
        "agents": "\n".join(body.agents),
    }
    change = campaign_plans.plan_campaign(require_cluster(cluster), filters, body.pace, actor_of(request), timezone.now())
    return Status(201, respond_with_change(response, change))


@per_cluster.get(
    "/changes/{int:change_id}/progress",
    auth=_VIEW,
    response={200: ChangeProgress, **REFUSAL_RESPONSES},
    openapi_extra=document_etag(),
)
def progress(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    """Say how far a change is."""
    return _create_progress_response(response, change_routes.require_change(cluster, change_id))


@per_cluster.get("/changes/{int:change_id}/agents", auth=_VIEW, response={200: ResultsAnswer, **REFUSAL_RESPONSES})
def results(request: HttpRequest, cluster: str, change_id: int, filters: Query[ResultFilters]) -> Any:
    """List what became of each agent of a campaign."""
    return _create_results_response(change_routes.require_change(cluster, change_id), filters)


@per_cluster.post(
    "/changes/{int:change_id}/do",
    auth=_ACT,
    response={200: ChangeProgress, **REFUSAL_RESPONSES},
    openapi_extra=_STEP,
)
def act(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int, body: ChangeActionBody) -> Any:
    """Pause, resume, stop or abort a campaign or a rollout that runs."""
    row = change_routes.require_permitted_change(request, cluster, change_id)
    return _create_progress_response(response, kinds.run_action(row, body.do, actor_of(request), timezone.now()))


def _create_progress_response(response: HttpResponse, row: Change) -> ChangeProgress:
    set_etag(response, version_of(row))
    common: dict[str, Any] = {
        "id": row.pk,
        "revision": version_of(row),
        "kind": row.kind,
        "state": row.state,
        "detail": row.detail,
    }
    return ChangeProgress(**common, **kind_of(row).progress_of(row, to_seconds(timezone.now())))


def _create_results_response(row: Change, filters: ResultFilters) -> ResultsAnswer:
    agent_rows = row.campaign_agents.filter(position__gt=filters.after)
    if filters.state:
        agent_rows = agent_rows.filter(state=filters.state.replace("\0", ""))
    rows, names = list(agent_rows[: filters.limit + 1]), change_rows.instance_names_of(row)
    page_rows = rows[: filters.limit]
    return ResultsAnswer(
        next=page_rows[-1].position if len(rows) > filters.limit else None,
        agents=[ResultItem(**campaign_rows.agent_result_of(agent_row, names)) for agent_row in page_rows],
    )
