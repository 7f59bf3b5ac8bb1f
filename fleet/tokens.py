"""API tokens are made and revoked here, by people and from a shell; each with its row in the log. docs/access.md."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.contrib.auth.models import User

from fleet.audit import By, attempted
from fleet.models.access import Permission
from fleet.models.tokens import ApiToken, create_token
from fleet.vocabulary.actions import AuditAction


def make(
    user: User,
    name: str,
    scopes: Iterable[Permission],
    by: By,
    *,
    lifetime: timedelta | None,
    now: datetime,
) -> tuple[ApiToken, str]:
    """Make a token of a user; the string is seen here once and never again."""
    with attempted(by.attempt(AuditAction.TOKEN_MAKE, subject=name), lambda: now) as attempt:
        token, secret = create_token(user, name, scopes, lifetime=lifetime, now=now)
        attempt.subject, attempt.after = _subject(token, by), {"scopes": token.scopes}
    return token, secret


def revoke(token: ApiToken, by: By, now: datetime) -> None:
    """End a token for good."""
    with attempted(by.attempt(AuditAction.TOKEN_REVOKE, subject=_subject(token, by)), lambda: now):
        token.revoke(now)


def _subject(token: ApiToken, by: By) -> str:
    """The token, and whose it is where that is not the author."""
    return str(token) if token.user_id == by.actor.user_id else f"{token} of {token.user}"
