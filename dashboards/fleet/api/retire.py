"""API route that retires and reinstates agents. docs/reference/api.md."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router
from ninja.errors import HttpError
from pydantic import Field

from dashboards.fleet.api.selected_agents import SelectedAgentsRequest
from dashboards.fleet.retire import is_alive, request_retirement, request_retirements
from dashboards.shared import record_reader
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    describe_unknown_id,
    request_actor_of,
    require_cluster,
    require_reauthentication,
)
from dashboards.shared.api.parameters import RequestBody, Schema
from dashboards.shared.api.per_cluster import PerCluster
from fleet.changes.operations.retirements import MAX_REASON_LENGTH, problem_of
from fleet.models.access import Permission

router = Router()
per_cluster = PerCluster(router)
_ACT = ApiAccess(Permission.ACT_ON_FLEET)


class RetireAgentRequest(RequestBody):
    """A request to retire or to reinstate an agent."""

    is_retired: bool
    """`true`: retire the agent; `false`: reinstate it."""
    reason: Annotated[str, Field(max_length=MAX_REASON_LENGTH)]
    """Reason, for the audit log."""
    confirm_alive: bool = False
    """Retire the agent although it has a recent heartbeat or a live tunnel."""


class RetireAgentsRequest(RetireAgentRequest, SelectedAgentsRequest):
    """A request to retire or to reinstate several agents: all or none."""

    expected_count: Annotated[int, Field(ge=1)] | None = None
    """Number of agents that you expect: another number is refused with 409."""


class RetireAgentsResponse(Schema):
    """Agents after a request to retire or to reinstate them."""

    agent_count: int
    """Number of agents in the request."""
    is_retired: bool
    """Whether the agents are retired now."""
    change_id: int | None
    """Number of the change; null when all agents were in this state already."""


class RetireAgentResponse(Schema):
    """An agent after a request to retire or to reinstate it."""

    id: str
    """Host UUID of the agent."""
    name: str
    """Hostname of the agent."""
    is_retired: bool
    """Whether the agent is retired now."""
    change_id: int | None
    """Number of the change; null when the agent was in this state already."""


@per_cluster.post(
    "/agents/{agent_id}/retire", auth=_ACT, response={200: RetireAgentResponse, **REFUSAL_RESPONSES}
)
def retire_agent(request: HttpRequest, cluster: str, agent_id: str, body: RetireAgentRequest) -> Any:
    """Retire or reinstate an agent.

    A retired agent has the state `retired` and no longer counts in alerts. The state changes within two polls of
    the fleet.
    """
    explanation = record_reader.reader().explain(
        require_cluster(cluster), agent_id, record_reader.current_time()
    )
    if explanation is None:
        raise HttpError(404, describe_unknown_id("Agent", agent_id, cluster))
    require_reauthentication(request)
    if problem := problem_of(body.reason):
        raise HttpError(400, problem)
    if body.is_retired and not body.confirm_alive and is_alive(explanation):
        raise HttpError(
            409,
            f"{explanation.view.name} has a heartbeat or live tunnel. Send `confirm_alive: true` to retire it anyway.",
        )
    change = request_retirement(
        cluster, explanation, request_actor_of(request), should_retire=body.is_retired, reason=body.reason
    )
    return RetireAgentResponse(
        id=explanation.view.id,
        name=explanation.view.name,
        is_retired=body.is_retired,
        change_id=None if change is None else change.pk,
    )


@per_cluster.post("/retirements", auth=_ACT, response={200: RetireAgentsResponse, **REFUSAL_RESPONSES})
def retire_agents(request: HttpRequest, cluster: str, body: RetireAgentsRequest) -> Any:
    """Retire or reinstate several agents.

    All of them are one change, which can be undone. If one agent is unknown, none is changed.
    """
    now = record_reader.current_time()
    table = record_reader.reader().table(require_cluster(cluster), now)
    require_reauthentication(request)
    if problem := problem_of(body.reason):
        raise HttpError(400, problem)
    selection = body.select(table, now)
    if body.expected_count is not None and body.expected_count != selection.count:
        raise HttpError(409, f"The request selects {selection.subject}, not {body.expected_count:,}.")
    if body.is_retired and not body.confirm_alive and selection.alive_count:
        raise HttpError(
            409,
            f"{selection.alive_count:,} of {selection.count:,} agents have a heartbeat or live tunnel. Send "
            "`confirm_alive: true` to retire them anyway.",
        )
    change = request_retirements(
        cluster,
        table,
        selection,
        request_actor_of(request),
        should_retire=body.is_retired,
        reason=body.reason,
    )
    return RetireAgentsResponse(
        agent_count=selection.count,
        is_retired=body.is_retired,
        change_id=None if change is None else change.pk,
    )
