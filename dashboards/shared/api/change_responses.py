"""What routes that change something share: the caller, the version that a change is made of, and its answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from ninja import Schema
from ninja.errors import HttpError
from pydantic import Field

from dashboards.shared import recent_proof, request_actor
from dashboards.shared.pages import sentence_of
from dashboards.shared.permissions import is_known_cluster
from fleet.audit import RequestActor
from fleet.changes import StaleRevisionError, engine
from fleet.models.changes import Change
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.tokens import ApiToken


class Refusal(Schema):
    """Why it was not done; `problems` by the key of the field, where it is about fields."""

    detail: str
    problems: Annotated[dict[str, str], Field(default_factory=dict)]
    #: Of a 412: what the ETag names now.
    revision: str = ""


#: What these routes may answer besides their own.
REFUSAL_RESPONSES = {frozenset({400, 401, 403, 404, 409, 412, 428, 503}): Refusal}


def document_etag(status: int = 200) -> dict[str, Any]:
    """Say in the document that the answer carries an ETag; `openapi_extra` of a route."""
    description = "What to send as If-Match with what changes it."
    header = {"description": description, "required": True, "schema": {"type": "string"}}
    return {"responses": {status: {"headers": {"ETag": header}}}}


def document_if_match(path: str, status: int) -> dict[str, Any]:
    """Say in the document that If-Match must be sent, with the ETag of `where`, and that the answer carries one."""
    description = f"The ETag of GET {path}. 428 without it, 412 when that is not what is there any more."
    header = {
        "in": "header",
        "name": "If-Match",
        "required": True,
        "schema": {"type": "string"},
        "description": description,
    }
    return {"parameters": [header], **document_etag(status)}


class ChangeItem(Schema):
    """One change in a list."""

    id: int
    #: What its ETag names, for If-Match; another one after each step.
    revision: str
    kind: str
    state: str
    title: str
    who: str
    reason: str
    detail: str
    agents: int
    approved_by: str
    created_at: datetime
    confirmed_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None


class ChangeAnswer(ChangeItem):
    """One change with its plan and what came of it."""

    cluster: str
    #: What confirming it answers, with the number in it.
    question: str
    plan: dict[str, Any]
    outcome: dict[str, Any]
    progress: dict[str, Any]
    before: Any
    after: Any
    #: The word to send as `typed`, or empty.
    asks_typed: str
    asks_second: bool
    undoes: int | None


def actor_of(request: HttpRequest) -> RequestActor:
    """Who asks."""
    token: ApiToken | None = getattr(request, "refloat_token", None)
    return request_actor.actor_of(request, caller_of(request), token)


def caller_of(request: HttpRequest) -> User:
    """The user whom the route's guard let in."""
    user: User = request.auth  # type: ignore[attr-defined] # set by ninja to what ApiAccess answered
    return user


def require_reauthentication(request: HttpRequest) -> None:
    """Require recent proof of who it is from a session; a token needs none. Raises ReauthenticationRequired."""
    if getattr(request, "refloat_token", None) is None:
        recent_proof.require(request)


def require_cluster(cluster: str) -> str:
    """The cluster, or 404."""
    if not is_known_cluster(cluster):
        raise HttpError(404, f"There is no cluster {cluster}.")
    return cluster


class PreconditionFailed(Exception):
    """What If-Match names is not there any more; `revision` is."""

    def __init__(self, sentence: str, revision: str) -> None:
        super().__init__(sentence)
        self.revision = revision


def path_of(cluster: str, resource: str) -> str:
    """Where something of a cluster is read."""
    return f"/api/v1/{resource}" if cluster == DEFAULT_CLUSTER else f"/api/v1/clusters/{cluster}/{resource}"


def read_if_match(request: HttpRequest, path: str) -> str:
    """The revision that the caller read at `where`. 428 without If-Match, 400 for one that names none."""
    header = request.headers.get("If-Match", "").strip()
    if not header:
        raise HttpError(
            428,
            f"Send If-Match with the ETag of GET {path}, so that nobody is overrun who changed it since.",
        )
    revision = header.removeprefix("W/").strip('"')
    if revision in ("", "*") or "\0" in revision:
        raise HttpError(400, f"If-Match must name what you read, as the ETag of GET {path} gives it.")
    return revision


def version_of(change: Change) -> str:
    """What a change's ETag names: its step. Its plan never changes."""
    return f"{change.pk}-{change.step}"


def set_etag(response: HttpResponse, revision: str) -> None:
    """Have an answer carry an ETag."""
    response["ETag"] = f'"{revision}"'


def require_if_match(request: HttpRequest, change: Change) -> None:
    """Refuse what is asked of a change that is not where the caller saw it. 428, 400, and Overtaken for 412."""
    path = path_of(change.cluster_id, f"changes/{change.pk}")
    if read_if_match(request, path) != version_of(change):
        raise PreconditionFailed(
            f"The change is {change.state} by now: look at GET {path} again, and send its ETag as If-Match.",
            version_of(change),
        )


def describe_stale(cluster: str, error: StaleRevisionError) -> str:
    """The sentence of something that was planned on what is there no more."""
    return f"{sentence_of(error)} Look at GET {path_of(cluster, error.resource)} again, and plan with its ETag as If-Match."


def fields_of(change: Change) -> dict[str, Any]:
    """The fields of `ChangeItem`."""
    columns = [name for name in ChangeItem.model_fields if name not in ("id", "revision")]
    return {
        "id": change.pk,
        "revision": version_of(change),
        **{name: getattr(change, name) for name in columns},
    }


def respond_with_change(response: HttpResponse, change: Change) -> ChangeAnswer:
    """Everything of one change, with its ETag; ids of agents are left out, there may be many thousands."""
    set_etag(response, version_of(change))
    requirements = engine.requirements_of(change)
    plan = {name: field_value for name, field_value in change.plan.items() if name != "watched"}
    return ChangeAnswer(
        **fields_of(change),
        cluster=change.cluster_id,
        question=plan.get("question", change.title),
        plan=plan,
        outcome=change.outcome,
        progress=change.progress,
        before=change.before,
        after=change.after,
        asks_typed=requirements.expected_name,
        asks_second=requirements.second_approver,
        undoes=change.undoes_id,
    )
