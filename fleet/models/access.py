"""Permissions, the four roles that bundle them, and limits of users to some clusters. docs/reference/access.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, User
from django.contrib.auth.models import Permission as PermissionRow
from django.contrib.sessions.models import Session
from django.db import models
from django.utils import timezone
from typing_extensions import override

from fleet.vocabulary.enum_types import LabelledEnum


class Permission(LabelledEnum):
    """Permission of a role, with its label. The values are Django's codenames in the app `fleet`."""

    VIEW_FLEET = "view_fleet", "See the fleet: map, lists, agents, instances"
    VIEW_METRICS = "view_metrics", "Read the metrics of the console"
    VIEW_AUDIT = "view_audit", "Read the audit log"
    ACT_ON_FLEET = "act_on_fleet", "Act on the fleet: reconnect campaigns, drains, silences"
    CHANGE_CONFIG = "change_config", "Change networking config and policies"
    MANAGE_ACCESS = "manage_access", "Manage users, roles and all API tokens"

    @property
    def qualified_name(self) -> str:
        """Return the name for `User.has_perm`."""
        return f"fleet.{self.value}"


_VIEWER = frozenset({Permission.VIEW_FLEET, Permission.VIEW_METRICS})
_OPERATOR = _VIEWER | {Permission.ACT_ON_FLEET, Permission.VIEW_AUDIT}

#: The roles, each a Django group of that name.
ROLES: Mapping[str, frozenset[Permission]] = {
    "viewer": _VIEWER,
    "operator": _OPERATOR,
    "config admin": _OPERATOR | {Permission.CHANGE_CONFIG},
    "admin": frozenset(Permission),
}


class Access(models.Model):
    """Model without a table that declares Refloat's permissions to Django."""

    class Meta:
        managed = False
        default_permissions = ()
        permissions = tuple((permission.value, permission.label) for permission in Permission)

    @override
    def __str__(self) -> str:
        return "access"


class ClusterLimit(models.Model):
    """Limit of a user to one cluster. A user without any limit sees every cluster."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="cluster_limits"
    )
    cluster = models.CharField(max_length=64)

    class Meta:
        default_permissions = ()
        constraints = (models.UniqueConstraint(fields=("user", "cluster"), name="one_limit_per_cluster"),)

    @override
    def __str__(self) -> str:
        return f"{self.user}: {self.cluster}"


def create_roles(**_: Any) -> None:
    """Create the four groups and add missing permissions. Permissions that an admin added stay."""
    for name, permissions in ROLES.items():
        group, _is_created = Group.objects.get_or_create(name=name)
        rows = PermissionRow.objects.filter(content_type__app_label="fleet", codename__in=list(permissions))
        group.permissions.add(*rows)


def set_role(user: User, role: str) -> None:
    """Make `role` the only role of `user`; an empty role removes every role.

    Raises KeyError for an unknown role.
    """
    other_roles = [name for name in ROLES if name != role]
    user.groups.remove(*Group.objects.filter(name__in=other_roles))
    if role:
        _ = ROLES[role]
        user.groups.add(Group.objects.get(name=role))


def end_sessions(user: User) -> int:
    """Delete the sessions of `user` and return their number: enabling the account again restores none."""
    return sum(session.delete()[0] for session in iterate_sessions(user))


def iterate_sessions(user: User) -> Iterator[Session]:
    """Yield the open sessions of `user`. Sessions do not name their user, so all are read."""
    for session in Session.objects.filter(expire_date__gt=timezone.now()).iterator():
        if session.get_decoded().get(SESSION_KEY) == str(user.pk):
            yield session


def count_sessions() -> Mapping[str, int]:
    """Return the number of open sessions by primary key of the user, as text."""
    sessions = Session.objects.filter(expire_date__gt=timezone.now()).iterator()
    keys = (session.get_decoded().get(SESSION_KEY) for session in sessions)
    return Counter(str(key) for key in keys if key)


def set_cluster_limits(user: User, clusters: Iterable[str]) -> None:
    """Limit `user` to these clusters; none: every cluster."""
    names = list(dict.fromkeys(clusters))
    user.cluster_limits.exclude(cluster__in=names).delete()
    ClusterLimit.objects.bulk_create(
        [ClusterLimit(user=user, cluster=name) for name in names], ignore_conflicts=True
    )


def has_permission(
    user: AbstractBaseUser | AnonymousUser, permission: Permission, cluster: str | None = None
) -> bool:
    """Return whether `user` has `permission`, and may see `cluster` when it is not None."""
    if not user.is_active or not isinstance(user, User) or not user.has_perm(permission.qualified_name):
        return False
    return cluster is None or can_see_cluster(user, cluster)


def cluster_limits_of(user: User) -> frozenset[str]:
    """Return the ids of the clusters that `user` is limited to; empty: no limit."""
    return frozenset(user.cluster_limits.values_list("cluster", flat=True))


def can_see_cluster(user: User, cluster: str) -> bool:
    """Return whether `user` may see `cluster`."""
    cluster_ids = cluster_limits_of(user)
    return not cluster_ids or cluster in cluster_ids


def has_cluster_limit(user: User) -> bool:
    """Return whether `user` is limited to some clusters."""
    return bool(cluster_limits_of(user))


def can_write(user: AbstractBaseUser | AnonymousUser, permission: Permission, owner_cluster: str) -> bool:
    """Return whether `user` may change an object of the cluster `owner_cluster`; empty: of the whole installation.

    Objects of the installation apply to every cluster, so they need a user without a limit.
    """
    if owner_cluster:
        return has_permission(user, permission, owner_cluster)
    return has_permission(user, permission) and isinstance(user, User) and not has_cluster_limit(user)


def audit_log_clusters_of(cluster: str, *, is_limited_user: bool) -> tuple[str, ...]:
    """Return the clusters whose audit log rows a cluster's page shows; unlimited users also see rows without one."""
    return (cluster,) if is_limited_user else ("", cluster)
