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
    """Clear the cache: attempts of the last test's user 1 must not count for the rate limits of this one's."""
    cache.clear()


_STORES = (
    record_reader.reader,
    record_reader.policy_report_store,
    record_reader.connection_test_store,
    record_reader.edge_store,
)


@pytest.fixture(autouse=True)
def no_store_of_other_settings() -> Iterator[None]:
    """Forget the connections of this process: those of the last test may lead to a Redis that is gone."""
    yield
    for store in _STORES:
        store.cache_clear()


MakeUser = Callable[[str], User]


@pytest.fixture
def person(db: None) -> MakeUser:
    """Return a function that makes a user with that role ("" for none)."""

    def make(role: str) -> User:
        user = User.objects.create_user(role.replace(" ", "-") or "nobody", password="correct horse")
        set_role(user, role)
        return user

    return make


def reauthenticate(client: Client) -> None:
    """Reauthenticate, as lasting actions require."""
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
    """A real record of four agents that the console reads. Its clock stands still: a slow test makes nothing stale."""
    now = time.time()
    monkeypatch.setattr(record_reader, "current_time", lambda: now)
    redis = connect(live_settings.REDIS_URL)
    writer = Writer(redis, live_settings.REFLOAT_PREFIX)
    fill(writer, [State.HEALTHY, State.HEALTHY, State.STRANDED, State.AT_RISK], as_of=now)
    reader = open_reader(live_settings.REDIS_URL, live_settings.REFLOAT_PREFIX)
    monkeypatch.setattr(record_reader, "reader", lambda: reader)
    yield writer
    redis.close()


@pytest.fixture
def make_limited_user(db: None) -> MakeUser:
    """Return a function that makes a user with that role who is limited to the cluster `other`, and the cluster."""

    def make(role: str) -> User:
        Cluster.objects.get_or_create(id="other", defaults={"name": "Other"})
        user = User.objects.create_user(f"limited-{role.replace(' ', '-')}", password="correct horse")
        set_role(user, role)
        ClusterLimit.objects.create(user=user, cluster="other")
        return user

    return make
