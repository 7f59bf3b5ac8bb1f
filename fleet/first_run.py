"""The first administrator of an installation: created by whoever has the link that the console prints in its terminal.

The link holds a signed text and needs no storage. It works for an hour and while there are no users, so it works once.
docs/reference/access.md, "The first administrator".
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.core import signing
from django.db import transaction

from fleet.audit import RequestActor
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.users import create_user
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
        actor = RequestActor(Actor(ActorKind.SYSTEM, "setup link"), request_id)
        return create_user(username, password, _ROLE, actor, now=now, email=email)
