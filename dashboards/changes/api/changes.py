"""API routes of changes (list, confirm, approve, cancel, undo) and of the audit log. docs/reference/api.md."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Query, Router, Status
from ninja.errors import HttpError
from pydantic import Field

from dashboards.changes import change_rows
from dashboards.changes.audit_query import AuditQuery, describe_missing_entry, find_entry
from dashboards.shared import request_actor
from dashboards.shared.api.access import ApiAccess, describe_missing_scope
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    ChangeItem,
    ChangeResponse,
    PlanOptions,
    caller_of,
    change_fields_of,
    document_etag,
    document_if_match,
    planning_actor_of,
    request_actor_of,
    require_cluster,
    require_if_match,
    require_reauthentication,
    respond_with_change,
)
from dashboards.shared.api.parameters import QueryParameters, RequestBody, Schema
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.permissions import describe_missing_permission
from dashboards.shared.record_reader import take_record_snapshot
from fleet.changes import engine as changes
from fleet.changes import kinds
from fleet.changes.kinds import kind_of
from fleet.models.access import Permission, has_cluster_limit, has_permission
from fleet.models.changes import Change
from fleet.vocabulary.changes import PERMISSION_OF, ChangeKind

router = Router()
per_cluster = PerCluster(router)
_VIEW = ApiAccess(Permission.VIEW_FLEET)
_ACT = ApiAccess(Permission.ACT_ON_FLEET)
_AUDIT = ApiAccess(Permission.VIEW_AUDIT)
_LIST_LIMIT = 100
#: If-Match of a request names the step of the change that the caller saw.
_IF_MATCH_202, _IF_MATCH_201, _IF_MATCH_200 = (
    document_if_match("/changes/{id}", status) for status in (202, 201, 200)
)


class ChangesResponse(Schema):
    """A list of changes."""

    cluster: str
    """Id of the cluster."""
    busy_reason: str
    """Which change is running in the cluster now, as a sentence; empty when none is."""
    changes: list[ChangeItem]
    """Changes, the newest first."""


class ConfirmChangeRequest(RequestBody):
    """Confirmation of a plan."""

    reason: Annotated[str, Field(max_length=2000)]
    """Reason for the change, for the audit log."""
    confirmation: Annotated[str, Field(max_length=200)] = ""
    """The text in `confirmation_required` of the change, when that is not empty."""


class AuditFilters(QueryParameters):
    """Query parameters of the audit log."""

    q: str = ""
    """Text to search for."""
    outcome: Literal["", "succeeded", "refused", "failed"] = ""
    """Outcome: `succeeded`, `refused` or `failed`."""
    actor_kind: Literal["", "person", "token", "system"] = ""
    """Kind of the actor: `person`, `token` or `system`."""
    actor: Annotated[str, Field(max_length=200)] = ""
    """Part of the actor's name."""
    object: Annotated[str, Field(max_length=200)] = ""
    """Name or id of the object: an agent, an instance, the title of a change."""
    change: Annotated[str, Field(pattern=r"^[0-9]{0,15}$")] = ""
    """Number of a change."""
    group: Literal[
        "", "networking", "policies", "campaigns", "instances", "agents", "alerting", "access", "requests"
    ] = ""
    """Kind of the action."""
    since: datetime | None = None
    """Only entries from this time on; UTC without a time zone."""
    until: datetime | None = None
    """Only entries up to this time; UTC without a time zone."""
    days: Literal["", "1", "7", "30"] = ""
    """Only entries of the last `1`, `7` or `30` days; empty: all entries."""
    before: Annotated[str, Field(pattern=r"^[0-9]{0,15}$")] = ""
    """Value of `next` in the previous page."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    """Most entries in the response."""


class AuditItem(Schema):
    """An entry of the audit log."""

    id: int
    """Number of the entry, as in the address of its page."""
    at: datetime
    """When the action was attempted."""
    actor_name: str
    """User or process that attempted the action."""
    actor_kind: str
    """Kind of the actor: `person`, `token` or `system`."""
    action: str
    """Action: `policy.confirm`, `silence.create`."""
    subject: str
    """Object of the action."""
    outcome: str
    """Outcome: `succeeded`, `refused` or `failed`."""
    detail: str
    """Result, or why the action was refused or failed."""
    reason: str
    """Reason that the user gave."""
    change_id: int | None
    """Number of the change; null when the action belongs to none."""
    request_id: str
    """Id of the request, as in the console's log."""
    before: Any
    """Values before the action."""
    after: Any
    """Values after the action."""


