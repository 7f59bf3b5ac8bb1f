from __future__ import annotations

import numpy as np
from redis import Redis

from fleet.monitoring.columns import HEARTBEAT, TUNNEL
from fleet.monitoring.evidence import FeedFreshness
from fleet.monitoring.state.codec import FeedState, blank_rows
from fleet.monitoring.state.record import ClusterRecord
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.verdicts import State
from tests.fakes.record import AS_OF, conclude, fill


def rows(record: ClusterRecord) -> list[bytes]:
    """Return the bytes of all columns of a record."""
    arrays = (record.heartbeats, record.memory, record.verdicts, record.tunnel_agents, record.tunnel_proxies)
    return [array.tobytes() for array in arrays]


def test_cached_columns_equal_a_fresh_read(writer: Writer, redis: Redis) -> None:
    """Also after writes of another process."""
    epoch = fill(writer, [State.HEALTHY] * 4)
    other_writer = Writer(redis, writer.prefix)

    def is_cache_current() -> bool:
        return rows(writer.load("default")) == rows(Writer(redis, writer.prefix).load("default"))

    assert is_cache_current()
    place = FeedState(freshness=FeedFreshness(AS_OF, AS_OF), epoch="agents", revision=99)
    heartbeat_rows = blank_rows(HEARTBEAT, 1)
    heartbeat_rows["expires_at"] = AS_OF + 77
    agent_indices = np.array([2], np.uint32)
    assert other_writer.write_heartbeats(
        *("default", epoch),
        feed_before=other_writer.feed("default", "presence"),
        feed_after=place,
        indices=agent_indices,
        rows=heartbeat_rows,
        removed_agents=np.zeros(0, np.uint32),
        removed_at=AS_OF,
        tracked_counts=np.array([7], np.uint8),
    )
    assert is_cache_current()
    assert writer.load("default").memory["tracked_count"].tolist() == [0, 0, 7, 0]
    before = other_writer.feed("default", "3")
    assert other_writer.write_tunnels(
        "default", epoch, 3, feed_before=before, feed_after=place, rows=np.zeros(1, TUNNEL)
    )
    assert is_cache_current()
    other_writer.set_retired("default", epoch, [1], is_retired=True)
    assert is_cache_current()
    assert conclude(
        other_writer, [State.HEALTHY, State.RETIRED, State.STRANDED, State.HEALTHY], as_of=AS_OF + 1
    )
    assert is_cache_current()
    assert conclude(writer, [State.HEALTHY] * 4, as_of=AS_OF + 2)
    assert is_cache_current()


def test_cached_columns_of_a_lost_record_are_dropped(writer: Writer, redis: Redis) -> None:
    """Only the new epoch is read."""
    fill(writer, [State.HEALTHY] * 4)
    writer.load("default")
    redis.flushdb()
    fill(writer, [State.STRANDED])
    assert writer.load("default").verdicts["state"].tolist() == [State.STRANDED]
    assert rows(writer.load("default")) == rows(Writer(redis, writer.prefix).load("default"))
