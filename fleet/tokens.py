"""Creation and revocation of API tokens, on pages and in a shell, with entries in the audit log.

docs/reference/access.md.
"""

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
    """Create a token of a user. Returns the token and its secret string, which is not stored."""
    with record_outcome(actor.create_attempt(AuditAction.TOKEN_CREATE, subject=name), lambda: now) as attempt:
        token, secret = create_token(user, name, scopes, lifetime=lifetime, now=now)
        attempt.subject, attempt.after = _subject_of(token, actor), {"scopes": token.scopes}
    return token, secret


def revoke_token(token: ApiToken, actor: RequestActor, now: datetime) -> None:
    """Revoke a token permanently."""
    with record_outcome(
        actor.create_attempt(AuditAction.TOKEN_REVOKE, subject=_subject_of(token, actor)), lambda: now
    ):
        token.revoke(now)


def _subject_of(token: ApiToken, actor: RequestActor) -> str:
    """Return the name of the token, with its user when that is another one than the actor."""
    return str(token) if token.user_id == actor.identity.user_id else f"{token} of {token.user}"


def revoke_all_tokens(user: User, actor: RequestActor, now: datetime) -> int:
    """Revoke the valid tokens of a user permanently, each with its entry; return their number."""
    tokens = ApiToken.objects.filter(user=user, revoked_at=None).select_related("user")
    valid_tokens = [token for token in tokens if token.expires_at is None or token.expires_at > now]
    for token in valid_tokens:
        revoke_token(token, actor, now)
    return len(valid_tokens)
