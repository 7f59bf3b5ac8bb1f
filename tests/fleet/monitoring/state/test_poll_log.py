from __future__ import annotations

from dataclasses import replace

import pytest
from redis import Redis

from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.keys import Keys
from fleet.monitoring.state.poll_log import (
    MAX_FEED_RESETS,
    FeedReset,
    FeedResetReason,
    PollLog,
    RoundEntry,
    ShardEntry,
)

_ROUND = RoundEntry(7, 100.0, 100.25, "gen1@host", 99.9, is_complete=False)
_SHARD = ShardEntry(7, 0, "host:1", 100.2, 0.2, 4, 1, probe_succeeded=True)


def test_entries_are_read_as_written(redis: Redis, prefix: str) -> None:
    """Newest first; clusters are apart, and every list expires."""
    log = PollLog(redis, prefix)
    log.add_round("default", _ROUND)
    log.add_round("default", replace(_ROUND, number=8))
    log.add_shard("default", _SHARD)
    assert log.read_rounds("default") == (replace(_ROUND, number=8), _ROUND)
    assert log.read_rounds("default")[1].seconds == 0.25
    assert log.read_shards("default") == (_SHARD,)
    assert log.read_rounds("east") == ()
    assert 0 < redis.ttl(Keys(prefix, "default").round_log) <= 86_400


def test_lists_are_limited(redis: Redis, prefix: str) -> None:
    """An instance that restarts all the time fills no memory."""
    log = PollLog(redis, prefix)
    for at in range(MAX_FEED_RESETS + 5):
        log.add_feed_reset("default", FeedReset(float(at), "proxy-1-id", FeedResetReason.GAP))
    resets = log.read_feed_resets("default")
    assert len(resets) == MAX_FEED_RESETS
    assert resets[0] == FeedReset(MAX_FEED_RESETS + 4.0, "proxy-1-id", FeedResetReason.GAP)


def test_entries_of_another_version_are_left_out(redis: Redis, prefix: str) -> None:
    log = PollLog(redis, prefix)
    log.add_round("default", _ROUND)
    redis.lpush(Keys(prefix, "default").round_log, b'{"number": 9}')
    assert log.read_rounds("default") == (_ROUND,)


def test_dead_redis() -> None:
    with pytest.raises(StateUnavailableError):
        PollLog(connect("redis://127.0.0.1:1/0"), "nobody").read_rounds("default")
