"""Removal of the Redis keys of a cluster."""

from __future__ import annotations

import pytest
from redis import Redis

from fleet.clusters.record_removal import delete_cluster_keys
from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.keys import Keys


def test_only_the_keys_of_the_cluster_are_deleted(redis: Redis, prefix: str) -> None:
    """Not those of a cluster whose id begins the same way; special characters of a prefix match themselves."""
    for name in (f"{prefix}[a]*:eu", f"{prefix}[a]*:eu-west", f"{prefix}a:eu"):
        keys = Keys(*name.rsplit(":", 1))
        redis.mset(dict.fromkeys((keys.epoch, keys.round_claim(7), keys.connection_test("x")), "1"))

    assert delete_cluster_keys(redis, f"{prefix}[a]*", "eu") == 3
    assert not redis.exists(Keys(f"{prefix}[a]*", "eu").epoch)
    assert redis.exists(Keys(f"{prefix}[a]*", "eu-west").epoch)
    assert redis.exists(Keys(f"{prefix}a", "eu").epoch)


def test_redis_down() -> None:
    """The same exception as for other Redis errors."""
    with pytest.raises(StateUnavailableError):
        delete_cluster_keys(connect("redis://127.0.0.1:1/0"), "x", "eu")
