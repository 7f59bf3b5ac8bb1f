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
    REFUSALS,
    ChangeAnswer,
    ChangeItem,
    answer,
    by,
    caller,
    carries_etag,
    item,
    known,
    must_match,
    prove,
    wants_if_match,
)
from dashboards.shared.api.parameters import Body, Parameters
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.record_reader import record
from fleet.changes import engine as changes
from fleet.changes import kinds
from fleet.changes.kinds import kind_of
from fleet.models.access import Permission, is_limited, may
from fleet.models.changes import Change
from fleet.vocabulary.changes import PERMISSION_OF, ChangeKind

router = Router()
per_cluster = PerCluster(router)
_VIEW = ApiAccess(Permission.VIEW_FLEET)
_ACT = ApiAccess(Permission.ACT_ON_FLEET)
_AUDIT = ApiAccess(Permission.VIEW_AUDIT)
_CONFIG = ApiAccess(Permission.CHANGE_CONFIG)
_LISTED = 100
#: What is asked of a change names the step that the caller saw.
_STEP_202, _STEP_201, _STEP_200 = (wants_if_match("/changes/{id}", status) for status in (202, 201, 200))


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


@per_cluster.get("/changes", auth=_VIEW, response={200: ChangesAnswer, **REFUSALS})
def change_list(request: HttpRequest, cluster: str) -> Any:
    """List the newest hundred changes."""
    rows = Change.objects.filter(cluster=known(cluster)).defer("plan", "parameters", "before", "after")
    return ChangesAnswer(
        cluster=cluster,
        busy=changes.busy_sentence(cluster),
        changes=[ChangeItem(**item(row)) for row in rows[:_LISTED]],
    )


@per_cluster.get(
    "/changes/{int:change_id}",
    auth=_VIEW,
    response={200: ChangeAnswer, **REFUSALS},
    openapi_extra=carries_etag(),
)
def change(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    """Show one change with its plan and what came of it; what is asked of it carries its ETag as If-Match."""
    return answer(response, found(cluster, change_id))


@per_cluster.post(
    "/changes/{int:change_id}/confirm",
    auth=_ACT,
    response={202: ChangeAnswer, **REFUSALS},
    openapi_extra=_STEP_202,
)
def confirm(
    request: HttpRequest, response: HttpResponse, cluster: str, change_id: int, said: Confirmation
) -> Any:
    """Agree to the plan; a worker begins when nobody else has the cluster."""
    row = mine(request, cluster, change_id)
    kinds.confirm(row, by(request), reason=said.reason, typed=said.typed, now=timezone.now())
    return _begin(response, row)


@per_cluster.post(
    "/changes/{int:change_id}/approve",
    auth=_ACT,
    response={202: ChangeAnswer, **REFUSALS},
    openapi_extra=_STEP_202,
)
def approve(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    """Agree as the second person, where the cluster asks for one."""
    row = mine(request, cluster, change_id)
    changes.approve(row, by(request), now=timezone.now())
    return _begin(response, row)


@per_cluster.post(
    "/changes/{int:change_id}/cancel",
    auth=_ACT,
    response={200: ChangeAnswer, **REFUSALS},
    openapi_extra=_STEP_200,
)
def cancel(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    """Leave it undone, before it has begun."""
    row = mine(request, cluster, change_id)
    return answer(response, kind_of(row).cancel(row, by(request), timezone.now()))


@per_cluster.post(
    "/changes/{int:change_id}/undo",
    auth=_CONFIG,
    response={201: ChangeAnswer, **REFUSALS},
    openapi_extra=_STEP_201,
)
def undo(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    """Plan taking a change of config or policies back; nothing happens before that is confirmed."""
    row = found(cluster, change_id)
    must_match(request, row)
    planned = kind_of(row).undo(row, by(request), timezone.now(), record())
    return Status(201, answer(response, planned))


@per_cluster.get("/audit", auth=_AUDIT, response={200: AuditAnswer, **REFUSALS})
def audit(request: HttpRequest, cluster: str, filters: Query[AuditFilters]) -> Any:
    """Read the log of all attempts, newest first."""
    query = AuditQuery.of(filters.dict(exclude={"limit"}))
    limited = is_limited(caller(request))
    rows = list(query.rows(known(cluster), timezone.now(), limited=limited)[: filters.limit + 1])
    shown = rows[: filters.limit]
    return AuditAnswer(
        cluster=cluster,
        next=str(shown[-1].pk) if len(rows) > filters.limit else None,
        entries=[AuditItem(**change_rows.audit_item(row)) for row in shown],
    )


def found(cluster: str, change_id: int) -> Change:
    """The change, or 404."""
    row = None
    # No database takes a number without end.
    if change_id < 2**63:
        row = Change.objects.select_related("cluster").filter(cluster=known(cluster), pk=change_id).first()
    if row is None:
        raise HttpError(404, f"There is no change {change_id} in the cluster {cluster}.")
    return row


def mine(request: HttpRequest, cluster: str, change_id: int) -> Change:
    """The change, if the caller and the token may carry out its kind."""
    row = found(cluster, change_id)
    permission = Permission(PERMISSION_OF[ChangeKind(row.kind)])
    token = getattr(request, "refloat_token", None)
    if not may(caller(request), permission, cluster) or (token is not None and not token.allows(permission)):
        raise HttpError(403, f"This needs the permission: {permission.label}.")
    # What it does outlives the session.
    prove(request)
    must_match(request, row)
    return row


def _begin(response: HttpResponse, row: Change) -> Any:
    if changes.ready(row):
        request_actor.carry_out(row)
    return Status(202, answer(response, row))
