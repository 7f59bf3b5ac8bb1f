"""Rows of the list of API tokens."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fleet.models.tokens import ApiToken


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One API token in the list, without its secret."""

    id: int
    name: str
    user: str
    prefix: str
    scopes: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    is_valid: bool


def token_row_of(token: ApiToken, now: datetime) -> TokenRow:
    """Return one API token as a row."""
    return TokenRow(
        id=token.pk,
        name=token.name,
        user=token.user.get_username(),
        prefix=token.prefix,
        scopes=", ".join(scope.replace("_", " ") for scope in token.scopes),
        created_at=token.created_at,
        expires_at=token.expires_at,
        last_used_at=token.last_used_at,
        is_valid=token.is_valid(now),
    )
