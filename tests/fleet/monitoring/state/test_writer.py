from __future__ import annotations

import numpy as np
import pytest
from redis import Redis

from fleet.monitoring.columns import HEARTBEAT, MEMORY, NO_INSTANCE, RETIRED, TUNNEL
from fleet.monitoring.evidence import FeedFreshness
from fleet.monitoring.state import RecordLostError, StateUnavailableError
from fleet.monitoring.state.codec import FeedState, blank_rows, rows_of
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.writer import RecordSeed, Writer
from fleet.vocabulary.verdicts import State
from tests.fakes.record import AS_OF, conclude, fill

NO_AGENTS = np.zeros(0, np.uint32)


def test_second_create_returns_the_first_record(writer: Writer) -> None:
    """The second writer gets the record of the first one."""
    first = writer.create("default", RecordSeed(agents=[("a", "one")], memory=blank_rows(MEMORY, 1)))
    second = writer.create("default", RecordSeed(agents=[("b", "two")], memory=blank_rows(MEMORY, 1)))
    assert first == second
    assert writer.agent_ids_and_names("default") == (["a"], ["one"])


def test_two_writers_agree_on_agent_indices(writer: Writer, redis: Redis) -> None:
    """Each writer has a cache of its own."""
    epoch = writer.create("default", RecordSeed())
    other_writer = Writer(redis, writer.prefix)
    assert writer.intern_agents("default", epoch, [("a", "1"), ("b", "2")]).tolist() == [0, 1]
    assert other_writer.intern_agents("default", epoch, [("c", "3"), ("a", "1"), ("c", "3")]).tolist() == [
        2,
        0,
        2,
    ]
    assert writer.intern_agents("default", epoch, [("d", "4"), ("c", "3")]).tolist() == [3, 2]


def test_write_to_a_lost_record(writer: Writer, redis: Redis) -> None:
    """A partial record would look like a fleet without agents."""
    epoch = writer.create("default", RecordSeed())
    redis.flushdb()
    with pytest.raises(RecordLostError):
        writer.intern_agents("default", epoch, [("a", "1")])
    with pytest.raises(RecordLostError):
        writer.write_instances("default", epoch, probed_at=1.0)
    assert redis.dbsize() == 0


def test_concurrent_write_of_heartbeats_is_refused(writer: Writer) -> None:
    """The second write from the same feed position writes nothing."""
    epoch = writer.create("default", RecordSeed())
    agents = writer.intern_agents("default", epoch, [("a", "1"), ("b", "2"), ("c", "3")])
    rows = blank_rows(HEARTBEAT, 1)
    rows["expires_at"] = 50.0

    def write(index: int, revision: int) -> bool:
        return writer.write_heartbeats(
            "default",
            epoch,
            feed_before=b"",
            feed_after=FeedState(freshness=FeedFreshness(1.0, 1.0), epoch="e", revision=revision),
            indices=agents[index : index + 1],
            rows=rows,
            removed_agents=NO_AGENTS,
            removed_at=0.0,
        )

    assert write(2, 1)
    assert not write(0, 2)
    stored_rows = rows_of(writer.heartbeats("default"), HEARTBEAT, 3)
    assert stored_rows["expires_at"].tolist() == [0.0, 0.0, 50.0]
    # Rows in between are blank: zeros would name instance 0.
    assert stored_rows["auth"].tolist() == [NO_INSTANCE] * 3


def test_unfinished_tunnel_list_is_kept_separately(writer: Writer) -> None:
    """Otherwise an agent on the second page would look stranded after the first one."""
    epoch = writer.create("default", RecordSeed())
    old, new = np.zeros(2, TUNNEL), np.zeros(1, TUNNEL)
    place = FeedState(freshness=FeedFreshness(1.0, 1.0), epoch="e", revision=1)
    assert writer.write_tunnels("default", epoch, 3, feed_before=b"", feed_after=place, rows=old)
    listing = FeedState(freshness=FeedFreshness(2.0, 2.0), epoch="f", revision=1, is_listing=True)
    before = writer.feed("default", "3")
    assert writer.write_tunnels("default", epoch, 3, feed_before=before, feed_after=listing, rows=new)
    assert writer.tunnels("default", 3) == old.tobytes()
    assert writer.tunnels("default", 3, is_listing=True) == new.tobytes()
    before = writer.feed("default", "3")
    assert writer.write_tunnels("default", epoch, 3, feed_before=before, feed_after=place, rows=new)
    assert writer.tunnels("default", 3) == new.tobytes()
    assert writer.tunnels("default", 3, is_listing=True) == b""


