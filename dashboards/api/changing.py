"""What routes that change something share: the caller, the version that a change is made of, and its answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.contrib.auth.models import User
from django.http import HttpRequest
from ninja import Schema
from ninja.errors import HttpError
from pydantic import Field

from dashboards import acting
from dashboards.permissions import is_known
from fleet.control import changes
from fleet.control.changes import By
from fleet.models.changes import Change
from fleet.models.tokens import ApiToken


class Refusal(Schema):
    """Why it was not done; `problems` by the key of the field, where it is about fields."""

    detail: str
    problems: Annotated[dict[str, str], Field(default_factory=dict)]
    #: Of a 412: what is stored now.
    revision: str = ""


#: What these routes may answer besides their own.
REFUSALS = {frozenset({400, 401, 403, 404, 409, 412, 428, 503}): Refusal}


class ChangeItem(Schema):
    """One change in a list."""

    id: int
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


def by(request: HttpRequest) -> By:
    """Who asks."""
    token: ApiToken | None = getattr(request, "refloat_token", None)
    return acting.by(request, caller(request), token)


def caller(request: HttpRequest) -> User:
    """The user whom the route's guard let in."""
    user: User = request.auth  # type: ignore[attr-defined] # set by ninja to what ApiAccess answered
    return user


def known(cluster: str) -> str:
    """The cluster, or 404."""
    if not is_known(cluster):
        raise HttpError(404, f"There is no cluster {cluster}.")
    return cluster


def base_of(request: HttpRequest) -> str:
    """The revision that the caller started from. 428 without If-Match, 400 for one that names none."""
    said = request.headers.get("If-Match", "").strip()
    if not said:
        raise HttpError(428, "Send If-Match with the ETag of what you read, so that nobody's change is lost.")
    revision = said.removeprefix("W/").strip('"')
    if revision in ("", "*") or "\0" in revision:
        raise HttpError(400, "If-Match must name the revision that you read, as its ETag gives it.")
    return revision


def version_of(change: Change) -> str:
    """What a change's ETag names: how far it is. Its plan never changes."""
    return f"{change.pk}-{change.state}{'-approved' if change.approved_by else ''}"


def must_match(request: HttpRequest, change: Change) -> None:
    """Refuse with 412 what is asked of a change that is not as far any more as the caller's If-Match says."""
    said = request.headers.get("If-Match", "").strip()
    if said not in ("", "*") and said.removeprefix("W/").strip('"') != version_of(change):
        raise HttpError(412, f"The change is {change.state} by now: read it again.")


def item(change: Change) -> dict[str, Any]:
    """The fields of `ChangeItem`."""
    return {name: getattr(change, name if name != "id" else "pk") for name in ChangeItem.model_fields}


def answer(change: Change) -> ChangeAnswer:
    """Everything of one change; ids of agents are left out, there may be many thousands."""
    asked = changes.what_it_asks(change)
    plan = {name: value for name, value in change.plan.items() if name != "watched"}
    return ChangeAnswer(
        **item(change),
        cluster=change.cluster_id,
        question=plan.get("question", change.title),
        plan=plan,
        outcome=change.outcome,
        progress=change.progress,
        before=change.before,
        after=change.after,
        asks_typed=asked.typed,
        asks_second=asked.second_approver,
        undoes=change.undoes_id,
    )
