"""API route that plans to take an instance out of service and to reconnect its agents. docs/reference/api.md."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status
from ninja.errors import HttpError
from pydantic import Field

from dashboards.changes.api.drain import require_target_instance
from dashboards.changes.campaign_plans import parse_settings
from dashboards.changes.service import plan_out_of_service
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    ChangeResponse,
    PlanOptions,
    document_etag,
    planning_actor_of,
    require_cluster,
    respond_with_change,
)
from dashboards.shared.api.parameters import RequestBody
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.capabilities.missing import require_capability
from fleet.models.access import Permission
from fleet.vocabulary.capabilities import Capability

router = Router()
per_cluster = PerCluster(router)
_ACT = ApiAccess(Permission.ACT_ON_FLEET)


class OutOfServicePlanRequest(RequestBody):
    """How the agents of the instance move."""

    preset: Annotated[str, Field(max_length=40)] = ""
    """Campaign settings by name: `careful`, `standard` (default) or `fast`."""
    settings: Annotated[dict[str, int | str], Field(default_factory=dict)]
    """Campaign settings that differ from the preset, as in `POST /reconnect/plan`."""
    allow_last: bool = False
    """Drain the instance although no other instance of its kind accepts connections."""


@per_cluster.post(
    "/instances/{instance_id}/out-of-service/plan",
    auth=_ACT,
    response={201: ChangeResponse, **REFUSAL_RESPONSES},
    openapi_extra=document_etag(201),
)
def plan_instance_out_of_service(
    request: HttpRequest,
    response: HttpResponse,
    cluster: str,
    instance_id: str,
    body: OutOfServicePlanRequest,
    options: Query[PlanOptions],
) -> Any:
    """Plan to take an instance out of service.

    The change drains the instance and reconnects its agents to other instances. Nothing runs before you confirm the
    change; undo the change to bring the instance back.
    """
    require_capability(require_cluster(cluster), Capability.RECONNECT_ADVICE)
    target_instance = require_target_instance(cluster, instance_id)
    if target_instance.is_last_of_kind and not body.allow_last:
        facts = target_instance.view.facts
        raise HttpError(
            409,
            f"No other {facts.kind.value} accepts connections. Send `allow_last: true` to drain {facts.name} anyway.",
        )
    settings = parse_settings(body.settings, body.preset)
    change = plan_out_of_service(target_instance, settings, planning_actor_of(request, options))
    return Status(201, respond_with_change(response, change))
