"""People with roles."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from pytest_django import Settings

from dashboards.shared import record_reader
from fleet.models.access import ClusterLimit, set_role
from fleet.models.clusters import Cluster
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.reader import open_reader
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader
from tests.fakes.record import fill


@pytest.fixture(autouse=True)
def no_memory_of_attempts() -> None:
    """Each test's first user is user 1: what the last one tried must not count against this one's rate limits."""
    cache.clear()


MakeUser = Callable[[str], User]


@pytest.fixture
def person(db: None) -> MakeUser:
    """Makes a user with the role of that name ("" for none)."""

    def make(role: str) -> User:
        user = User.objects.create_user(role.replace(" ", "-") or "nobody", password="correct horse")
        set_role(user, role)
        return user

    return make


def prove(client: Client) -> None:
    """Prove again who it is, as what outlives a session requires."""
    client.post("/accounts/reauthenticate/", {"password": "correct horse"})


@pytest.fixture
def fake_reader(monkeypatch: pytest.MonkeyPatch) -> FakeReader:
    """The console reads a fleet in memory: agents 0 to 3, of which 2 is stranded and 3 at risk."""
    fake = FakeReader(
        states=[State.HEALTHY, State.HEALTHY, State.STRANDED, State.AT_RISK], as_of=time.time() - 1, seq=7
    )
    monkeypatch.setattr(record_reader, "reader", lambda: fake)
    return fake


@pytest.fixture
def live_settings(settings: Settings, valkey_url: str, prefix: str) -> Settings:
    """The console on the run's Valkey, with a prefix of its own, and its pub/sub layer."""
    settings.REDIS_URL, settings.REFLOAT_PREFIX = valkey_url, prefix
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [valkey_url], "prefix": f"{prefix}:layer"},
        }
    }
    return settings


@pytest.fixture
def record(live_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    """A real record of four agents, as fresh as now, that the console reads."""
    redis = connect(live_settings.REDIS_URL)
    writer = Writer(redis, live_settings.REFLOAT_PREFIX)
    fill(writer, [State.HEALTHY, State.HEALTHY, State.STRANDED, State.AT_RISK], as_of=time.time())
    reader = open_reader(live_settings.REDIS_URL, live_settings.REFLOAT_PREFIX)
    monkeypatch.setattr(record_reader, "reader", lambda: reader)
    yield writer
    redis.close()


@pytest.fixture
def limited(db: None) -> MakeUser:
    """Makes a user with the role of that name who is limited to the cluster `other`, which exists then."""

    def make(role: str) -> User:
        Cluster.objects.get_or_create(id="other", defaults={"name": "Other"})
        user = User.objects.create_user(f"limited-{role.replace(' ', '-')}", password="correct horse")
        set_role(user, role)
        ClusterLimit.objects.create(user=user, cluster="other")
        return user

    return make
