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
    """Every column of a record."""
    arrays = (record.heartbeats, record.memory, record.verdicts, record.tunnel_agents, record.tunnel_proxies)
    return [array.tobytes() for array in arrays]


def test_kept_columns_are_those_of_a_first_read(writer: Writer, redis: Redis) -> None:
    """Whatever others write between two loads, the second shows it."""
    epoch = fill(writer, [State.HEALTHY] * 4)
    other = Writer(redis, writer.prefix)

    def alike() -> bool:
        return rows(writer.load("default")) == rows(Writer(redis, writer.prefix).load("default"))

    assert alike()
    place = FeedState(freshness=FeedFreshness(AS_OF, AS_OF), epoch="agents", revision=99)
    beat = blank_rows(HEARTBEAT, 1)
    beat["expires_at"] = AS_OF + 77
    one = np.array([2], np.uint32)
    assert other.write_heartbeats(
        *("default", epoch),
        before=other.feed("default", "presence"),
        after=place,
        indices=one,
        rows=beat,
        ended_agents=np.zeros(0, np.uint32),
        ended_at=AS_OF,
        tracked_counts=np.array([7], np.uint8),
    )
    assert alike()
    assert writer.load("default").memory["tracked"].tolist() == [0, 0, 7, 0]
    before = other.feed("default", "3")
    assert other.write_tunnels("default", epoch, 3, before=before, after=place, rows=np.zeros(1, TUNNEL))
    assert alike()
    other.set_retired("default", epoch, [1], is_retired=True)
    assert alike()
    assert conclude(other, [State.HEALTHY, State.RETIRED, State.STRANDED, State.HEALTHY], as_of=AS_OF + 1)
    assert alike()
    assert conclude(writer, [State.HEALTHY] * 4, as_of=AS_OF + 2)
    assert alike()


def test_kept_columns_of_a_lost_record(writer: Writer, redis: Redis) -> None:
    """Nothing of the old epoch is left."""
    fill(writer, [State.HEALTHY] * 4)
    writer.load("default")
    redis.flushdb()
    fill(writer, [State.STRANDED])
    assert writer.load("default").verdicts["state"].tolist() == [State.STRANDED]
    assert rows(writer.load("default")) == rows(Writer(redis, writer.prefix).load("default"))
