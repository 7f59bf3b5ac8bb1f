from __future__ import annotations

from fleet.monitoring.columns import HEARTBEAT
from fleet.monitoring.state.roster import Roster, encode_identities
from fleet.monitoring.state.writer import RecordSeed, Writer
from fleet.vocabulary.verdicts import State
from tests.fakes.record import fill


def test_first_is_cached_until_a_record_is_appended() -> None:
    """Each poll reads the same ids."""
    roster = Roster()
    roster.append_tail("e1", encode_identities([("a", "one"), ("b", "two"), ("c", "three")]))
    names = roster.column_head(1, 3)
    assert names == ("one", "two", "three")
    assert roster.column_head(1, 3) is names
    assert roster.column_head(1, 2) == ("one", "two")
    roster.append_tail("e1", encode_identities([("d", "four")]))
    assert roster.column_head(1, 4) == ("one", "two", "three", "four")


def test_another_epoch_replaces_the_records() -> None:
    """With the same number of records."""
    roster = Roster()
    roster.append_tail("e1", encode_identities([("a", "one")]))
    assert roster.column_head(0, 1) == ("a",)
    roster.append_tail("e2", encode_identities([("z", "other")]))
    assert roster.column_head(0, 1) == ("z",)


def test_growing_allocates_no_excess_memory(writer: Writer) -> None:
    """A roster uses about as much memory as it stores."""
    epoch = writer.create("default", RecordSeed())
    for page in range(5):
        writer.intern_agents("default", epoch, [(f"agent-{page}-{n}", "name") for n in range(1000)])
    keys = writer.keys("default")
    stored_bytes = int(writer.redis.strlen(keys.agents))
    assert int(writer.redis.memory_usage(keys.agents) or 0) < stored_bytes * 1.05 + 200


def test_heartbeat_column_has_no_excess_memory(writer: Writer) -> None:
    """The column is as long as its rows."""
    fill(writer, [State.HEALTHY] * 2000)
    keys = writer.keys("default")
    size = int(writer.redis.memory_usage(keys.heartbeats) or 0)
    assert size < 2000 * HEARTBEAT.itemsize * 1.05 + 200


def test_long_record_is_truncated() -> None:
    """A tab in an id does not break the record."""
    roster = Roster()
    encoded = encode_identities([("a\tb", "n" * 1_000_000)])
    assert len(encoded) < 300
    roster.append_tail("e1", encoded)
    assert roster.column_head(0, 1) == ("a b",)
