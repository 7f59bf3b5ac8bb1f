"""API route that adds agents to an agent set and removes them. docs/reference/api.md."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router
from pydantic import Field

from dashboards.fleet.api.selected_agents import SelectedAgentsRequest
from dashboards.shared import record_reader
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import REFUSAL_RESPONSES, request_actor_of, require_cluster
from dashboards.shared.api.parameters import Schema
from dashboards.shared.api.per_cluster import PerCluster
from fleet.alerts import setup_actions
from fleet.models.access import Permission

router = Router()
per_cluster = PerCluster(router)


class ChangeAgentSetRequest(SelectedAgentsRequest):
    """A request to add agents to an agent set, or to remove them: all or none."""

    agent_set: Annotated[str, Field(pattern=r"^[-a-zA-Z0-9_]{1,64}$")]
    """Name of the agent set; a new name creates the set."""
    is_member: bool = True
    """`true`: add the agents to the set; `false`: remove them."""


class ChangeAgentSetResponse(Schema):
    """The result of a request to add agents to an agent set, or to remove them."""

    agent_set: str
    """Name of the agent set."""
    is_member: bool
    """Whether the agents were added."""
    agent_count: int
    """Number of agents in the request."""
    changed_count: int
    """Number of agents that were added or removed; the others were in the requested state already."""


@per_cluster.post(
    "/agent-sets",
    auth=ApiAccess(Permission.CHANGE_CONFIG),
    response={200: ChangeAgentSetResponse, **REFUSAL_RESPONSES},
)
def change_agent_set(request: HttpRequest, cluster: str, body: ChangeAgentSetRequest) -> Any:
    """Add agents to an agent set, or remove them.

    Agents are added by their names. An agent that a pattern of the set matches remains in the set.
    """
    now = record_reader.current_time()
    table = record_reader.reader().table(require_cluster(cluster), now)
    selection = body.select(table, now)
    changed_count = setup_actions.change_agent_set_members(
        cluster, selection.names, body.agent_set, request_actor_of(request), should_add=body.is_member
    )
    return ChangeAgentSetResponse(
        agent_set=body.agent_set,
        is_member=body.is_member,
        agent_count=selection.count,
        changed_count=changed_count,
    )
