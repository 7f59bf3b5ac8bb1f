"""Retiring agents by the API. docs/api.md."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router, Schema
from ninja.errors import HttpError
from pydantic import Field

from dashboards.fleet.retire import is_alive, request_retirement
from dashboards.shared import record_reader
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import REFUSAL_RESPONSES, actor_of, require_cluster, require_reauthentication
from dashboards.shared.api.parameters import Body
from dashboards.shared.api.per_cluster import PerCluster
from fleet.changes.standing.retirements import MAX_REASON_LENGTH, problem_of
from fleet.models.access import Permission

router = Router()
per_cluster = PerCluster(router)
_ACT = ApiAccess(Permission.ACT_ON_FLEET)


class Retiring(Body):
    """Whether an agent is retired, and why; `alive`: it is meant although the agent shows a sign of life."""

    retired: bool
    reason: Annotated[str, Field(max_length=MAX_REASON_LENGTH)]
    alive: bool = False


class RetiredAnswer(Schema):
    """What is wanted of an agent now."""

    id: str
    name: str
    retired: bool


@per_cluster.post("/agents/{agent_id}/retire", auth=_ACT, response={200: RetiredAnswer, **REFUSAL_RESPONSES})
def retire(request: HttpRequest, cluster: str, agent_id: str, body: Retiring) -> Any:
    """Retire an agent that is gone for good, or have it count again. The verdict follows within a round or two."""
    explanation = record_reader.reader().explain(require_cluster(cluster), agent_id, record_reader.current_time())
    if explanation is None:
        raise HttpError(404, f"There is no agent {agent_id} in the cluster {cluster}.")
    require_reauthentication(request)
    if problem := problem_of(body.reason):
        raise HttpError(400, problem)
    if body.retired and not body.alive and is_alive(explanation):
        raise HttpError(
            409, f"{explanation.view.name} is alive: send `alive: true` if it is to be retired all the same."
        )
    request_retirement(cluster, explanation, actor_of(request), retired=body.retired, reason=body.reason)
    return RetiredAnswer(id=explanation.view.id, name=explanation.view.name, retired=body.retired)
