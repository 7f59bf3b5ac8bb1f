"""API tokens are made and revoked here, by people and from a shell; each with its row in the log. docs/access.md."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.contrib.auth.models import User

from fleet.audit import RequestActor, record_outcome
from fleet.models.access import Permission
from fleet.models.tokens import ApiToken, create_token
from fleet.vocabulary.actions import AuditAction


def issue_token(
    user: User,
    name: str,
    scopes: Iterable[Permission],
    actor: RequestActor,
    *,
    lifetime: timedelta | None,
    now: datetime,
) -> tuple[ApiToken, str]:
    """Make a token of a user; the string is seen here once and never again."""
    with record_outcome(actor.create_attempt(AuditAction.TOKEN_MAKE, subject=name), lambda: now) as attempt:
        token, secret = create_token(user, name, scopes, lifetime=lifetime, now=now)
        attempt.subject, attempt.after = _subject_of(token, actor), {"scopes": token.scopes}
    return token, secret


def revoke_token(token: ApiToken, actor: RequestActor, now: datetime) -> None:
    """End a token for good."""
    with record_outcome(actor.create_attempt(AuditAction.TOKEN_REVOKE, subject=_subject_of(token, actor)), lambda: now):
        token.revoke(now)


def _subject_of(token: ApiToken, actor: RequestActor) -> str:
    """The token, and whose it is where that is not the author."""
    return str(token) if token.user_id == actor.identity.user_id else f"{token} of {token.user}"
