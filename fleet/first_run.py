"""The first administrator of an installation: created by whoever has the link that the console prints in its terminal.

The link holds a signed text and needs no storage. It works for an hour and while there are no users, so it works once.
docs/reference/access.md, "The first administrator".
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core import signing
from django.core.exceptions import ValidationError
from django.db import transaction

from fleet.audit import Attempt, write_entry
from fleet.models.access import set_role
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.vocabulary.actions import AuditAction, AuditOutcome
from fleet.vocabulary.changes import Actor, ActorKind

#: How long a link works.
LINK_LIFETIME = timedelta(hours=1)
_SALT = "refloat.first-run"
_ROLE = "admin"


class SetUpAlreadyError(Exception):
    """There are users already: they create all others."""


def needs_administrator() -> bool:
    """Return whether there are no users. Raises DatabaseError."""
    return not User.objects.exists()


def create_setup_token() -> str:
    """Return the secret part of a new link."""
    return signing.dumps("first administrator", salt=_SALT)


def is_setup_token(token: str) -> bool:
    """Return whether this is the secret part of a link that still works."""
    try:
        signing.loads(token, salt=_SALT, max_age=LINK_LIFETIME)
    except signing.BadSignature:
        return False
    return needs_administrator()


def create_administrator(
    username: str, password: str, *, now: datetime, email: str = "", request_id: str = ""
) -> User:
    """Create the first user, with the role admin. Raises ValidationError, SetUpAlreadyError."""
    with transaction.atomic():
        # Of two requests with the same link, the second one waits here.
        Cluster.objects.select_for_update().get(pk=ensure_default_cluster().pk)
        if not needs_administrator():
            raise SetUpAlreadyError("an administrator exists already. Sign in")
        user = User(username=username, email=email)
        user.full_clean(exclude=["password"])
        _check_password(password, user)
        user.set_password(password)
        user.save()
        set_role(user, _ROLE)
        values: dict[str, Any] = {"roles": [_ROLE], "clusters": [], "active": True}
        attempt = Attempt(
            Actor(ActorKind.SYSTEM, "setup link"),
            AuditAction.USER_CREATE,
            subject=user.get_username(),
            after=values,
            request_id=request_id,
        )
        write_entry(attempt, AuditOutcome.SUCCEEDED, now)
    return user


def _check_password(password: str, user: User) -> None:
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise ValidationError({"password": error.messages}) from error
