from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.contrib.sessions.models import Session
from django.utils import timezone

from fleet.models.access import (
    ROLES,
    ClusterLimit,
    Permission,
    audit_log_clusters_of,
    can_write,
    create_roles,
    end_sessions,
    has_cluster_limit,
    has_permission,
    set_role,
)

pytestmark = pytest.mark.django_db


def _user(role: str) -> User:
    user = User.objects.create_user(f"a-{role}")
    set_role(user, role)
    return User.objects.get(pk=user.pk)


@pytest.mark.parametrize("role", ROLES)
def test_role_has_exactly_its_permissions(role: str) -> None:
    """The groups created by the migration match ROLES."""
    user = _user(role)
    assert {permission for permission in Permission if has_permission(user, permission)} == ROLES[role]


def test_create_roles_twice_keeps_added_permissions() -> None:
    """A second migration neither doubles groups nor takes an addition away."""
    viewer, operator = Group.objects.get(name="viewer"), Group.objects.get(name="operator")
    extra = operator.permissions.get(codename="act_on_fleet")
    viewer.permissions.add(extra)
    create_roles()
    assert Group.objects.count() == len(ROLES)
    assert extra in viewer.permissions.all()


def test_set_role_replaces_the_other_roles() -> None:
    """A user has one role at a time; other groups stay."""
    user = _user("admin")
    other_group = Group.objects.create(name="night shift")
    user.groups.add(other_group)
    set_role(user, "viewer")
    assert {group.name for group in user.groups.all()} == {"viewer", "night shift"}
    set_role(user, "")
    assert {group.name for group in user.groups.all()} == {"night shift"}


def test_set_role_with_an_unknown_role_is_an_error() -> None:
    """A role that does not exist is an error, not a silent nothing."""
    with pytest.raises(KeyError):
        set_role(_user("viewer"), "owner")


def test_anonymous_and_inactive_users_have_no_permissions() -> None:
    """No permission at all."""
    user = _user("admin")
    user.is_active = False
    assert not has_permission(user, Permission.VIEW_FLEET)
    assert not has_permission(AnonymousUser(), Permission.VIEW_FLEET)


def test_permissions_are_limited_to_clusters() -> None:
    """Without limits all clusters are seen; with one, only that."""
    user = _user("viewer")
    assert has_permission(user, Permission.VIEW_FLEET, "default")
    assert has_permission(user, Permission.VIEW_FLEET, "eu")
    ClusterLimit.objects.create(user=user, cluster="eu")
    assert not has_permission(user, Permission.VIEW_FLEET, "default")
    assert has_permission(user, Permission.VIEW_FLEET, "eu")


def test_write_permission_depends_on_the_cluster_limit() -> None:
    """The installation's only without a limit; a cluster's like everything of that cluster."""
    unlimited_user, limited_user, viewer = _user("config admin"), _user("admin"), _user("viewer")
    ClusterLimit.objects.create(user=limited_user, cluster="eu")
    owners = ("", "eu", "asia")
    writes = [
        [can_write(user, Permission.CHANGE_CONFIG, owner) for owner in owners]
        for user in (unlimited_user, limited_user, viewer, AnonymousUser())
    ]
    assert writes == [[True] * 3, [False, True, False], [False] * 3, [False] * 3]
    assert (has_cluster_limit(unlimited_user), has_cluster_limit(limited_user)) == (False, True)


def test_rows_of_no_cluster_are_shown_without_a_limit() -> None:
    """With one, those of the cluster alone."""
    assert audit_log_clusters_of("eu", is_limited_user=True) == ("eu",)
    assert set(audit_log_clusters_of("eu", is_limited_user=False)) == {"", "eu"}


def test_expired_sessions_are_not_read(caplog: pytest.LogCaptureFixture) -> None:
    """Also the row that `readyz` writes, which is no session."""
    Session.objects.create(session_key="readyz", session_data="", expire_date=timezone.now())
    assert end_sessions(User.objects.create(username="ada")) == 0
    assert not caplog.records
