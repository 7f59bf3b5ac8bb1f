"""Creation of users, for the command `user` and the first administrator."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from fleet.audit import RequestActor, write_entry
from fleet.models.access import ROLES, ClusterLimit, set_role
from fleet.vocabulary.actions import AuditAction, AuditOutcome


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
