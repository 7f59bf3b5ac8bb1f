"""Shared parts of routes that change something: the caller, If-Match and ETag, and the response with the change."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from ninja.errors import HttpError
from pydantic import Field

from dashboards.shared import recent_proof, request_actor
from dashboards.shared.api.parameters import QueryParameters, Schema
from dashboards.shared.pages import sentence_of
from dashboards.shared.permissions import is_known_cluster
from fleet.audit import RequestActor
from fleet.changes import StaleRevisionError, engine
from fleet.changes.networking.plan import KEYS_BY_AGENT
from fleet.models.changes import Change
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.tokens import ApiToken


class Refusal(Schema):
    """An error of a request that changes something."""

    detail: str
    """What happened, why if that is known, and what to do."""
    problems: Annotated[dict[str, str], Field(default_factory=dict)]
    """Problems by field; empty when the error is not about fields."""
    revision: str = ""
    """With status 412: the current revision, for the ETag; otherwise empty."""
    capability: str = ""
    """With status 409: the capability that the source of the cluster does not have there; otherwise empty."""


#: Error responses of these routes.
REFUSAL_RESPONSES = {frozenset({400, 401, 403, 404, 409, 412, 428, 503}): Refusal}


def document_etag(status: int = 200) -> dict[str, Any]:
    """Return the `openapi_extra` of a route whose response has an ETag."""
    description = "Revision of the object. Send it as If-Match with requests that change the object."
    header = {"description": description, "required": True, "schema": {"type": "string"}}
    return {"responses": {status: {"headers": {"ETag": header}}}}


def document_if_match(path: str, status: int) -> dict[str, Any]:
    """Return the `openapi_extra` of a route that requires If-Match with the ETag of `path`, and returns an ETag."""
    description = (
        f"The ETag of GET {path}. Without it the status is 428; when the object has changed since, it is 412."
    )
    header = {
        "in": "header",
        "name": "If-Match",
        "required": True,
        "schema": {"type": "string"},
        "description": description,
    }
    return {"parameters": [header], **document_etag(status)}


class PlanOptions(QueryParameters):
    """Query parameters of a request for a plan."""

    dry_run: bool = False
    """Only return the plan: no change is stored, so that there is nothing to confirm or to cancel."""


class ChangeItem(Schema):
    """State, author and times of a change with its plan, progress and result."""

    id: int
    """Number of the change; 0 for a dry run."""
    revision: str
    """Revision in the ETag, to send as If-Match; each step of the change makes a new one."""
    kind: str
    """Kind of the change: `networking-config`, `policy`, `reconnect`, `service`, `degrade` or `retire`."""
    state: str
    """State of the change: `planned`, `confirmed`, `running`, `paused`, `verifying`, `verified`, `failed`,
    `cancelled` or `undone`.
    """
    state_label: str
    """State as pages name it: `aborted` for a change that was cancelled after it had started, otherwise the state."""
    title: str
    """Title of the change."""
    actor_name: str
    """User who requested the change."""
    reason: str
    """Reason that the user gave."""
    detail: str
    """Progress or result in one sentence."""
    affected_count: int
    """Number of affected agents."""
    approved_by: str
    """User who approved the change; empty before the approval, or without a review."""
    created_at: datetime
    """When the plan was made."""
    confirmed_at: datetime | None
    """When the change was confirmed; null before that."""
    started_at: datetime | None
    """When the change started to run; null before that."""
    ended_at: datetime | None
    """When the change ended; null before that."""


class ChangeResponse(ChangeItem):
    """A change with its plan and its result."""

    cluster: str
    """Id of the cluster."""
    question: str
    """Question that you answer by confirming the change, with the number of affected agents."""
    plan: dict[str, Any]
    """What the change would do."""
    outcome: dict[str, Any]
    """What the change did; empty before it ends."""
    progress: dict[str, Any]
    """Progress of the change; its fields depend on the kind."""
    before: Any
    """Values before the change."""
    after: Any
    """Values after the change."""
    confirmation_required: str
    """Text to send as `confirmation` when you confirm the change; empty when none is needed."""
    review_required: bool
    """Whether a second person must approve the change."""
    undo_of: int | None
    """Number of the change that this change undoes; null otherwise."""


def request_actor_of(request: HttpRequest) -> RequestActor:
    """Return the actor of the request, for the audit log."""
    token: ApiToken | None = getattr(request, "refloat_token", None)
    return request_actor.actor_of(request, caller_of(request), token)


def planning_actor_of(request: HttpRequest, options: PlanOptions) -> RequestActor:
    """Return the actor of a request for a plan, which may be a dry run."""
    request.refloat_is_dry_run = options.dry_run  # type: ignore[attr-defined] # read back by request_log
    return replace(request_actor_of(request), is_dry_run=options.dry_run)


def caller_of(request: HttpRequest) -> User:
    """Return the user who was authenticated for the route."""
    user: User = request.auth  # type: ignore[attr-defined] # set by ninja to what ApiAccess answered
    return user


def require_reauthentication(request: HttpRequest) -> None:
    """Require a recent reauthentication of a session; a token needs none. Raises ReauthenticationRequired."""
    if getattr(request, "refloat_token", None) is None:
        recent_proof.require(request)


def require_cluster(cluster: str) -> str:
    """Return the id of a known cluster. Raises HttpError 404."""
    if not is_known_cluster(cluster):
        raise HttpError(404, f"Cluster {cluster} was not found.")
    return cluster


class PreconditionFailed(Exception):
    """The object has another revision than If-Match names; `revision` is the current one."""

    def __init__(self, sentence: str, revision: str) -> None:
        super().__init__(sentence)
        self.revision = revision


def api_path_of(cluster: str, resource: str) -> str:
    """Return the path at which an object of a cluster is read."""
    return f"/api/v1/{resource}" if cluster == DEFAULT_CLUSTER else f"/api/v1/clusters/{cluster}/{resource}"


def read_if_match(request: HttpRequest, path: str) -> str:
    """Return the revision in If-Match, read at `path`. Raises HttpError 428 without it, 400 without a revision."""
    header = request.headers.get("If-Match", "").strip()
    if not header:
        raise HttpError(
            428,
            f"If-Match is missing. Send the ETag of GET {path}, so that no newer change is overwritten.",
        )
    revision = header.removeprefix("W/").strip('"')
    if revision in ("", "*") or "\0" in revision:
        raise HttpError(400, f"If-Match has no revision. Send the ETag of GET {path}.")
    return revision


def revision_of(change: Change) -> str:
    """Return the revision of a change: its number and its step. The plan of a change never changes."""
    return f"{_number_of(change)}-{change.step}"


def set_etag(response: HttpResponse, revision: str) -> None:
    """Set the ETag of a response."""
    response["ETag"] = f'"{revision}"'


def require_if_match(request: HttpRequest, change: Change) -> None:
    """Require If-Match with the current step of a change.

    Raises HttpError 428 or 400, and PreconditionFailed for 412.
    """
    path = api_path_of(change.cluster_id, f"changes/{change.pk}")
    if read_if_match(request, path) != revision_of(change):
        raise PreconditionFailed(
            f"Out of date: change {change.pk} has the state {change.state!r} now. "
            f"Read GET {path} again and send its ETag as If-Match.",
            revision_of(change),
        )


def describe_stale(cluster: str, error: StaleRevisionError, *, is_planned: bool) -> str:
    """Return the message for a revision that is out of date; `is_planned`: of a change that was planned before."""
    path = api_path_of(cluster, error.resource)
    if is_planned:
        return (
            f"{sentence_of(error)} This plan cannot be confirmed any more. Read GET {path}, and plan the change again "
            f"with POST {path}/plan."
        )
    return f"{sentence_of(error)} Read GET {path} again and send its ETag as If-Match."


def describe_unknown_id(noun: str, object_id: str, cluster: str) -> str:
    """Return the message for a path with an id that was not found. `noun`: Agent or Instance."""
    return (
        f"{noun} {object_id} was not found in cluster {cluster}: paths take ids. "
        f"GET {api_path_of(cluster, f'{noun.lower()}s')} lists ids and names."
    )


def change_fields_of(change: Change) -> dict[str, Any]:
    """Return the fields of `ChangeItem`."""
    columns = [name for name in ChangeItem.model_fields if name != "revision"]
    fields = {name: getattr(change, name) for name in columns}
    return {**fields, "revision": revision_of(change), "id": _number_of(change)}


def _number_of(change: Change) -> int:
    """Return the number of a change; 0 for a dry run, which is not stored."""
    return change.pk or 0


def respond_with_change(response: HttpResponse, change: Change) -> ChangeResponse:
    """Return the response with one change and its ETag, without the ids of its agents: there may be many thousands."""
    set_etag(response, revision_of(change))
    requirements = engine.requirements_of(change)
    plan = {name: plan_value for name, plan_value in change.plan.items() if name not in KEYS_BY_AGENT}
    return ChangeResponse(
        **change_fields_of(change),
        cluster=change.cluster_id,
        question=plan.get("question", change.title),
        plan=plan,
        outcome=change.outcome,
        progress=change.progress,
        before=change.before,
        after=change.after,
        confirmation_required=requirements.expected_name,
        review_required=requirements.review_required,
        undo_of=change.undoes_id,
    )
