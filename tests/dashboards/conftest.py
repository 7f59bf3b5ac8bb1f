"""People with roles."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from fleet.models.access import give_role


@pytest.fixture(autouse=True)
def quick_passwords(settings: Settings) -> None:
    """A slow hash protects people; nobody here is one."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


MakeUser = Callable[[str], User]


@pytest.fixture
def person(db: None) -> MakeUser:
    """Makes a user with the role of that name ("" for none)."""

    def make(role: str) -> User:
        user = User.objects.create_user(role.replace(" ", "-") or "nobody", password="correct horse")
        give_role(user, role)
        return user

    return make
