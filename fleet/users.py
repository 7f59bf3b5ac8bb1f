"""Users: creation, invitation, role, cluster limits, sessions and second factor, with entries in the audit log.

For the page *Users*, the API, the command `user` and the first administrator. docs/reference/access.md, "Users".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core import signing
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.crypto import constant_time_compare, salted_hmac

from fleet.audit import Attempt, RequestActor, record_outcome, write_entry
from fleet.models.access import (
    ROLES,
    ClusterLimit,
    Permission,
    can_write,
    end_sessions,
    set_cluster_limits,
    set_role,
)
from fleet.models.clusters import Cluster
from fleet.vocabulary.actions import AuditAction, AuditOutcome, RefusalError
from fleet.vocabulary.changes import Actor, ActorKind

#: How long the link of an invitation works.
INVITATION_LIFETIME = timedelta(hours=24)
#: The role that manages users.
ADMIN_ROLE = "admin"
_INVITATION_SALT = "refloat.invitation"


def create_user(
    username: str,
    password: str,
    role: str,
    actor: RequestActor,
    *,
    now: datetime,
    email: str = "",
    clusters: Iterable[str] = (),
) -> User:
    """Create a user. `clusters`: limits, none for all clusters. Raises ValidationError, with the field `password`."""
    with transaction.atomic():
        user = User(username=username, email=email)
        user.full_clean(exclude=["password"])
        try:
            validate_password(password, user)
        except ValidationError as error:
            raise ValidationError({"password": error.messages}) from error
        user.set_password(password)
        user.save()
        set_role(user, role)
        ClusterLimit.objects.bulk_create(
            ClusterLimit(user=user, cluster=cluster) for cluster in dict.fromkeys(clusters)
        )
        attempt = actor.create_attempt(
            AuditAction.USER_CREATE, subject=user.get_username(), after=audit_values_of(user)
        )
        write_entry(attempt, AuditOutcome.SUCCEEDED, now)
    return user


def audit_values_of(user: User) -> dict[str, Any]:
    """Return what the audit log keeps of a user."""
    return {
        "roles": sorted(set(user.groups.values_list("name", flat=True)) & set(ROLES)),
        "clusters": sorted(user.cluster_limits.values_list("cluster", flat=True)),
        "active": user.is_active,
    }


class UserRefusedError(RefusalError):
    """A rule does not allow the action; the message says why, and what to do."""


def invite(
    username: str,
    role: str,
    actor: RequestActor,
    *,
    now: datetime,
    email: str = "",
    clusters: Iterable[str] = (),
) -> tuple[User, str]:
    """Create a user without a password. Returns the user and the secret part of the link that sets one.

    Raises ValidationError.
    """
    with transaction.atomic():
        user = User(username=username, email=email)
        user.set_unusable_password()
        user.full_clean(exclude=["password"])
        user.save()
        set_role(user, role)
        set_cluster_limits(user, clusters)
    _record(AuditAction.USER_INVITE, user, actor, now, before=None, after=audit_values_of(user))
    return user, create_invitation(user)


def renew_invitation(user: User, actor: RequestActor, now: datetime) -> str:
    """Return the secret part of a new link; the last one stops working. Raises UserRefusedError."""
    attempt = _create_attempt(AuditAction.USER_INVITE, user, actor)
    with record_outcome(attempt, lambda: now):
        if user.has_usable_password():
            raise UserRefusedError(f"{user} has a password already, so there is nothing to invite to")
        # Another random value: the link contains the digest of the old one.
        user.set_unusable_password()
        user.save(update_fields=["password"])
    return create_invitation(user)


def create_invitation(user: User) -> str:
    """Return the secret part of the link with which an invited user sets a password."""
    return signing.dumps([user.pk, _digest_of(user)], salt=_INVITATION_SALT)


def find_invited_user(token: str) -> User | None:
    """Return the user whose invitation this is; None after it was accepted, renewed, or after 24 h."""
    try:
        key, digest = signing.loads(token, salt=_INVITATION_SALT, max_age=INVITATION_LIFETIME)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    user = User.objects.filter(pk=key, is_active=True).first()
    if user is None or user.has_usable_password() or not constant_time_compare(digest, _digest_of(user)):
        return None
    return user


def accept_invitation(token: str, password: str, *, now: datetime, request_id: str = "") -> User | None:
    """Set the password of an invited user; None if the link does not work any more. Raises ValidationError."""
    with transaction.atomic():
        invited_user = find_invited_user(token)
        if invited_user is None:
            return None
        validate_password(password, invited_user)
        unusable_password = invited_user.password
        invited_user.set_password(password)
        # Of two requests with the same link, one sets the password.
        accepted_count = User.objects.filter(pk=invited_user.pk, password=unusable_password).update(
            password=invited_user.password
        )
        if not accepted_count:
            return None
    actor = RequestActor(Actor(ActorKind.PERSON, invited_user.get_username(), invited_user.pk), request_id)
    _record(AuditAction.USER_ACCEPT, invited_user, actor, now, before=None, after=None)
    return invited_user


def change_role(user: User, role: str, actor: RequestActor, now: datetime) -> None:
    """Make `role` the only role of a user. Raises UserRefusedError, KeyError for an unknown role."""
    with _change(AuditAction.USER_ROLE, user, actor, now):
        if role != ADMIN_ROLE:
            _require_other_administrator(user, actor, "change your own role")
        set_role(user, role)


def change_limits(user: User, clusters: Sequence[str], actor: RequestActor, now: datetime) -> None:
    """Limit a user to clusters; none: every cluster. Raises UserRefusedError."""
    with _change(AuditAction.USER_LIMITS, user, actor, now):
        unknown_clusters = set(clusters) - set(Cluster.objects.values_list("pk", flat=True))
        if unknown_clusters:
            raise UserRefusedError(f"there is no cluster {min(unknown_clusters)}: choose one of the list")
        if clusters:
            _require_other_administrator(user, actor, "limit yourself to some clusters")
        set_cluster_limits(user, clusters)


def set_active(user: User, actor: RequestActor, now: datetime, *, is_active: bool) -> None:
    """Enable or disable a user; disabling ends all sessions. Raises UserRefusedError."""
    action = AuditAction.USER_ENABLE if is_active else AuditAction.USER_DISABLE
    with _change(action, user, actor, now):
        if not is_active:
            _require_other_administrator(user, actor, "disable yourself")
        user.is_active = is_active
        user.save(update_fields=["is_active"])
        if not is_active:
            end_sessions(user)


def end_all_sessions(user: User, actor: RequestActor, now: datetime) -> int:
    """End the sessions of a user, and return their number."""
    attempt = _create_attempt(AuditAction.USER_END_SESSIONS, user, actor)
    with record_outcome(attempt, lambda: now):
        ended_count = end_sessions(user)
        attempt.before, attempt.after = {"sessions": ended_count}, {"sessions": 0}
    return ended_count


def reset_second_factor(user: User, actor: RequestActor, now: datetime) -> int:
    """Remove the authenticator app, the security keys and the recovery codes of a user; return their number."""
    attempt = _create_attempt(AuditAction.USER_RESET_SECOND_FACTOR, user, actor)
    with record_outcome(attempt, lambda: now):
        authenticators = Authenticator.objects.filter(user=user)
        attempt.before = {"second_factors": sorted(authenticators.values_list("type", flat=True))}
        removed_count = len(attempt.before["second_factors"])
        authenticators.delete()
        attempt.after = {"second_factors": []}
    return removed_count


def _require_other_administrator(user: User, actor: RequestActor, own_action: str) -> None:
    """Raise UserRefusedError if the action would lock out the actor, or everybody. A shell may do both."""
    if actor.identity.user_id is None:
        return
    if actor.identity.user_id == user.pk:
        raise UserRefusedError(f"you cannot {own_action}: ask another administrator")
    if _is_administrator(user) and not any(
        _is_administrator(candidate)
        for candidate in User.objects.filter(is_active=True, groups__name=ADMIN_ROLE).exclude(pk=user.pk)
    ):
        raise UserRefusedError(
            f"{user} is the last administrator: give another user the role {ADMIN_ROLE} for all clusters first"
        )


def _is_administrator(user: User) -> bool:
    """Return whether the user can manage the access of all users."""
    return can_write(user, Permission.MANAGE_ACCESS, "")


@contextmanager
def _change(action: AuditAction, user: User, actor: RequestActor, now: datetime) -> Iterator[None]:
    """Change a user, with the values before and after in the audit log."""
    attempt = _create_attempt(action, user, actor)
    attempt.before = audit_values_of(user)
    with record_outcome(attempt, lambda: now), transaction.atomic():
        yield
        attempt.after = audit_values_of(user)


def _create_attempt(action: AuditAction, user: User, actor: RequestActor) -> Attempt:
    return actor.create_attempt(action, subject=user.get_username())


def _record(
    action: AuditAction, user: User, actor: RequestActor, now: datetime, *, before: Any, after: Any
) -> None:
    attempt = actor.create_attempt(action, subject=user.get_username(), before=before, after=after)
    write_entry(attempt, AuditOutcome.SUCCEEDED, now)


def _digest_of(user: User) -> str:
    """Return what differs after the password was set or the invitation was renewed."""
    return salted_hmac(_INVITATION_SALT, user.password).hexdigest()[:20]
