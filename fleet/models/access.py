"""Who may do what: permissions, the four roles that bundle them, and limits to some clusters. docs/access.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, User
from django.contrib.auth.models import Permission as PermissionRow
from django.contrib.sessions.models import Session
from django.db import models
from django.utils import timezone
from typing_extensions import override

from fleet.vocabulary.looks import LabelledEnum


class Permission(LabelledEnum):
    """What a role may allow, and that in words. The values are Django's codenames in the app `fleet`."""

    VIEW_FLEET = "view_fleet", "See the fleet: map, lists, agents, instances"
    VIEW_METRICS = "view_metrics", "Read the console's own metrics"
    VIEW_AUDIT = "view_audit", "Read the log of who did what"
    ACT_ON_FLEET = "act_on_fleet", "Act on the fleet: reconnects, silences"
    CHANGE_CONFIG = "change_config", "Change networking configuration and policies"
    MANAGE_ACCESS = "manage_access", "Manage people, roles and everybody's tokens"

    @property
    def qualified_name(self) -> str:
        """Its name for `User.has_perm`."""
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
    """Nothing but the place where Django hangs our permissions; it has no table."""

    class Meta:
        managed = False
        default_permissions = ()
        permissions = tuple((permission.value, permission.label) for permission in Permission)

    @override
    def __str__(self) -> str:
        return "access"


class ClusterLimit(models.Model):
    """A person with any of these sees and changes only the clusters they name; one with none sees all."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="cluster_limits"
    )
    cluster = models.CharField(max_length=64)

    class Meta:
        default_permissions = ()
        constraints = (models.UniqueConstraint(fields=("user", "cluster"), name="one_limit_per_cluster"),)

    @override
    def __str__(self) -> str:
        return f"{self.user} sees {self.cluster}"


def create_roles(**_: Any) -> None:
    """Make the four groups and give each what it lacks. Takes nothing away: an admin's additions stay."""
    for name, permissions in ROLES.items():
        group, _is_created = Group.objects.get_or_create(name=name)
        rows = PermissionRow.objects.filter(content_type__app_label="fleet", codename__in=list(permissions))
        group.permissions.add(*rows)


def set_role(user: User, role: str) -> None:
    """Make `role` the only one of the four roles `user` has; empty takes all four away.

    Raises KeyError for a role that does not exist.
    """
    other_roles = [name for name in ROLES if name != role]
    user.groups.remove(*Group.objects.filter(name__in=other_roles))
    if role:
        _ = ROLES[role]
        user.groups.add(Group.objects.get(name=role))


def end_sessions(user: User) -> int:
    """Delete the sessions of `user`, and return how many there were: turning an account on again revives none."""
    ended_count = 0
    for session in Session.objects.filter(expire_date__gt=timezone.now()).iterator():
        if session.get_decoded().get(SESSION_KEY) == str(user.pk):
            ended_count += session.delete()[0]
    return ended_count


def has_permission(user: AbstractBaseUser | AnonymousUser, permission: Permission, cluster: str | None = None) -> bool:
    """Whether `user` has `permission`, and sees `cluster` when one is named."""
    if not user.is_active or not isinstance(user, User) or not user.has_perm(permission.qualified_name):
        return False
    return cluster is None or can_see_cluster(user, cluster)


def limits_of(user: User) -> frozenset[str]:
    """Return the clusters that `user` is limited to; empty: no limit."""
    return frozenset(user.cluster_limits.values_list("cluster", flat=True))


def can_see_cluster(user: User, cluster: str) -> bool:
    """Whether no limit keeps `user` from `cluster`."""
    limits = limits_of(user)
    return not limits or cluster in limits


def is_limited(user: User) -> bool:
    """Whether `user` is limited to some clusters."""
    return bool(limits_of(user))


def can_write(user: AbstractBaseUser | AnonymousUser, permission: Permission, owner: str) -> bool:
    """Whether `user` may write what a cluster owns, or, with an empty `owner`, the whole installation.

    What the installation owns acts on every cluster: that needs a user without a limit.
    """
    if owner:
        return has_permission(user, permission, owner)
    return has_permission(user, permission) and isinstance(user, User) and not is_limited(user)


def log_clusters_of(cluster: str, *, has_limit: bool) -> tuple[str, ...]:
    """Return what rows of a log on a cluster's page may name as theirs: the cluster, and without a limit none."""
    return (cluster,) if has_limit else ("", cluster)
