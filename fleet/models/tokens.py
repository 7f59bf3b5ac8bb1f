"""Bearer tokens of the API. Only a hash is stored; a token never has more permissions than its user.

docs/reference/access.md.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import Error, models
from django.db.models import Q
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from typing_extensions import override

from fleet.models.access import Permission
from fleet.models.lock_timeout import limit_lock_wait

logger = logging.getLogger(__name__)

#: Prefix of every token, so that secret scanners recognize it.
TOKEN_MARK = "rfl"  # noqa: S105 - a mark, not a secret
#: Shortest interval between two writes of `last_used_at`, so that frequent requests do not write each time.
_LAST_USED_WRITE_INTERVAL = timedelta(minutes=1)
#: Seconds that this write may wait for another writer.
_LAST_USED_LOCK_TIMEOUT_SECONDS = 0.1


class ApiToken(models.Model):
    """A token. It has the permissions that are both in `scopes` and held by its user."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    #: Public part of the token: the key of the row, and its name in lists and logs.
    prefix = models.CharField(max_length=16, unique=True)
    #: SHA-256 of the whole token in hex. No salt or pepper: the token has 256 random bits.
    digest = models.CharField(max_length=64)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        default_permissions = ()
        ordering = ("-created_at", "-pk")

    @override
    def __str__(self) -> str:
        return f"{self.name} ({self.prefix})"

    def is_valid(self, now: datetime) -> bool:
        """Return whether the token is neither revoked nor expired, and its user is active."""
        is_expired = self.expires_at is not None and self.expires_at <= now
        return self.revoked_at is None and not is_expired and self.user.is_active

    def allows(self, permission: Permission) -> bool:
        """Return whether `permission` is in the scopes; the user must have it too."""
        return permission.value in self.scopes

    def revoke(self, now: datetime) -> None:
        """Revoke the token permanently; a second call keeps the first time."""
        ApiToken.objects.filter(pk=self.pk, revoked_at=None).update(revoked_at=now)
        self.refresh_from_db(fields=["revoked_at"])


def create_token(
    user: User, name: str, scopes: Iterable[Permission], *, lifetime: timedelta | None, now: datetime
) -> tuple[ApiToken, str]:
    """Create a token. Returns the row and the secret string, which is not stored."""
    prefix = secrets.token_hex(4)
    secret = f"{TOKEN_MARK}_{prefix}_{secrets.token_urlsafe(32)}"
    token = ApiToken.objects.create(
        user=user,
        name=name,
        prefix=prefix,
        digest=_digest(secret),
        scopes=sorted({scope.value for scope in scopes}),
        created_at=now,
        expires_at=None if lifetime is None else now + lifetime,
    )
    return token, secret


def find_token(secret: str, now: datetime) -> ApiToken | None:
    """Return the valid token with this secret string, with its user; None for any other string.

    Stores the time of use when the database accepts the write at once.
    """
    mark, _, rest = secret.partition("_")
    prefix, _, _ = rest.partition("_")
    # Only possible prefixes are looked up: PostgreSQL rejects a NUL in a text, SQLite does not.
    if mark != TOKEN_MARK or not prefix.isalnum():
        return None
    token = ApiToken.objects.select_related("user").filter(prefix=prefix).first()
    if token is None or not constant_time_compare(token.digest, _digest(secret)) or not token.is_valid(now):
        return None
    if token.last_used_at is None or token.last_used_at < now - _LAST_USED_WRITE_INTERVAL:
        _record_use(token, now)
    return token


def _record_use(token: ApiToken, now: datetime) -> None:
    """Store when the token was last used, unless the database is busy: reading must not depend on a write."""
    stale_use = Q(last_used_at=None) | Q(last_used_at__lt=now - _LAST_USED_WRITE_INTERVAL)
    try:
        with limit_lock_wait(_LAST_USED_LOCK_TIMEOUT_SECONDS):
            ApiToken.objects.filter(stale_use, pk=token.pk).update(last_used_at=now)
    except Error as error:
        logger.warning("the last use of the token %s was not stored: %s", token.prefix, error)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
