"""What pages of alerts write into the log of all that anybody did."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils import timezone

from dashboards.shared import acting
from fleet.audit import Attempt, record
from fleet.vocabulary.actions import AuditAction
from fleet.vocabulary.changes import Actor, ActorKind


def signed_in(request: HttpRequest) -> User:
    """Who is signed in; the view requires a permission, so somebody is."""
    assert isinstance(request.user, User), "the view requires a permission, so somebody is signed in"
    return request.user


def logged(
    request: HttpRequest, user: User, cluster: str, action: AuditAction, subject: str,
    *, reason: str = "", before: Any = None, after: Any = None,
) -> None:  # fmt: skip
    """Write one row about something that was done."""
    actor = Actor(ActorKind.PERSON, user.get_username(), user.pk)
    attempt = Attempt(actor, action, cluster, subject, reason, before, after)
    attempt.request_id = acting.request_id_of(request)
    record(attempt, "done", timezone.now())
