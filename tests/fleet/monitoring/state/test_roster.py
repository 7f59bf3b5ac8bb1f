from __future__ import annotations

from fleet.monitoring.columns import HEARTBEAT
from fleet.monitoring.state.roster import Roster, encode_records
from fleet.monitoring.state.writer import RecordSeed, Writer
from fleet.vocabulary.verdicts import State
from tests.fakes.record import fill


def test_first_is_made_once_while_nothing_is_appended() -> None:
    """Rounds ask for the same ids again and again."""
    roster = Roster()
    roster.append_tail("e1", encode_records([("a", "one"), ("b", "two"), ("c", "three")]))
    known = roster.first(1, 3)
    assert known == ("one", "two", "three")
    assert roster.first(1, 3) is known
    assert roster.first(1, 2) == ("one", "two")
    roster.append_tail("e1", encode_records([("d", "four")]))
    assert roster.first(1, 4) == ("one", "two", "three", "four")


def test_first_of_another_epoch_forgets() -> None:
    """As many records as before, but others."""
    roster = Roster()
    roster.append_tail("e1", encode_records([("a", "one")]))
    assert roster.first(0, 1) == ("a",)
    roster.append_tail("e2", encode_records([("z", "other")]))
    assert roster.first(0, 1) == ("z",)


def test_growing_sets_nothing_aside(writer: Writer) -> None:
    """A roster and a column take the bytes they hold, not twice as many: at 10,000 agents that was half the record."""
    epoch = writer.create("default", RecordSeed())
    for page in range(5):
        writer.intern_agents("default", epoch, [(f"agent-{page}-{n}", "name") for n in range(1000)])
    keys = writer.keys("default")
    held = int(writer.redis.strlen(keys.agents))
    assert int(writer.redis.memory_usage(keys.agents) or 0) < held * 1.05 + 200


def test_heartbeats_take_their_rows_alone(writer: Writer) -> None:
    """The first heartbeats make the column as long as it has to be, and no longer."""
    fill(writer, [State.HEALTHY] * 2000)
    keys = writer.keys("default")
    size = int(writer.redis.memory_usage(keys.heartbeats) or 0)
    assert size < 2000 * HEARTBEAT.itemsize * 1.05 + 200


def test_record_of_megabytes_is_cut() -> None:
    """One agent must not make the roster that every process reads long; its parts stay apart."""
    roster = Roster()
    encoded = encode_records([("a\tb", "n" * 1_000_000)])
    assert len(encoded) < 300
    roster.append_tail("e1", encoded)
    assert roster.first(0, 1) == ("a b",)
