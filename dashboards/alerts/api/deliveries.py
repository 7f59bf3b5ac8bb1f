"""API routes of the delivery log: what was sent to which channel, and how it ended. docs/reference/api.md."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from ninja import Query, Router
from ninja.errors import HttpError
from pydantic import Field

from dashboards.alerts.api.setup_fields import CHANGE, VIEW, RowNumber
from dashboards.alerts.api.writable_rows import require_owner, row_id_or_zero
from dashboards.alerts.delivery_rows import delivery_row_of
from dashboards.shared import record_reader
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    caller_of,
    request_actor_of,
    require_cluster,
)
from dashboards.shared.api.parameters import QueryParameters, Schema
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.presenters import to_moment_or_none
from dashboards.shared.row_ids import parse_row_id
from fleet.alerts import incident_actions
from fleet.models.access import Permission, audit_log_clusters_of, has_cluster_limit
from fleet.models.alerting import Delivery
from fleet.models.moments import to_moment

router = Router()
per_cluster = PerCluster(router)
#: Deliveries by the state of the query.
_CONDITION_OF_STATE = {
    "": Q(),
    "sent": ~Q(sent_at=None),
    "failed": Q(sent_at=None) & ~Q(failed_at=None),
    "waiting": Q(sent_at=None, failed_at=None),
}


class DeliveryFilters(QueryParameters):
    """Query parameters of the delivery log."""

    channel: RowNumber | None = None
    """Number of a channel."""
    incident: RowNumber | None = None
    """Number of an incident."""
    state: Literal["", "sent", "failed", "waiting"] = ""
    """State: `sent`, `failed`, or `waiting` for those that are still to be sent."""
    cursor: Annotated[str, Field(pattern=r"^[0-9]{0,15}$")] = ""
    """Value of `next` in the previous page."""
    limit: Annotated[int, Field(ge=1, le=500)] = 100
    """Most notifications in the response."""


class DeliveryItem(Schema):
    """One notification to one channel."""

    number: int
    """Number of the delivery."""
    incident: int | None
    """Number of the incident; null for tests and digests."""
    kind: str
    """Reason for the notification: `firing`, `worse`, `repeat`, `escalated`, `resolved`, `test`."""
    subject: str
    """Subject of the notification."""
    channel: int | None
    """Number of the channel; null: the channel was deleted."""
    channel_name: str
    """Name of the channel."""
    state: str
    """`sent`, `failed` (given up), `sending` or `waiting`."""
    created_at: datetime
    """When the notification was due."""
    attempts: int
    """Number of attempts so far."""
    attempted_at: datetime | None
    """End of the last attempt; null: there was none."""
    next_attempt_at: datetime | None
    """Earliest time of the next attempt; null: there is none, or it is due and waits for its turn."""
    delay_reason: str
    """Why it waits: quiet hours, the rate limit, the wait that the receiver asked for, earlier notifications of
    the channel; empty if it does not."""
    error: str
    """Error of the last attempt; empty: none. Hidden from users with a cluster limit for channels of the whole
    installation, since it may contain the address.
    """
    key: str
    """Key that is the same for every attempt: receivers drop a notification whose key they have seen."""


class DeliveriesResponse(Schema):
    """One page of the delivery log."""

    cluster: str
    """Id of the cluster."""
    next: str | None
    """Value of `cursor` for the next page; null on the last page."""
    deliveries: list[DeliveryItem]
    """Notifications, the newest first."""


@per_cluster.get("/deliveries", auth=VIEW, response={200: DeliveriesResponse, **REFUSAL_RESPONSES})
def list_deliveries(request: HttpRequest, cluster: str, filters: Query[DeliveryFilters]) -> Any:
    """List notifications in the delivery log.

    The log has one row for each notification and channel. Tests and digests of channels of the whole installation are
    listed for users without a cluster limit.
    """
    now = record_reader.current_time()
    rows = _visible_rows(request, cluster).filter(_CONDITION_OF_STATE[filters.state])
    if filters.channel is not None:
        rows = rows.filter(channel=filters.channel)
    if filters.incident is not None:
        rows = rows.filter(incident=filters.incident)
    if filters.cursor:
        rows = rows.filter(pk__lt=parse_row_id(filters.cursor))
    page_rows = list(rows[: filters.limit + 1])
    has_more = len(page_rows) > filters.limit
    page_rows = page_rows[: filters.limit]
    return DeliveriesResponse(
        cluster=cluster,
        next=str(page_rows[-1].pk) if has_more else None,
        deliveries=[_item_of(request, row, now) for row in page_rows],
    )


@per_cluster.post(
    "/deliveries/{int:number}/resend", auth=CHANGE, response={200: DeliveryItem, **REFUSAL_RESPONSES}
)
def resend_delivery(request: HttpRequest, cluster: str, number: int) -> Any:
    """Send a failed notification again.

    One that is waiting is sent at once. It keeps its key, so a receiver that has seen it drops it.
    """
    row = _visible_rows(request, cluster).filter(pk=row_id_or_zero(number)).first()
    if row is None:
        raise HttpError(404, f"Delivery {number} was not found in cluster {cluster}.")
    require_owner(request, Permission.CHANGE_CONFIG, cluster)
    if row.channel is None:
        raise HttpError(409, f"The channel {row.channel_name} was deleted.")
    if row.sent_at is not None:
        raise HttpError(
            409, "The notification was sent. Only failed and waiting notifications can be sent again."
        )
    now = record_reader.current_time()
    incident_actions.retry_delivery(row, now, request_actor_of(request))
    row.refresh_from_db()
    return _item_of(request, row, now)


def _visible_rows(request: HttpRequest, cluster: str) -> QuerySet[Delivery]:
    """Return the rows that the caller may see, the newest first. Raises HttpError 404."""
    is_limited_user = has_cluster_limit(caller_of(request))
    clusters = audit_log_clusters_of(require_cluster(cluster), is_limited_user=is_limited_user)
    return Delivery.objects.filter(cluster__in=clusters).select_related("channel").order_by("-pk")


def _item_of(request: HttpRequest, row: Delivery, now: float) -> DeliveryItem:
    log_row = delivery_row_of(row, now, is_limited_user=has_cluster_limit(caller_of(request)))
    is_open = row.sent_at is None and row.failed_at is None
    return DeliveryItem(
        number=row.pk,
        incident=row.incident_id,
        kind=row.kind,
        subject=log_row["subject"],
        channel=row.channel_id,
        channel_name=row.channel_name if row.channel is None else row.channel.name,
        state=log_row["state"],
        created_at=to_moment(row.created_at),
        attempts=row.attempts,
        attempted_at=to_moment_or_none(row.attempted_at),
        next_attempt_at=log_row["at"] if is_open else None,
        delay_reason=log_row["delay_reason"],
        error=log_row["error"],
        key=row.key,
    )
