from __future__ import annotations

import pytest
from redis import Redis

from fleet.domain.verdicts import State
from fleet.state import StateUnavailable
from fleet.state.connect import connect
from fleet.state.reader import Reader
from fleet.state.writer import Writer
from tests.fakes.record import AS_OF, INTERVAL, conclude, fill

STATES = [State.HEALTHY, State.STRANDED, State.RETIRED, State.HEALTHY]


def test_summary_of_a_fresh_round(writer: Writer, reader: Reader) -> None:
    """Every state is counted, also those with none."""
    fill(writer, STATES)
    summary = reader.summary("default", AS_OF + 1)
    assert not summary.stale
    assert (summary.agents, summary.instances, summary.as_of, summary.interval) == (4, 4, AS_OF, INTERVAL)
    assert summary.counts == {
        **dict.fromkeys(State, 0),
        State.HEALTHY: 2,
        State.STRANDED: 1,
        State.RETIRED: 1,
    }


def test_snapshot_of_an_old_round(writer: Writer, reader: Reader) -> None:
    """With every worker dead all but retired agents read unknown, and nothing reads stranded."""
    fill(writer, STATES)
    assert reader.snapshot("default", AS_OF + 10).states == bytes(STATES)
    old = reader.snapshot("default", AS_OF + 10.1)
    assert old.stale
    assert old.states == bytes([State.UNKNOWN, State.UNKNOWN, State.RETIRED, State.UNKNOWN])
    assert old.counts[State.UNKNOWN] == 3
    assert old.counts[State.RETIRED] == 1
    assert reader.header("default", AS_OF + 10.1).counts == old.counts


def test_snapshot_is_at_its_place_in_the_stream(writer: Writer, reader: Reader) -> None:
    """A round that changes no state leaves the sequence number, one that does raises it by one."""
    fill(writer, STATES)
    first = reader.snapshot("default", AS_OF)
    assert conclude(writer, STATES, as_of=AS_OF + 1)
    assert reader.snapshot("default", AS_OF + 1).seq == first.seq
    changed = [*STATES[:3], State.AT_RISK]
    assert conclude(writer, changed, as_of=AS_OF + 2)
    last = reader.snapshot("default", AS_OF + 2)
    assert (last.seq, last.states, last.epoch) == (first.seq + 1, bytes(changed), first.epoch)


def test_layout_by_home_proxy(writer: Writer, reader: Reader) -> None:
    """Blocks are home proxies in the order in which they were first seen."""
    fill(writer, STATES)
    layout = reader.layout("default")
    assert layout.version == reader.layout_version("default")
    assert layout.ids == ("agent-1-id", "agent-2-id", "agent-3-id", "agent-4-id")
    assert layout.names[0] == "agent-1"
    assert layout.blocks == (("proxy-1-id", "proxy-1"), ("proxy-2-id", "proxy-2"))
    assert layout.homes == (0, 1, 0, 1)


def test_layout_leaves_out_agents_not_yet_judged(writer: Writer, reader: Reader) -> None:
    """Layout and snapshot are of the same length, whatever polls have found since."""
    epoch = fill(writer, STATES)
    version = reader.layout_version("default")
    writer.agents("default", epoch, [("new", "new")])
    assert len(reader.layout("default").ids) == len(reader.snapshot("default", AS_OF).states) == 4
    assert reader.layout_version("default") == version
    assert conclude(writer, [*STATES, State.HEALTHY], as_of=AS_OF + 1)
    assert reader.layout_version("default") != version
    assert reader.layout("default").ids[-1] == "new"


def test_record_made_anew(writer: Writer, reader: Reader, redis: Redis) -> None:
    """Another epoch: a cached roster is not mixed with the new one."""
    fill(writer, STATES)
    assert len(reader.layout("default").ids) == 4
    before = reader.header("default", AS_OF)
    redis.flushdb()
    assert reader.header("default", AS_OF).agents == 0
    fill(writer, STATES[:2])
    after = reader.header("default", AS_OF)
    assert after.epoch != before.epoch
    assert reader.layout("default").ids == ("agent-1-id", "agent-2-id")


def test_cluster_without_a_record(reader: Reader) -> None:
    """Empty and stale, not an error: the pollers have only not begun."""
    summary = reader.summary("default", AS_OF)
    assert (summary.stale, summary.as_of, summary.agents) == (True, None, 0)
    assert reader.snapshot("default", AS_OF).states == b""
    assert reader.layout("default").ids == ()


def test_clusters_are_apart(writer: Writer, reader: Reader) -> None:
    """Every key carries its cluster."""
    fill(writer, STATES)
    fill(writer, STATES[:1], cluster="east")
    assert reader.summary("default", AS_OF).agents == 4
    assert reader.summary("east", AS_OF).agents == 1


def test_redis_down(prefix: str) -> None:
    """One exception, with a sentence."""
    with pytest.raises(StateUnavailable):
        Reader(connect("redis://127.0.0.1:1/0"), prefix).header("default", AS_OF)
