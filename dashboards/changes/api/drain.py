"""API routes that drain instances. docs/reference/api.md."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router
from ninja.errors import HttpError
from pydantic import Field

from dashboards.changes.service import TargetInstance, find_target_instance, request_drain
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
from dashboards.shared.capabilities.missing import require_capability
from fleet.models.access import Permission
from fleet.models.changes import Change
from fleet.models.drains import Drain
from fleet.protocol.destination.instance_status import LONGEST_REASON, is_valid_reason
from fleet.vocabulary.capabilities import Capability

router = Router()
per_cluster = PerCluster(router)
_ACT = ApiAccess(Permission.ACT_ON_FLEET)
_MIN_REASON_LENGTH = 3


class DrainInstanceRequest(RequestBody):
    """A request to drain or to undrain an instance."""

    is_drained: bool
    """`true`: drain the instance; `false`: undrain it."""
    reason: Annotated[str, Field(max_length=LONGEST_REASON)]
    """Reason, which the instance reports."""
    allow_last: bool = False
    """Drain the instance although no other instance of its kind accepts connections."""


class DrainResponse(Schema):
    """The last drain request for an instance, and what the instance reports."""

    id: str
    """Host UUID of the instance."""
    name: str
    """Name of the instance."""
    is_drained: bool | None
    """Requested value; null when nobody drained this instance with Refloat."""
    reason: str
    """Reason of the request; empty without a request."""
    requested_by: str
    """User who sent the request; empty without a request."""
    requested_at: datetime | None
    """When the request was sent; null without a request."""
    applied_at: datetime | None
    """When the instance last accepted the request; null before that."""
    error: str
    """Why the instance did not accept the request; a worker repeats the request until it does."""
    is_draining: bool
    """Whether the instance reports that it drains, requested by Refloat or by another program."""
    change_id: int | None
    """Number of the change that this request made; null in the response to GET."""


@per_cluster.get(
    "/instances/{instance_id}/drain", auth=_ACT, response={200: DrainResponse, **REFUSAL_RESPONSES}
)
def get_drain_request(request: HttpRequest, cluster: str, instance_id: str) -> Any:
    """Get the drain request of an instance.

    The response has the last request, and whether the instance accepted it.
    """
    target_instance = require_target_instance(cluster, instance_id)
    return _create_response(target_instance, target_instance.row, None)


@per_cluster.post(
    "/instances/{instance_id}/drain", auth=_ACT, response={200: DrainResponse, **REFUSAL_RESPONSES}
)
def drain_instance(request: HttpRequest, cluster: str, instance_id: str, body: DrainInstanceRequest) -> Any:
    """Drain or undrain an instance.

    A worker sends the request to the instance within seconds. A drained instance accepts no new connections.
    """
    require_capability(require_cluster(cluster), Capability.RECONNECT_ADVICE)
    target_instance = require_target_instance(cluster, instance_id)
    require_reauthentication(request)
    reason = require_reason(body.reason)
    if body.is_drained and target_instance.is_last_of_kind and not body.allow_last:
        facts = target_instance.view.facts
        raise HttpError(
            409,
            f"No other {facts.kind.value} accepts connections. Send `allow_last: true` to drain {facts.name} anyway.",
        )
    change, row = request_drain(
        target_instance, request_actor_of(request), should_drain=body.is_drained, reason=reason
    )
    return _create_response(target_instance, row, change)


def require_target_instance(cluster: str, instance_id: str) -> TargetInstance:
    """Return the instance. Raises HttpError 404."""
    target_instance = find_target_instance(
        require_cluster(cluster), instance_id, record_reader.current_time()
    )
    if target_instance is None:
        raise HttpError(404, describe_unknown_id("Instance", instance_id, cluster))
    return target_instance


def require_reason(text: str) -> str:
    """Return a reason that instances accept and people can read. Raises HttpError 400."""
    reason = text.strip()
    if len(reason) < _MIN_REASON_LENGTH or not is_valid_reason(reason):
        raise HttpError(
            400, f"`reason` must have {_MIN_REASON_LENGTH} to {LONGEST_REASON} printable characters."
        )
    return reason


def _create_response(
    target_instance: TargetInstance, row: Drain | None, change: Change | None
) -> DrainResponse:
    facts = target_instance.view.facts
    return DrainResponse(
        id=facts.id,
        name=facts.name,
        is_drained=None if row is None else row.is_drained,
        reason="" if row is None else row.reason,
        requested_by="" if row is None else row.actor_name,
        requested_at=None if row is None else row.requested_at,
        applied_at=None if row is None else row.applied_at,
        error="" if row is None else row.error,
        is_draining=target_instance.view.drain_request is not None,
        change_id=None if change is None else change.pk,
    )
