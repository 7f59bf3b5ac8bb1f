"""API route that marks instances as degraded. docs/reference/api.md."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from django.http import HttpRequest
from django.utils import timezone
from ninja import Router, Status
from pydantic import Field

from dashboards.changes.api.drain import require_reason, require_target_instance
from dashboards.shared import request_actor
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    request_actor_of,
    require_cluster,
    require_reauthentication,
)
from dashboards.shared.api.parameters import RequestBody, Schema
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.capabilities.missing import require_capability
from fleet.changes.operations import degradations
from fleet.changes.operations.degradations import DegradeRequest
from fleet.models.access import Permission
from fleet.protocol.destination.instance_status import LONGEST_REASON
from fleet.vocabulary.capabilities import Capability

router = Router()
per_cluster = PerCluster(router)
_ACT = ApiAccess(Permission.ACT_ON_FLEET)


class DegradeInstanceRequest(RequestBody):
    """A request to mark an instance as degraded, or to clear the mark."""

    is_degraded: bool
    """`true`: mark the instance as degraded; `false`: clear that."""
    reason: Annotated[str, Field(max_length=LONGEST_REASON)]
    """Reason, which the instance reports."""
    minutes: Annotated[float, Field(gt=0, le=1440)] = 10.0
    """Duration in minutes; then the instance clears the mark."""


class DegradeInstanceResponse(Schema):
    """The request as it was sent; `GET /instances` shows what the instance reports."""

    id: str
    """Host UUID of the instance."""
    name: str
    """Name of the instance."""
    is_degraded: bool
    """Requested value."""
    reason: str
    """Reason in the request."""
    ends_at: datetime | None
    """When the instance clears the mark; null for a request to clear it now."""
    change_id: int
    """Number of the change, whose state says whether the instance accepted the request."""


@per_cluster.post(
    "/instances/{instance_id}/degrade",
    auth=_ACT,
    response={202: DegradeInstanceResponse, **REFUSAL_RESPONSES},
)
def degrade_instance(
    request: HttpRequest, cluster: str, instance_id: str, body: DegradeInstanceRequest
) -> Any:
    """Mark an instance as degraded, or clear the mark.

    A worker asks the instance to report itself as degraded, so that balancers prefer other instances.
    """
    require_capability(require_cluster(cluster), Capability.RECONNECT_ADVICE)
    view = require_target_instance(cluster, instance_id).view
    facts = view.facts
    require_reauthentication(request)
    reason, seconds = require_reason(body.reason), body.minutes * 60 if body.is_degraded else 0.0
    degrade_request = DegradeRequest(
        facts.id,
        facts.name,
        body.is_degraded,
        seconds,
        was_degraded=facts.watch.degraded_reason is not None,
        agent_count=view.agent_count,
    )
    change = degradations.request_degradation(
        cluster, degrade_request, request_actor_of(request), reason, timezone.now
    )
    request_actor.enqueue_change(change)
    ends_at = timezone.now() + timedelta(seconds=seconds) if body.is_degraded else None
    return Status(
        202,
        DegradeInstanceResponse(
            id=facts.id,
            name=facts.name,
            is_degraded=body.is_degraded,
            reason=reason,
            ends_at=ends_at,
            change_id=change.pk,
        ),
    )
