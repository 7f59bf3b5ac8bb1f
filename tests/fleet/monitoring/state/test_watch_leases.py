from __future__ import annotations

import time

import pytest
from redis import Redis

from fleet.monitoring.state.keys import Keys
from fleet.monitoring.state.watch_leases import WatchLease, WatchLeases
from fleet.vocabulary.capabilities import Capability
from tests.fakes.waiting import eventually_sync

CLUSTER = "teleport"
LONG = 60.0
ADDRESS = "auth-1:3025"
MISSING = {Capability.AGENT_TO_AUTH: "The role lacks a verb."}


@pytest.fixture
def leases(redis: Redis, prefix: str) -> WatchLeases:
    """Leases with a unique prefix."""
    return WatchLeases(redis, prefix)


def test_lease_has_one_winner(leases: WatchLeases) -> None:
    """And may replace a lease that is known; clusters are independent."""
    assert leases.read(CLUSTER, "", 0) is None
    assert leases.take(CLUSTER, "token-1", "", LONG)
    assert not leases.take(CLUSTER, "token-2", "", LONG)
    assert not leases.take(CLUSTER, "token-3", "token-2", LONG)
    assert leases.take("east", "token-2", "", LONG)
    assert leases.read(CLUSTER, "", 0) == WatchLease("token-1", is_ready=False)
    assert leases.take(CLUSTER, "token-2", "token-1", LONG)
    assert leases.read(CLUSTER, "", 0) == WatchLease("token-2", is_ready=False)


def test_lost_lease_cannot_be_renewed_or_released(leases: WatchLeases, redis: Redis, prefix: str) -> None:
    """Its holder writes nothing, and the new lease stays."""
    leases.take(CLUSTER, "token-1", "", LONG)
    leases.take(CLUSTER, "token-2", "token-1", LONG)
    assert leases.renew(CLUSTER, "token-1", ADDRESS, LONG, {}, 1, b"change") is None
    assert not redis.exists(Keys(prefix, CLUSTER).watch_changes("token-1"))
    leases.release(CLUSTER, "token-1")
    assert leases.renew(CLUSTER, "token-2", ADDRESS, LONG, {}, 0) == 0


def test_changes_are_read_until_they_are_recorded(leases: WatchLeases) -> None:
    """Each with its revision; those up to the recorded one are deleted."""
    leases.take(CLUSTER, "token-1", "", LONG)
    assert leases.renew(CLUSTER, "token-1", ADDRESS, LONG, MISSING, 0) == 0
    assert leases.renew(CLUSTER, "token-1", ADDRESS, LONG, MISSING, 1, b"first") == 1
    assert leases.renew(CLUSTER, "token-1", ADDRESS, LONG, MISSING, 2, b"second") == 2
    for _ in range(2):
        lease = leases.read(CLUSTER, "token-1", 0)
        assert lease == WatchLease("token-1", True, ADDRESS, MISSING, {1: b"first", 2: b"second"})
    lease = leases.read(CLUSTER, "token-1", 1)
    assert lease is not None
    assert lease.changes == {2: b"second"}
    assert leases.renew(CLUSTER, "token-1", ADDRESS, LONG, {}, 2) == 1
    other_lease = leases.read(CLUSTER, "another epoch", 0)
    assert other_lease is not None
    assert other_lease == WatchLease("token-1", True, ADDRESS)


def test_lease_expires_with_its_changes(leases: WatchLeases, redis: Redis, prefix: str) -> None:
    leases.take(CLUSTER, "token-1", "", LONG)
    leases.renew(CLUSTER, "token-1", ADDRESS, 0.05, {}, 1, b"change")
    eventually_sync(lambda: leases.read(CLUSTER, "token-1", 0) is None)
    eventually_sync(lambda: not redis.exists(Keys(prefix, CLUSTER).watch_changes("token-1")))
    assert leases.take(CLUSTER, "token-2", "", LONG)


def test_renewed_lease_lasts(leases: WatchLeases) -> None:
    """Longer than the first one would."""
    started_at = time.monotonic()
    leases.take(CLUSTER, "token-1", "", 0.2)
    leases.renew(CLUSTER, "token-1", ADDRESS, LONG, {}, 0)
    eventually_sync(lambda: time.monotonic() - started_at > 0.25)
    assert leases.read(CLUSTER, "token-1", 0) is not None
