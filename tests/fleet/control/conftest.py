"""A cluster, people, and a moment."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User

from fleet.control.changes import By, Draft
from fleet.domain.changes import Actor, ActorKind, ChangeKind
from fleet.models.clusters import Cluster

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def by(user: User, key: str = "") -> By:
    """A person asking."""
    return By(Actor(ActorKind.PERSON, user.get_username(), user.pk), "req-1", key)


def draft(agents: int = 3, wanted: str = "b") -> Draft:
    """A change of nothing in particular."""
    return Draft(
        ChangeKind.NETWORKING_CONFIG, "a to b", {"v": "a"}, {"v": wanted}, {"closes": agents}, agents=agents
    )


@pytest.fixture
def cluster(db: None) -> Cluster:
    """A cluster that asks for nothing special."""
    return Cluster.objects.create(id="default", name="Default")


@pytest.fixture
def alice(db: None) -> User:
    """Who makes changes."""
    return User.objects.create_user("alice")


@pytest.fixture
def bob(db: None) -> User:
    """Who agrees to them."""
    return User.objects.create_user("bob")
