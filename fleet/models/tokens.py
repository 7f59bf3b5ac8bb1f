"""Bearer tokens of the API: only a hash is kept, and a token can never do more than its user. docs/access.md."""

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

#: What every token begins with, so that scanners of leaked secrets know it.
TOKEN_MARK = "rfl"  # noqa: S105 - a mark, not a secret
#: `last_used_at` is written at most once in this time: a poller would write it at every request.
_LAST_USED_INTERVAL = timedelta(minutes=1)
#: How long that write may wait for another writer, seconds.
_LAST_USED_LOCK_TIMEOUT_SECONDS = 0.1


class ApiToken(models.Model):
    """One token. `scopes` are permissions; what counts is what scopes and user both have."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    #: The public half: finds the row, and names the token in lists and logs.
    prefix = models.CharField(max_length=16, unique=True)
    #: SHA-256 of the whole token, hex. No salt or pepper: the token itself is 256 random bits.
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
        """Whether it is neither revoked nor expired, and its user is active."""
        is_expired = self.expires_at is not None and self.expires_at <= now
        return self.revoked_at is None and not is_expired and self.user.is_active

    def allows(self, permission: Permission) -> bool:
        """Whether its scopes name `permission`; the user must have it as well."""
        return permission.value in self.scopes

    def revoke(self, now: datetime) -> None:
        """End it for good; the first end stays when it is revoked twice."""
        ApiToken.objects.filter(pk=self.pk, revoked_at=None).update(revoked_at=now)
        self.refresh_from_db(fields=["revoked_at"])


def create_token(
    user: User, name: str, scopes: Iterable[Permission], *, lifetime: timedelta | None, now: datetime
) -> tuple[ApiToken, str]:
    """Make a token; the string is seen here once and never again."""
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
    """Return the valid token that `secret` is, with its user; None for anything else.

    Keeps when it was used last, where the database takes that.
    """
    mark, _, rest = secret.partition("_")
    prefix, _, _ = rest.partition("_")
    # Only what we could have made is looked up: PostgreSQL refuses a NUL in a text, SQLite does not.
    if mark != TOKEN_MARK or not prefix.isalnum():
        return None
    token = ApiToken.objects.select_related("user").filter(prefix=prefix).first()
    if token is None or not constant_time_compare(token.digest, _digest(secret)) or not token.is_valid(now):
        return None
    if token.last_used_at is None or token.last_used_at < now - _LAST_USED_INTERVAL:
        _record_use(token, now)
    return token


def _record_use(token: ApiToken, now: datetime) -> None:
    """Keep when the token was last used, if the database takes it at once: nobody's reading depends on a write."""
    stale_use = Q(last_used_at=None) | Q(last_used_at__lt=now - _LAST_USED_INTERVAL)
    try:
        with limit_lock_wait(_LAST_USED_LOCK_TIMEOUT_SECONDS):
            ApiToken.objects.filter(stale_use, pk=token.pk).update(last_used_at=now)
    except Error as error:
        logger.warning("the last use of the token %s is not kept: %s", token.prefix, error)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
