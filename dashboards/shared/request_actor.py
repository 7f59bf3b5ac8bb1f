"""Who acts in a request, and how the work that follows is given to workers: by the name of a task, never by a call."""

from __future__ import annotations

import logging
import re
import secrets
from typing import Any

from celery import current_app
from django.contrib.auth.models import User
from django.http import HttpRequest
from kombu.exceptions import OperationalError

from dashboards.shared.pages import signed_in
from fleet.audit import By
from fleet.changes.kinds import kind_of
from fleet.models.changes import Change
from fleet.models.tokens import ApiToken
from fleet.vocabulary.changes import Actor, ActorKind

logger = logging.getLogger(__name__)

#: Where a request keeps its id, and the header it comes and goes by.
REQUEST_ID_HEADER = "X-Request-Id"
_REQUEST_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)


def request_id_of(request: HttpRequest) -> str:
    """The request's id: the caller's if it is one, else a new one; the same for the whole request."""
    kept: str | None = getattr(request, "refloat_request_id", None)
    if kept is None:
        said = request.headers.get(REQUEST_ID_HEADER, "")
        kept = said if _REQUEST_ID.fullmatch(said) else secrets.token_hex(8)
        request.refloat_request_id = kept  # type: ignore[attr-defined] # read back above
    return kept


def by(request: HttpRequest, user: User, token: ApiToken | None = None) -> By:
    """Who asks: a person, or a token of theirs."""
    name = user.get_username()
    actor = (
        Actor(ActorKind.PERSON, name, user.pk)
        if token is None
        else Actor(ActorKind.TOKEN, f"token {token} of {name}", user.pk)
    )
    return By(
        actor, request_id_of(request), request.headers.get("Idempotency-Key", "")[:100].replace("\0", "")
    )


def author(request: HttpRequest) -> By:
    """Who asks by a page, which only people use who are signed in."""
    return by(request, signed_in(request))


def carry_out(change: Change) -> None:
    """Have a worker begin a confirmed change now. Without a broker it begins when one is back: beat looks for it."""
    if task := kind_of(change).task:
        enqueue(task, change.pk)


def enqueue(task: str, *args: Any) -> None:
    """Give a task to the workers."""
    try:
        current_app.send_task(task, args=args)
    except OperationalError as error:
        logger.warning("%s waits for the broker: %s", task, error)
