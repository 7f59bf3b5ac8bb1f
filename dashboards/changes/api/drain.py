"""Draining instances by the API. docs/api.md."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router, Schema
from ninja.errors import HttpError
from pydantic import Field

from dashboards.changes.drain import DrainTarget, find_target, request_drain
from dashboards.shared import record_reader
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import REFUSAL_RESPONSES, actor_of, require_cluster, require_reauthentication
from dashboards.shared.api.parameters import Body
from dashboards.shared.api.per_cluster import PerCluster
from fleet.models.access import Permission
from fleet.models.drains import Drain
from fleet.protocol.destination.instance_status import LONGEST_REASON, is_reason

router = Router()
per_cluster = PerCluster(router)
_ACT = ApiAccess(Permission.ACT_ON_FLEET)
_MIN_REASON_LENGTH = 3


class DrainBody(Body):
    """Whether an instance drains, and why; `even_last`: although no other instance of its kind accepts connections."""

    drained: bool
    reason: Annotated[str, Field(max_length=LONGEST_REASON)]
    even_last: bool = False


class DrainAnswer(Schema):
    """What operators last requested of an instance, and what the instance reports."""

    id: str
    name: str
    #: The request; null when the console never drained this instance.
    drained: bool | None
    reason: str
    requested_by: str
    requested_at: datetime | None
    #: When the instance last accepted the request, and why it did not; a worker repeats it until it does.
    applied_at: datetime | None
    error: str
    #: The instance reports that it drains, at the request of the console or of another program.
    draining: bool


@per_cluster.get("/instances/{instance_id}/drain", auth=_ACT, response={200: DrainAnswer, **REFUSAL_RESPONSES})
def drain_request(request: HttpRequest, cluster: str, instance_id: str) -> Any:
    """Read what operators last requested of an instance, and whether the instance has accepted it."""
    target = require_target(cluster, instance_id)
    return _create_response(target, target.row)


@per_cluster.post("/instances/{instance_id}/drain", auth=_ACT, response={200: DrainAnswer, **REFUSAL_RESPONSES})
def drain(request: HttpRequest, cluster: str, instance_id: str, body: DrainBody) -> Any:
    """Drain an instance, or undrain it. A worker passes the request to the instance within seconds."""
    target = require_target(cluster, instance_id)
    require_reauthentication(request)
    reason = require_reason(body.reason)
    if body.drained and target.is_last and not body.even_last:
        facts = target.view.facts
        raise HttpError(
            409,
            f"No other {facts.kind.value} accepts connections: send `even_last: true` to drain {facts.name} anyway.",
        )
    return _create_response(target, request_drain(target, actor_of(request), should_drain=body.drained, reason=reason))


def require_target(cluster: str, instance_id: str) -> DrainTarget:
    """Return the instance, or 404."""
    target = find_target(require_cluster(cluster), instance_id, record_reader.current_time())
    if target is None:
        raise HttpError(404, f"There is no instance {instance_id} in the cluster {cluster}.")
    return target


def require_reason(text: str) -> str:
    """Return a reason that instances accept and people can read, or 400."""
    reason = text.strip()
    if len(reason) < _MIN_REASON_LENGTH or not is_reason(reason):
        raise HttpError(
            400, f"`reason` must have {_MIN_REASON_LENGTH} to {LONGEST_REASON} printable characters."
        )
    return reason


def _create_response(target: DrainTarget, row: Drain | None) -> DrainAnswer:
    facts = target.view.facts
    return DrainAnswer(
        id=facts.id,
        name=facts.name,
        drained=None if row is None else row.drained,
        reason="" if row is None else row.reason,
        requested_by="" if row is None else row.who,
        requested_at=None if row is None else row.asked_at,
        applied_at=None if row is None else row.told_at,
        error="" if row is None else row.error,
        draining=target.view.drain_request is not None,
    )
