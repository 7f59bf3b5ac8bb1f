"""People with roles."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from dashboards import reading
from fleet.domain.verdicts import State
from fleet.models.access import give_role
from tests.fakes.reader import FakeReader


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


@pytest.fixture
def fake_reader(monkeypatch: pytest.MonkeyPatch) -> FakeReader:
    """The console reads a fleet in memory: agents 0 to 3, of which 2 is stranded and 3 at risk."""
    fake = FakeReader(
        states=[State.HEALTHY, State.HEALTHY, State.STRANDED, State.AT_RISK], as_of=time.time() - 1, seq=7
    )
    monkeypatch.setattr(reading, "reader", lambda: fake)
    return fake