def test_concurrent_commit_has_one_winner(writer: Writer) -> None:
    """The second commit of a poll changes nothing."""
    fill(writer, [State.HEALTHY] * 3)
    before = writer.load("default")
    assert conclude(writer, [State.HEALTHY, State.STRANDED, State.HEALTHY], as_of=AS_OF + 1)
    after = writer.load("default")
    assert after.header.seq == before.header.seq + 1
    assert after.verdicts["state"].tolist() == [State.HEALTHY, State.STRANDED, State.HEALTHY]
    assert after.verdicts["since"].tolist() == [AS_OF, AS_OF + 1, AS_OF]


def test_commit_of_a_round_that_was_concluded_meanwhile_writes_nothing(writer: Writer) -> None:
    """Two workers concluded from the same record: the slower one must not overwrite newer states."""
    fill(writer, [State.HEALTHY] * 3)
    base_record = writer.load("default")
    assert conclude(writer, [State.HEALTHY, State.STRANDED, State.HEALTHY], as_of=AS_OF + 1)
    newest = writer.load("default")
    # The memory is the same: only the number of the round tells.
    assert newest.memory_version == base_record.memory_version
    assert not conclude(writer, [State.OFFLINE] * 3, as_of=AS_OF + 2, base_record=base_record)
    stored = writer.load("default")
    assert (stored.header, stored.verdicts.tolist()) == (newest.header, newest.verdicts.tolist())


def test_commit_after_the_memory_changed_meanwhile_writes_nothing(writer: Writer) -> None:
    """The round was concluded without an agent's retirement, and would undo it."""
    epoch = fill(writer, [State.HEALTHY] * 3)
    base_record = writer.load("default")
    writer.set_retired("default", epoch, [1], is_retired=True)
    assert not conclude(writer, [State.STRANDED] * 3, as_of=AS_OF + 1, base_record=base_record)
    stored = writer.load("default")
    assert (stored.header, stored.verdicts.tolist()) == (base_record.header, base_record.verdicts.tolist())
    assert (stored.memory["flags"] & RETIRED).tolist() == [0, RETIRED, 0]


def test_commit_after_an_operator_retired_an_agent(writer: Writer) -> None:
    """The flag is set and removed, with another memory version."""
    epoch = fill(writer, [State.HEALTHY] * 3)
    before = writer.load("default")
    writer.set_retired("default", epoch, [1], is_retired=True)
    assert writer.load("default").memory_version != before.memory_version
    assert (writer.load("default").memory["flags"] & RETIRED).tolist() == [0, RETIRED, 0]
    writer.set_retired("default", epoch, [1], is_retired=False)
    assert (writer.load("default").memory["flags"] & RETIRED).tolist() == [0, 0, 0]


def test_expected_reconnects_replace_earlier_ones(writer: Writer, redis: Redis) -> None:
    """Unknown ids are left out; repeating the call writes nothing."""
    fill(writer, [State.HEALTHY] * 3)
    assert redis.strlen(writer.keys("default").heartbeats) == 3 * HEARTBEAT.itemsize
    before = writer.load("default")
    writer.expect_reconnects("default", {"agent-1-id": 50.0, "agent-3-id": 60.0, "agent-9-id": 70.0})
    marked_record = writer.load("default")
    assert marked_record.memory["working_until"].tolist() == [50.0, 0.0, 60.0]
    assert marked_record.memory["home_proxy"].tolist() == before.memory["home_proxy"].tolist()
    assert marked_record.memory_version != before.memory_version
    writer.expect_reconnects("default", {"agent-3-id": 60.0, "agent-1-id": 50.0})
    assert writer.load("default").memory_version == marked_record.memory_version
    writer.set_retired("default", marked_record.epoch, [0], is_retired=True)
    assert conclude(writer, [State.RETIRED, State.HEALTHY, State.WORKING], as_of=AS_OF + 1)
    assert writer.load("default").memory["working_until"].tolist() == [50.0, 0.0, 60.0]
    writer.expect_reconnects("default", {})
    assert writer.load("default").memory["working_until"].tolist() == [0.0, 0.0, 0.0]
    redis.flushdb()
    with pytest.raises(RecordLostError, match="has no record"):
        writer.expect_reconnects("default", {"agent-1-id": 50.0})
    assert redis.dbsize() == 0


