"""The actor of a request, and tasks for workers, which are sent by name."""

from __future__ import annotations

import logging
import re
import secrets
from typing import Any

from celery import current_app
from django.contrib.auth.models import User
from django.http import HttpRequest
from kombu.exceptions import OperationalError

from dashboards.shared.pages import signed_in_user_of
from fleet.audit import RequestActor
from fleet.changes.kinds import kind_of
from fleet.models.changes import Change
from fleet.models.tokens import ApiToken
from fleet.vocabulary.changes import Actor, ActorKind

logger = logging.getLogger(__name__)

#: Header of the request id, in requests and responses.
REQUEST_ID_HEADER = "X-Request-Id"
_REQUEST_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)


def request_id_of(request: HttpRequest) -> str:
    """Return the id of a request: the client's if it is valid, otherwise a new one; constant during the request."""
    request_id: str | None = getattr(request, "refloat_request_id", None)
    if request_id is None:
        header = request.headers.get(REQUEST_ID_HEADER, "")
        request_id = header if _REQUEST_ID.fullmatch(header) else secrets.token_hex(8)
        request.refloat_request_id = request_id  # type: ignore[attr-defined] # read back above
    return request_id


def actor_of(request: HttpRequest, user: User, token: ApiToken | None = None) -> RequestActor:
    """Return the actor: a user, or one of their tokens."""
    name = user.get_username()
    identity = (
        Actor(ActorKind.PERSON, name, user.pk)
        if token is None
        else Actor(ActorKind.TOKEN, f"API token {token} of user {name}", user.pk)
    )
    return RequestActor(
        identity, request_id_of(request), request.headers.get("Idempotency-Key", "")[:100].replace("\0", "")
    )


def signed_in_actor_of(request: HttpRequest) -> RequestActor:
    """Return the actor of a page request: the signed-in user."""
    return actor_of(request, signed_in_user_of(request))


def enqueue_change(change: Change) -> None:
    """Have a worker start a confirmed change now. If the broker is down, a periodic task starts the change later."""
    if task := kind_of(change).start_task:
        enqueue(task, change.pk)


def enqueue(task: str, *args: Any) -> None:
    """Send a task to the workers; log a warning if the broker is down."""
    try:
        current_app.send_task(task, args=args)
    except OperationalError as error:
        logger.warning("task %s was not sent, because the broker is unavailable: %s", task, error)
