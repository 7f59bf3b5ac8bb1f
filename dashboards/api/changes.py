"""Changes by the API: list them, confirm, agree, cancel; and the log of all attempts. docs/api.md."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from allauth.account.decorators import reauthentication_required
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Query, Router, Schema, Status
from ninja.errors import HttpError
from pydantic import Field

from dashboards import acting, change_rows, doing
from dashboards.api.access import ApiAccess
from dashboards.api.asked import Body, Parameters
from dashboards.api.changing import (
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
    wants_if_match,
)  # fmt: skip
from dashboards.audit_query import AuditQuery
from fleet.control import changes
from fleet.domain.changes import PERMISSION_OF, ChangeKind
from fleet.models.access import Permission, may
from fleet.models.changes import Change
from fleet.models.clusters import DEFAULT_CLUSTER

router = Router()
_VIEW = ApiAccess(Permission.VIEW_FLEET)
_ACT = ApiAccess(Permission.ACT_ON_FLEET)
_AUDIT = ApiAccess(Permission.VIEW_AUDIT)
_SHORT, _NAMED = ["default cluster"], ["any cluster"]
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


@router.get("/changes", tags=_SHORT, auth=_VIEW, response={200: ChangesAnswer, **REFUSALS})
def change_list(request: HttpRequest) -> Any:
    """List the newest hundred changes."""
    return _changes(DEFAULT_CLUSTER)


@router.get("/clusters/{cluster}/changes", tags=_NAMED, auth=_VIEW, response={200: ChangesAnswer, **REFUSALS})
def cluster_change_list(request: HttpRequest, cluster: str) -> Any:
    """List the newest hundred changes."""
    return _changes(cluster)


@router.get(
    "/changes/{int:change_id}",
    tags=_SHORT,
    auth=_VIEW,
    response={200: ChangeAnswer, **REFUSALS},
    openapi_extra=carries_etag(),
)
def change(request: HttpRequest, response: HttpResponse, change_id: int) -> Any:
    """Show one change with its plan and what came of it; what is asked of it carries its ETag as If-Match."""
    return _show(response, DEFAULT_CLUSTER, change_id)


@router.get(
    "/clusters/{cluster}/changes/{int:change_id}",
    tags=_NAMED,
    auth=_VIEW,
    response={200: ChangeAnswer, **REFUSALS},
    openapi_extra=carries_etag(),
)
def cluster_change(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    """Show one change with its plan and what came of it; what is asked of it carries its ETag as If-Match."""
    return _show(response, cluster, change_id)


@router.post(
    "/changes/{int:change_id}/confirm",
    tags=_SHORT,
    auth=_ACT,
    response={202: ChangeAnswer, **REFUSALS},
    openapi_extra=_STEP_202,
)
def confirm(request: HttpRequest, response: HttpResponse, change_id: int, said: Confirmation) -> Any:
    """Agree to the plan; a worker begins when nobody else has the cluster."""
    return _confirm(request, response, DEFAULT_CLUSTER, change_id, said)


@router.post(
    "/clusters/{cluster}/changes/{int:change_id}/confirm",
    tags=_NAMED,
    auth=_ACT,
    response={202: ChangeAnswer, **REFUSALS},
    openapi_extra=_STEP_202,
)
def cluster_confirm(
    request: HttpRequest, response: HttpResponse, cluster: str, change_id: int, said: Confirmation
) -> Any:
    """Agree to the plan; a worker begins when nobody else has the cluster."""
    return _confirm(request, response, cluster, change_id, said)


@router.post(
    "/changes/{int:change_id}/approve",
    tags=_SHORT,
    auth=_ACT,
    response={202: ChangeAnswer, **REFUSALS},
    openapi_extra=_STEP_202,
)
def approve(request: HttpRequest, response: HttpResponse, change_id: int) -> Any:
    """Agree as the second person, where the cluster asks for one."""
    return _approve(request, response, DEFAULT_CLUSTER, change_id)


@router.post(
    "/clusters/{cluster}/changes/{int:change_id}/approve",
    tags=_NAMED,
    auth=_ACT,
    response={202: ChangeAnswer, **REFUSALS},
    openapi_extra=_STEP_202,
)
def cluster_approve(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    """Agree as the second person, where the cluster asks for one."""
    return _approve(request, response, cluster, change_id)


@router.post(
    "/changes/{int:change_id}/cancel",
    tags=_SHORT,
    auth=_ACT,
    response={200: ChangeAnswer, **REFUSALS},
    openapi_extra=_STEP_200,
)
def cancel(request: HttpRequest, response: HttpResponse, change_id: int) -> Any:
    """Leave it undone, before it has begun."""
    return _cancel(request, response, DEFAULT_CLUSTER, change_id)


@router.post(
    "/clusters/{cluster}/changes/{int:change_id}/cancel",
    tags=_NAMED,
    auth=_ACT,
    response={200: ChangeAnswer, **REFUSALS},
    openapi_extra=_STEP_200,
)
def cluster_cancel(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    """Leave it undone, before it has begun."""
    return _cancel(request, response, cluster, change_id)


@router.post(
    "/changes/{int:change_id}/undo",
    tags=_SHORT,
    auth=_CONFIG,
    response={201: ChangeAnswer, **REFUSALS},
    openapi_extra=_STEP_201,
)
def undo(request: HttpRequest, response: HttpResponse, change_id: int) -> Any:
    """Plan taking a change of config or policies back; nothing happens before that is confirmed."""
    return _undo(request, response, DEFAULT_CLUSTER, change_id)


@router.post(
    "/clusters/{cluster}/changes/{int:change_id}/undo",
    tags=_NAMED,
    auth=_CONFIG,
    response={201: ChangeAnswer, **REFUSALS},
    openapi_extra=_STEP_201,
)
def cluster_undo(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    """Plan taking a change of config or policies back; nothing happens before that is confirmed."""
    return _undo(request, response, cluster, change_id)


@router.get("/audit", tags=_SHORT, auth=_AUDIT, response={200: AuditAnswer, **REFUSALS})
def audit(request: HttpRequest, filters: Query[AuditFilters]) -> Any:
    """Read the log of all attempts, newest first."""
    return _audit(DEFAULT_CLUSTER, filters)


@router.get("/clusters/{cluster}/audit", tags=_NAMED, auth=_AUDIT, response={200: AuditAnswer, **REFUSALS})
def cluster_audit(request: HttpRequest, cluster: str, filters: Query[AuditFilters]) -> Any:
    """Read the log of all attempts, newest first."""
    return _audit(cluster, filters)


def _show(response: HttpResponse, cluster: str, change_id: int) -> ChangeAnswer:
    return answer(response, found(cluster, change_id))


def _changes(cluster: str) -> ChangesAnswer:
    rows = Change.objects.filter(cluster=known(cluster)).defer("plan", "parameters", "before", "after")
    return ChangesAnswer(
        cluster=cluster,
        busy=changes.busy_sentence(cluster),
        changes=[ChangeItem(**item(row)) for row in rows[:_LISTED]],
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
    if token is None:
        _prove(request)
    must_match(request, row)
    return row


# What it does outlives the session: raises ReauthenticationRequired when the last proof is old.
@reauthentication_required  # type: ignore[untyped-decorator] # allauth is untyped
def _prove(request: HttpRequest) -> None:
    return None


def _confirm(
    request: HttpRequest, response: HttpResponse, cluster: str, change_id: int, said: Confirmation
) -> Any:
    row = mine(request, cluster, change_id)
    doing.confirm(row, by(request), reason=said.reason, typed=said.typed, now=timezone.now())
    return _begin(response, row)


def _approve(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    row = mine(request, cluster, change_id)
    changes.approve(row, by(request), now=timezone.now())
    return _begin(response, row)


def _begin(response: HttpResponse, row: Change) -> Any:
    if changes.ready(row):
        acting.carry_out(row)
    return Status(202, answer(response, row))


def _cancel(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    row = mine(request, cluster, change_id)
    return answer(response, doing.cancel(row, by(request), timezone.now()))


def _undo(request: HttpRequest, response: HttpResponse, cluster: str, change_id: int) -> Any:
    row = found(cluster, change_id)
    must_match(request, row)
    return Status(201, answer(response, doing.take_back(row, by(request), timezone.now())))


def _audit(cluster: str, filters: AuditFilters) -> AuditAnswer:
    query = AuditQuery.of(filters.dict(exclude={"limit"}))
    rows = list(query.rows(known(cluster), timezone.now())[: filters.limit + 1])
    shown = rows[: filters.limit]
    return AuditAnswer(
        cluster=cluster,
        next=str(shown[-1].pk) if len(rows) > filters.limit else None,
        entries=[AuditItem(**change_rows.audit_item(row)) for row in shown],
    )