def test_expected_reconnect_of_an_agent_without_a_verdict(writer: Writer) -> None:
    """Rows before it are blank, not zero."""
    epoch = writer.create("default", RecordSeed())
    writer.intern_agents("default", epoch, [("a", "1"), ("b", "2")])
    writer.expect_reconnects("default", {"b": 50.0})
    memory = writer.load("default").memory
    assert memory["working_until"].tolist() == [0.0, 50.0]
    assert memory["home_proxy"].tolist() == [NO_INSTANCE] * 2


def test_end_of_all_reconnects_adds_no_memory(writer: Writer, redis: Redis) -> None:
    """The memory has a row for each agent, and none for an agent that does not exist."""
    epoch = writer.create("default", RecordSeed())
    writer.intern_agents("default", epoch, [("a", "1")])
    writer.expect_reconnects("default", {"a": 50.0})
    writer.expect_reconnects("default", {})
    assert redis.strlen(writer.keys("default").memory) == MEMORY.itemsize


def test_memory_and_its_version_are_read_at_the_same_moment(writer: Writer, redis: Redis) -> None:
    """With a newer version than the rows, the change would overwrite those of another round."""
    epoch = writer.create("default", RecordSeed())
    writer.intern_agents("default", epoch, [("a", "1")])
    count = _count_transactions(redis)
    writer.set_retired("default", epoch, [], is_retired=True)
    assert _count_transactions(redis) == count + 1


def _count_transactions(redis: Redis) -> int:
    """Return how many transactions the server has executed."""
    stats = redis.info("commandstats")
    assert isinstance(stats, dict)
    return int(stats.get("cmdstat_exec", {"calls": 0})["calls"])


def test_outbox_entries_are_removed_in_any_order(writer: Writer, redis: Redis) -> None:
    """An entry stays in the outbox until it is removed."""
    redis.rpush(writer.keys("default").outbox, b"one", b"two")
    assert writer.read_outbox("default", 10) == [b"one", b"two"]
    assert writer.read_outbox("default", 1) == [b"one"]
    writer.remove_from_outbox("default", b"one")
    assert writer.read_outbox("default", 10) == [b"two"]


def test_redis_down(prefix: str) -> None:
    """One exception, with a sentence."""
    with pytest.raises(StateUnavailableError, match="Redis is not responding"):
        Writer(connect("redis://127.0.0.1:1/0"), prefix).epoch("default")


def test_round_after_another_number_of_verdicts(writer: Writer, redis: Redis) -> None:
    """A record of a version with other verdicts continues with the same epoch and the next poll."""
    epoch = fill(writer, [State.HEALTHY, State.STRANDED], as_of=AS_OF)
    key, before = writer.keys("default").verdicts, writer.load("default").header
    redis.setrange(key, 3, b"0")
    other_writer = Writer(redis, writer.prefix)
    header = other_writer.load("default").header
    assert (header.epoch, header.seq, header.round) == (epoch, before.seq, before.round)
    assert (header.row_count, header.as_of) == (0, 0.0)
    assert conclude(other_writer, [State.HEALTHY, State.STRANDED], as_of=AS_OF + 1)
    record = Writer(redis, writer.prefix).load("default")
    assert record.verdicts["state"].tolist() == [State.HEALTHY, State.STRANDED]
    assert (record.header.epoch, record.header.row_count, record.header.round) == (epoch, 2, before.round + 1)
