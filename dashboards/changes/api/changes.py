"""Changes by the API: list them, confirm, agree, cancel; and the log of all attempts. docs/api.md."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Query, Router, Schema, Status
from ninja.errors import HttpError
from pydantic import Field

from dashboards.changes import change_rows
from dashboards.changes.audit_query import AuditQuery
from dashboards.shared import request_actor
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    ChangeAnswer,
    ChangeItem,
    respond_with_change,
    actor_of,
    caller_of,
    document_etag,
    fields_of,
    require_cluster,
    require_if_match,
    require_reauthentication,
    document_if_match,
)
from dashboards.shared.api.parameters import Body, Parameters
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.record_reader import record
from fleet.changes import engine as changes
from fleet.changes import kinds
from fleet.changes.kinds import kind_of
from fleet.models.access import Permission, is_limited, has_permission
from fleet.models.changes import Change
from fleet.vocabulary.changes import PERMISSION_OF, ChangeKind

router = Router()
per_cluster = PerCluster(router)
_VIEW = ApiAccess(Permission.VIEW_FLEET)
_ACT = ApiAccess(Permission.ACT_ON_FLEET)
_AUDIT = ApiAccess(Permission.VIEW_AUDIT)
_CONFIG = ApiAccess(Permission.CHANGE_CONFIG)
_LIST_LIMIT = 100
#: What is asked of a change names the step that the caller saw.
_STEP_202, _STEP_201, _STEP_200 = (document_if_match("/changes/{id}", status) for status in (202, 201, 200))


class ChangesAnswer(Schema):
    """The newest changes."""

    cluster: str
    #: Who has the cluster now, as a sentence; empty when nobody has.
    busy: str
    changes: list[ChangeItem]


class Confirmation(Body):
    """Agreement to a plan."""

    reason: Annotated[str, Field(max_length=2000)]
    #: The cluster's name, where the change asks for it.
    typed: Annotated[str, Field(max_length=200)] = ""


class AuditFilters(Parameters):
    """Parameters of the log."""

    q: str = ""
    outcome: str = ""
    kind: str = ""
    days: str = ""
    before: str = ""
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class AuditItem(Schema):
    """One attempt."""

    at: datetime
    who: str
    kind: str
    action: str
    subject: str
    outcome: str
    detail: str
    reason: str
    change: int | None
    request_id: str
    before: Any
    after: Any


class AuditAnswer(Schema):
    """Attempts, newest first; `next` is the `before` of the page after it."""

    cluster: str
    next: str | None
    entries: list[AuditItem]


@per_cluster.get("/changes", auth=_VIEW, response={200: ChangesAnswer, **REFUSAL_RESPONSES})
def change_list(request: HttpRequest, cluster: str) -> Any:
    """List the newest hundred changes."""
    rows = Change.objects.filter(cluster=require_cluster(cluster)).defer("plan", "parameters", "before", "after")
    return ChangesAnswer(
        cluster=cluster,
        busy=changes.describe_running_change(cluster),
        changes=[ChangeItem(**fields_of(row)) for row in rows[:_LIST_LIMIT]],
    )


@per_cluster.get(
    "/changes/{int:change_id}",
    auth=_VIEW,
    response={200: ChangeAnswer, **REFUSAL_RESPONSES},
    openapi_extra=document_etag(),
)
def change(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    """Show one change with its plan and what came of it; what is asked of it carries its ETag as If-Match."""
    return respond_with_change(response, require_change(cluster, change_id))


@per_cluster.post(
    "/changes/{int:change_id}/confirm",
    auth=_ACT,
    response={202: ChangeAnswer, **REFUSAL_RESPONSES},
    openapi_extra=_STEP_202,
)
def confirm(
    request: HttpRequest, response: HttpResponse, cluster: str, change_id: int, body: Confirmation
) -> Any:
    """Agree to the plan; a worker begins when nobody else has the cluster."""
    row = require_permitted_change(request, cluster, change_id)
    kinds.confirm(row, actor_of(request), reason=body.reason, typed_name=body.typed, now=timezone.now())
    return _start_change(response, row)


@per_cluster.post(
    "/changes/{int:change_id}/approve",
    auth=_ACT,
    response={202: ChangeAnswer, **REFUSAL_RESPONSES},
    openapi_extra=_STEP_202,
)
def approve(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    """Agree as the second person, where the cluster asks for one."""
    row = require_permitted_change(request, cluster, change_id)
    changes.approve(row, actor_of(request), now=timezone.now())
    return _start_change(response, row)


@per_cluster.post(
    "/changes/{int:change_id}/cancel",
    auth=_ACT,
    response={200: ChangeAnswer, **REFUSAL_RESPONSES},
    openapi_extra=_STEP_200,
)
def cancel(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    """Leave it undone, before it has begun."""
    row = require_permitted_change(request, cluster, change_id)
    return respond_with_change(response, kind_of(row).cancel(row, actor_of(request), timezone.now()))


@per_cluster.post(
    "/changes/{int:change_id}/undo",
    auth=_CONFIG,
    response={201: ChangeAnswer, **REFUSAL_RESPONSES},
    openapi_extra=_STEP_201,
)
def undo(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    """Plan taking a change of config or policies back; nothing happens before that is confirmed."""
    row = require_change(cluster, change_id)
    require_if_match(request, row)
    undo_change = kind_of(row).undo(row, actor_of(request), timezone.now(), record())
    return Status(201, respond_with_change(response, undo_change))


@per_cluster.get("/audit", auth=_AUDIT, response={200: AuditAnswer, **REFUSAL_RESPONSES})
def audit(request: HttpRequest, cluster: str, filters: Query[AuditFilters]) -> Any:
    """Read the log of all attempts, newest first."""
    query = AuditQuery.from_parameters(filters.dict(exclude={"limit"}))
    has_limit = is_limited(caller_of(request))
    rows = list(query.find_rows(require_cluster(cluster), timezone.now(), has_limit=has_limit)[: filters.limit + 1])
    page_rows = rows[: filters.limit]
    return AuditAnswer(
        cluster=cluster,
        next=str(page_rows[-1].pk) if len(rows) > filters.limit else None,
        entries=[AuditItem(**change_rows.audit_item_of(row)) for row in page_rows],
    )


def require_change(cluster: str, change_id: int) -> Change:
    """The change, or 404."""
    row = None
    # No database takes a number without end.
    if change_id < 2**63:
        row = Change.objects.select_related("cluster").filter(cluster=require_cluster(cluster), pk=change_id).first()
    if row is None:
        raise HttpError(404, f"There is no change {change_id} in the cluster {cluster}.")
    return row


def require_permitted_change(request: HttpRequest, cluster: str, change_id: int) -> Change:
    """The change, if the caller and the token may carry out its kind."""
    row = require_change(cluster, change_id)
    permission = Permission(PERMISSION_OF[ChangeKind(row.kind)])
    token = getattr(request, "refloat_token", None)
    if not has_permission(caller_of(request), permission, cluster) or (token is not None and not token.allows(permission)):
        raise HttpError(403, f"This needs the permission: {permission.label}.")
    # What it does outlives the session.
    require_reauthentication(request)
    require_if_match(request, row)
    return row


def _start_change(response: HttpResponse, row: Change) -> Any:
    if changes.is_ready(row):
        request_actor.start_change(row)
    return Status(202, respond_with_change(response, row))
