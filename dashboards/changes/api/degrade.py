"""Degrading instances by the API. docs/api.md."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Any

from celery import current_app
from django.http import HttpRequest
from django.utils import timezone
from kombu.exceptions import OperationalError
from ninja import Router, Schema, Status
from ninja.errors import HttpError
from pydantic import Field

from dashboards.changes.api.drain import require_reason, require_target
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import REFUSAL_RESPONSES, actor_of, require_reauthentication
from dashboards.shared.api.parameters import Body
from dashboards.shared.api.per_cluster import PerCluster
from fleet.changes.standing import degradations
from fleet.changes.standing.degradations import DegradeRequest
from fleet.models.access import Permission
from fleet.protocol.destination.instance_status import LONGEST_REASON

router = Router()
per_cluster = PerCluster(router)
_ACT = ApiAccess(Permission.ACT_ON_FLEET)
#: A request that no worker takes within this is dropped, seconds: an operator would not expect it any more.
_TASK_EXPIRY_SECONDS = 60


class DegradeBody(Body):
    """Whether an instance reports that it is degraded, why, and how long."""

    degraded: bool
    reason: Annotated[str, Field(max_length=LONGEST_REASON)]
    minutes: Annotated[float, Field(gt=0, le=1440)] = 10.0


class DegradeAnswer(Schema):
    """The request that was sent; `GET /instances` shows what the instance reports."""

    id: str
    name: str
    degraded: bool
    reason: str
    #: When the instance ends it by itself; null for a request to end it now.
    until: datetime | None


@per_cluster.post("/instances/{instance_id}/degrade", auth=_ACT, response={202: DegradeAnswer, **REFUSAL_RESPONSES})
def degrade(request: HttpRequest, cluster: str, instance_id: str, body: DegradeBody) -> Any:
    """Have an instance report that it is degraded, so that balancers prefer others, or that it is so no longer."""
    facts = require_target(cluster, instance_id).view.facts
    require_reauthentication(request)
    actor, seconds = actor_of(request), body.minutes * 60 if body.degraded else 0.0
    degrade_request = DegradeRequest(
        cluster, facts.id, facts.name, body.degraded, require_reason(body.reason), seconds, actor.request_id
    )

    def send_task() -> None:
        task = "fleet.tasks.degrade_instance"
        try:
            current_app.send_task(task, kwargs=asdict(degrade_request), expires=_TASK_EXPIRY_SECONDS)
        except OperationalError as error:
            raise HttpError(503, "No worker can be reached, so nothing was requested: try again.") from error

    degradations.submit_degrade_request(degrade_request, actor.identity, send_task)
    until = timezone.now() + timedelta(seconds=seconds) if body.degraded else None
    return Status(
        202,
        DegradeAnswer(
            id=facts.id, name=facts.name, degraded=body.degraded, reason=degrade_request.reason, until=until
        ),
    )