class AuditResponse(Schema):
    """One page of the audit log."""

    cluster: str
    """Id of the cluster."""
    next: str | None
    """Value of `before` for the next page; null on the last page."""
    entries: list[AuditItem]
    """Entries, the newest first."""


@per_cluster.get("/changes", auth=_VIEW, response={200: ChangesResponse, **REFUSAL_RESPONSES})
def list_changes(request: HttpRequest, cluster: str) -> Any:
    """List changes.

    The list has the newest 100 changes.
    """
    rows = Change.objects.filter(cluster=require_cluster(cluster)).defer(
        "plan", "parameters", "before", "after"
    )
    return ChangesResponse(
        cluster=cluster,
        busy_reason=changes.describe_running_change(cluster),
        changes=[ChangeItem(**change_fields_of(row)) for row in rows[:_LIST_LIMIT]],
    )


@per_cluster.get(
    "/changes/{int:change_id}",
    auth=_VIEW,
    response={200: ChangeResponse, **REFUSAL_RESPONSES},
    openapi_extra=document_etag(),
)
def get_change(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    """Get a change.

    The response has the plan and the result. Send its ETag as If-Match with requests that act on the change.
    """
    return respond_with_change(response, require_change(cluster, change_id))


@per_cluster.post(
    "/changes/{int:change_id}/confirm",
    auth=_ACT,
    response={202: ChangeResponse, **REFUSAL_RESPONSES},
    openapi_extra=_IF_MATCH_202,
)
def confirm_change(
    request: HttpRequest, response: HttpResponse, cluster: str, change_id: int, body: ConfirmChangeRequest
) -> Any:
    """Confirm a change.

    A worker starts the change when no other change is running in the cluster and required reviews are approved.
    """
    row = require_permitted_change(request, cluster, change_id)
    kinds.confirm(
        row, request_actor_of(request), reason=body.reason, typed_name=body.confirmation, now=timezone.now()
    )
    return _enqueue_and_respond(response, row)


@per_cluster.post(
    "/changes/{int:change_id}/approve",
    auth=_ACT,
    response={202: ChangeResponse, **REFUSAL_RESPONSES},
    openapi_extra=_IF_MATCH_202,
)
def approve_change(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    """Approve a change.

    Only for clusters that require a review: a second person approves the plan.
    """
    row = require_permitted_change(request, cluster, change_id)
    changes.approve(row, request_actor_of(request), now=timezone.now())
    return _enqueue_and_respond(response, row)


@per_cluster.post(
    "/changes/{int:change_id}/cancel",
    auth=_ACT,
    response={200: ChangeResponse, **REFUSAL_RESPONSES},
    openapi_extra=_IF_MATCH_200,
)
def cancel_change(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    """Cancel a change.

    A change that has not started is cancelled; a running campaign or rollout is aborted. A networking config that is
    being written cannot be cancelled.
    """
    row = require_permitted_change(request, cluster, change_id)
    return respond_with_change(response, kind_of(row).cancel(row, request_actor_of(request), timezone.now()))


@per_cluster.post(
    "/changes/{int:change_id}/undo",
    auth=_ACT,
    response={201: ChangeResponse, **REFUSAL_RESPONSES},
    openapi_extra=_IF_MATCH_201,
)
def undo_change(
    request: HttpRequest, response: HttpResponse, cluster: str, change_id: int, options: Query[PlanOptions]
) -> Any:
    """Plan the undo of a change.

    The response is a new change that restores what was before: the networking config, policies, an instance in
    service, an agent that counts. Nothing runs before you confirm that change. Campaigns cannot be undone.
    """
    row = require_change(cluster, change_id)
    _require_permission_for(request, row)
    require_if_match(request, row)
    actor = planning_actor_of(request, options)
    undo = kind_of(row).undo(row, actor, timezone.now(), take_record_snapshot())
    return Status(201, respond_with_change(response, undo))


@per_cluster.get("/audit", auth=_AUDIT, response={200: AuditResponse, **REFUSAL_RESPONSES})
def list_audit_entries(request: HttpRequest, cluster: str, filters: Query[AuditFilters]) -> Any:
    """List audit log entries.

    The log has every attempt to change something, also refused and failed ones.
    """
    parameters = {
        name: str(text) for name, text in filters.dict(exclude={"limit"}).items() if text is not None
    }
    query = AuditQuery.from_parameters({**parameters, "kind": filters.actor_kind})
    if query.problems:
        raise HttpError(400, " ".join(f"{name}: {problem}" for name, problem in query.problems.items()))
    is_limited_user = has_cluster_limit(caller_of(request))
    rows = list(
        query.find_entries(require_cluster(cluster), timezone.now(), is_limited_user=is_limited_user)[
            : filters.limit + 1
        ]
    )
    page_rows = rows[: filters.limit]
    return AuditResponse(
        cluster=cluster,
        next=str(page_rows[-1].pk) if len(rows) > filters.limit else None,
        entries=[AuditItem(**change_rows.audit_item_of(row)) for row in page_rows],
    )


@per_cluster.get("/audit/{int:entry_id}", auth=_AUDIT, response={200: AuditItem, **REFUSAL_RESPONSES})
def get_audit_entry(request: HttpRequest, cluster: str, entry_id: int) -> Any:
    """Get an audit log entry.

    The values before and after are complete documents, also where only one value differs.
    """
    is_limited_user = has_cluster_limit(caller_of(request))
    entry = find_entry(require_cluster(cluster), entry_id, is_limited_user=is_limited_user)
    if entry is None:
        raise HttpError(404, describe_missing_entry(cluster, entry_id))
    return AuditItem(**change_rows.audit_item_of(entry))


def require_change(cluster: str, change_id: int) -> Change:
    """Return the change. Raises HttpError 404."""
    row = None
    # Databases limit the size of a number.
    if change_id < 2**63:
        row = (
            Change.objects.select_related("cluster")
            .filter(cluster=require_cluster(cluster), pk=change_id)
            .first()
        )
    if row is None:
        raise HttpError(404, f"Change {change_id} was not found in cluster {cluster}.")
    return row


def require_permitted_change(request: HttpRequest, cluster: str, change_id: int) -> Change:
    """Return a change that the caller and the token may run. Raises HttpError 403 or 404."""
    row = require_change(cluster, change_id)
    _require_permission_for(request, row)
    # The effect outlasts the session.
    require_reauthentication(request)
    require_if_match(request, row)
    return row


def _require_permission_for(request: HttpRequest, row: Change) -> None:
    """Require the permission for changes of this kind. Raises HttpError 403."""
    permission = Permission(PERMISSION_OF[ChangeKind(row.kind)])
    token = getattr(request, "refloat_token", None)
    if not has_permission(caller_of(request), permission, row.cluster_id):
        raise HttpError(403, describe_missing_permission(caller_of(request), permission, row.cluster_id))
    if token is not None and not token.allows(permission):
        raise HttpError(403, describe_missing_scope(token, permission))


def _enqueue_and_respond(response: HttpResponse, row: Change) -> Any:
    if changes.can_start(row):
        request_actor.enqueue_change(row)
    return Status(202, respond_with_change(response, row))
