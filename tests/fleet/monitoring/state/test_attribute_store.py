from __future__ import annotations

import pytest
from redis import Redis

from fleet.monitoring.agent_attributes import AgentAttributes
from fleet.monitoring.columns import MEMORY
from fleet.monitoring.state import attribute_store
from fleet.monitoring.state.attribute_store import (
    read_attributes,
    read_unsaved_attributes,
    remove_unsaved_attributes,
    unpack_agents,
)
from fleet.monitoring.state.codec import blank_rows
from fleet.monitoring.state.writer import RecordSeed, Writer
from tests.fakes.record import write_attributes

CLUSTER = "default"
PROD = (("env", "prod"),)


def descriptions_of(writer: Writer) -> list[tuple[str, dict[str, str]]]:
    record = writer.load(CLUSTER)
    return [
        (record.attributes.version_of(agent), dict(record.attributes.labels_of(agent)))
        for agent in range(len(record.ids))
    ]


def test_heartbeats_write_versions_and_labels(redis: Redis, writer: Writer) -> None:
    """A load by the same process and one by another one give the same."""
    other_writer = Writer(redis, writer.prefix)
    epoch = writer.create(CLUSTER, RecordSeed())
    assert write_attributes(writer, epoch, AgentAttributes("1.0", PROD), AgentAttributes())
    assert descriptions_of(writer) == descriptions_of(other_writer) == [("1.0", {"env": "prod"}), ("", {})]

    assert write_attributes(other_writer, epoch, AgentAttributes("1.1", PROD), AgentAttributes("1.0"))
    assert descriptions_of(writer) == descriptions_of(other_writer) == [("1.1", {"env": "prod"}), ("1.0", {})]


def test_changed_agents_wait_for_the_database(redis: Redis, writer: Writer) -> None:
    """Heartbeats that change nothing add no entry."""
    epoch, keys = writer.create(CLUSTER, RecordSeed()), writer.keys(CLUSTER)
    write_attributes(writer, epoch, AgentAttributes("1.0"), AgentAttributes("1.0"))
    write_attributes(writer, epoch, AgentAttributes("1.0"), AgentAttributes("1.0"))
    write_attributes(writer, epoch, AgentAttributes("1.0"), AgentAttributes("1.1"))

    entries = read_unsaved_attributes(redis, keys, 10)
    assert [unpack_agents([entry]).tolist() for entry in entries] == [[0, 1], [1]]
    assert unpack_agents(entries).tolist() == [0, 1]
    assert writer.has_outbox_entries(CLUSTER)
    remove_unsaved_attributes(redis, keys, entries)
    assert not writer.has_outbox_entries(CLUSTER)


def test_new_record_has_the_attributes_of_its_seed(redis: Redis, writer: Writer) -> None:
    """They are from the database, so none waits for it."""
    seed = RecordSeed(
        agents=[("id-0", "agent-0"), ("id-1", "agent-1")],
        memory=blank_rows(MEMORY, 2),
        attributes=[AgentAttributes(), AgentAttributes("2.0", PROD)],
    )
    epoch = writer.create(CLUSTER, seed)

    assert descriptions_of(writer) == [("", {}), ("2.0", {"env": "prod"})]
    assert not writer.has_outbox_entries(CLUSTER)
    write_attributes(writer, epoch, AgentAttributes("2.0"), AgentAttributes("2.0", PROD))
    assert descriptions_of(writer) == [("2.0", {}), ("2.0", {"env": "prod"})]
    assert read_attributes(redis, writer.keys(CLUSTER)).versions == ("", "2.0")


def test_full_roster_is_written_anew(
    redis: Redis, writer: Writer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Readers that know the old numbers read everything again. What does not fit is logged."""
    monkeypatch.setattr(attribute_store, "LONGEST_ROSTER", 300)
    reading_writer = Writer(redis, writer.prefix)
    epoch = writer.create(CLUSTER, RecordSeed())
    for number in range(8):
        write_attributes(
            writer, epoch, AgentAttributes("v" * 50 + str(number)), AgentAttributes("kept", PROD)
        )
        assert descriptions_of(reading_writer) == [("v" * 50 + str(number), {}), ("kept", {"env": "prod"})]
    assert redis.strlen(writer.keys(CLUSTER).versions) <= 300
    assert "not recorded" not in caplog.text

    write_attributes(writer, epoch, AgentAttributes("x" * 400), AgentAttributes("kept", PROD))
    assert descriptions_of(reading_writer) == [("", {}), ("kept", {"env": "prod"})]
    assert "the versions or labels of 1 agents were not recorded" in caplog.text
