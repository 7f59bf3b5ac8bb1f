"""Users as rows of the page *Users* and of the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.db.models import Count, Q

from fleet.models.access import ROLES, count_sessions, iterate_sessions
from fleet.models.moments import to_moment

#: Second factors by their type.
_FACTOR_LABELS = {
    Authenticator.Type.TOTP: "authenticator app",
    Authenticator.Type.WEBAUTHN: "security key",
}
#: Key of a session with the proofs of django-allauth.
_PROOFS_KEY = "account_authentication_methods"


@dataclass(frozen=True, slots=True)
class UserRow:
    """A user with what gives access: role, limits, second factor, sessions and tokens."""

    username: str
    email: str
    #: Strongest role; empty: none.
    role: str
    #: Clusters that the user is limited to; empty: every cluster.
    clusters: tuple[str, ...]
    #: `authenticator app`, `security key`.
    second_factors: tuple[str, ...]
    last_sign_in: datetime | None
    session_count: int
    #: Tokens that are neither revoked nor expired.
    token_count: int
    is_active: bool
    #: The user has set a password or signs in elsewhere; otherwise the invitation waits.
    is_invited: bool

    @property
    def state(self) -> str:
        """Return `active`, `invited` or `disabled`."""
        if not self.is_active:
            return "disabled"
        return "invited" if self.is_invited else "active"


@dataclass(frozen=True, slots=True)
class SessionRow:
    """An open session."""

    signed_in_at: datetime | None
    expires_at: datetime


def read_user_rows(now: datetime, *, username: str | None = None) -> list[UserRow]:
    """Return users by name; `username`: this one alone."""
    is_valid_token = Q(api_tokens__revoked_at=None) & (
        Q(api_tokens__expires_at=None) | Q(api_tokens__expires_at__gt=now)
    )
    users = User.objects.order_by("username").prefetch_related("groups", "cluster_limits")
    users = users.annotate(
        token_count=Count("api_tokens", filter=Q(api_tokens__isnull=False) & is_valid_token, distinct=True),
        identity_count=Count("socialaccount", distinct=True),
    )
    if username is not None:
        users = users.filter(username=username)
    session_counts = count_sessions()
    factors: dict[int, set[str]] = {}
    for key, kind in Authenticator.objects.values_list("user_id", "type"):
        if kind in _FACTOR_LABELS:
            factors.setdefault(key, set()).add(_FACTOR_LABELS[Authenticator.Type(kind)])
    return [_row_of(user, session_counts, factors) for user in users]


def read_sessions(user: User) -> list[SessionRow]:
    """Return the open sessions of a user, the newest first."""
    rows = [
        SessionRow(_sign_in_of(session.get_decoded()), session.expire_date)
        for session in iterate_sessions(user)
    ]
    return sorted(rows, key=lambda row: row.expires_at, reverse=True)


def _row_of(user: Any, session_counts: Mapping[str, int], factors: Mapping[int, Iterable[str]]) -> UserRow:
    groups = {group.name for group in user.groups.all()}
    return UserRow(
        username=user.get_username(),
        email=user.email,
        role=next((role for role in reversed(list(ROLES)) if role in groups), ""),
        clusters=tuple(sorted(limit.cluster for limit in user.cluster_limits.all())),
        second_factors=tuple(sorted(factors.get(user.pk, ()))),
        last_sign_in=user.last_login,
        session_count=session_counts.get(str(user.pk), 0),
        token_count=user.token_count,
        is_active=user.is_active,
        is_invited=not user.has_usable_password() and not user.identity_count,
    )


def _sign_in_of(session: Mapping[str, Any]) -> datetime | None:
    times = [
        proof["at"] for proof in session.get(_PROOFS_KEY, ()) if isinstance(proof.get("at"), int | float)
    ]
    return to_moment(min(times)) if times else None
