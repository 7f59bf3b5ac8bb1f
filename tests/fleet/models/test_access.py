from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User

from fleet.models.access import ROLES, ClusterLimit, Permission, create_roles, give_role, may

pytestmark = pytest.mark.django_db


def _user(role: str) -> User:
    user = User.objects.create_user(f"a-{role}")
    give_role(user, role)
    return User.objects.get(pk=user.pk)


@pytest.mark.parametrize("role", ROLES)
def test_role_has_exactly_its_permissions(role: str) -> None:
    """The groups come with the migration; each allows what ROLES says and nothing else."""
    user = _user(role)
    assert {permission for permission in Permission if may(user, permission)} == ROLES[role]


def test_create_roles_twice_keeps_what_an_admin_added() -> None:
    """A second migration neither doubles groups nor takes an addition away."""
    viewer, operator = Group.objects.get(name="viewer"), Group.objects.get(name="operator")
    extra = operator.permissions.get(codename="act_on_fleet")
    viewer.permissions.add(extra)
    create_roles()
    assert Group.objects.count() == len(ROLES)
    assert extra in viewer.permissions.all()


def test_give_role_replaces_the_other_roles() -> None:
    """Somebody has one role at a time; other groups stay."""
    user = _user("admin")
    other = Group.objects.create(name="night shift")
    user.groups.add(other)
    give_role(user, "viewer")
    assert {group.name for group in user.groups.all()} == {"viewer", "night shift"}
    give_role(user, "")
    assert {group.name for group in user.groups.all()} == {"night shift"}


def test_give_role_unknown_is_refused() -> None:
    """A role that does not exist is an error, not a silent nothing."""
    with pytest.raises(KeyError):
        give_role(_user("viewer"), "owner")


def test_may_nobody_and_inactive() -> None:
    """Neither a stranger nor a deactivated user may anything."""
    user = _user("admin")
    user.is_active = False
    assert not may(user, Permission.VIEW_FLEET)
    assert not may(AnonymousUser(), Permission.VIEW_FLEET)


def test_may_limited_to_clusters() -> None:
    """Without limits all clusters are seen; with one, only that."""
    user = _user("viewer")
    assert may(user, Permission.VIEW_FLEET, "default")
    assert may(user, Permission.VIEW_FLEET, "eu")
    ClusterLimit.objects.create(user=user, cluster="eu")
    assert not may(user, Permission.VIEW_FLEET, "default")
    assert may(user, Permission.VIEW_FLEET, "eu")
