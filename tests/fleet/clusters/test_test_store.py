"""Connection tests in a real Redis."""

from __future__ import annotations

from dataclasses import replace

import pytest
from redis import Redis

from fleet.clusters.test_report import ConnectionTestReport
from fleet.clusters.test_store import ConnectionTestStore, open_test_store, request_test
from fleet.monitoring.state import StateUnavailableError


def test_the_newest_test_of_a_cluster_is_read(redis: Redis, prefix: str) -> None:
    """Also a single one by its id; an older test learns that it is no longer the newest."""
    store = ConnectionTestStore(redis, prefix)
    assert store.read("default") is None
    first = store.create("default", 100.0)
    assert store.write(replace(first, started_at=101.0))
    second = store.create("default", 102.0)

    assert store.read("default") == second == ConnectionTestReport(second.test_id, "default", 102.0)
    assert not store.write(replace(first, started_at=101.0, ended_at=103.0))
    assert store.read("default", first.test_id) == replace(first, started_at=101.0, ended_at=103.0)
    assert store.read("other") is None
    assert 0 < redis.ttl(f"{prefix}:default:connection-test") <= 3600


def test_a_deleted_test_does_not_come_back(redis: Redis, prefix: str) -> None:
    """A worker may still run the test of a removed cluster."""
    store = ConnectionTestStore(redis, prefix)
    report = store.create("default", 100.0)
    store.delete("default")

    assert not store.write(replace(report, started_at=101.0))
    assert store.read("default") is None
    assert not list(redis.scan_iter(f"{prefix}:*"))


def test_redis_down() -> None:
    """The same exception as for other Redis errors."""
    store = open_test_store("redis://127.0.0.1:1/0", "x")

    with pytest.raises(StateUnavailableError):
        request_test(store, "default", "refloat")
    with pytest.raises(StateUnavailableError):
        store.read("default")
