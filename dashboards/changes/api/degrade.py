"""API route that marks instances as degraded. docs/reference/api.md."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Any

from celery import current_app
from django.http import HttpRequest
from django.utils import timezone
from kombu.exceptions import OperationalError
from ninja import Router, Status
from ninja.errors import HttpError
from pydantic import Field

from dashboards.changes.api.drain import require_reason, require_target_instance
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    request_actor_of,
    require_reauthentication,
)
from dashboards.shared.api.parameters import RequestBody, Schema
from dashboards.shared.api.per_cluster import PerCluster
from fleet.changes.operations import degradations
from fleet.changes.operations.degradations import DegradeRequest
from fleet.models.access import Permission
from fleet.protocol.destination.instance_status import LONGEST_REASON

router = Router()
per_cluster = PerCluster(router)
_ACT = ApiAccess(Permission.ACT_ON_FLEET)
#: Seconds until a request that no worker took expires: later an operator would not expect its effect.
_TASK_EXPIRY_SECONDS = 60


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
    facts = require_target_instance(cluster, instance_id).view.facts
    require_reauthentication(request)
    actor, seconds = request_actor_of(request), body.minutes * 60 if body.is_degraded else 0.0
    degrade_request = DegradeRequest(
        cluster,
        facts.id,
        facts.name,
        body.is_degraded,
        require_reason(body.reason),
        seconds,
        actor.request_id,
    )

    def send_task() -> None:
        task = "fleet.tasks.degrade_instance"
        try:
            current_app.send_task(task, kwargs=asdict(degrade_request), expires=_TASK_EXPIRY_SECONDS)
        except OperationalError as error:
            raise HttpError(503, "No worker is reachable, so the request was not sent. Try again.") from error

    degradations.submit_degrade_request(degrade_request, actor.identity, send_task)
    ends_at = timezone.now() + timedelta(seconds=seconds) if body.is_degraded else None
    return Status(
        202,
        DegradeInstanceResponse(
            id=facts.id,
            name=facts.name,
            is_degraded=body.is_degraded,
            reason=degrade_request.reason,
            ends_at=ends_at,
        ),
    )
