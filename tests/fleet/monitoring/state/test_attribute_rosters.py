from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fleet.monitoring.agent_attributes import AgentAttributes
from fleet.monitoring.state.attribute_rosters import (
    AttributeWrite,
    StoredAttributes,
    decode_attributes,
    plan_attribute_write,
)

PROD, DEV = (("env", "prod"),), (("env", "dev"), ("note", 'a "b"\tc\nd é'))


def indices(*agents: int) -> npt.NDArray[np.uint32]:
    return np.array(agents, np.uint32)


def write_all(stored: StoredAttributes, *attributes: AgentAttributes, longest: int = 1000) -> AttributeWrite:
    write = plan_attribute_write(stored, indices(*range(len(attributes))), attributes, longest)
    assert write is not None
    return write


def descriptions_of(stored: StoredAttributes) -> list[tuple[str, dict[str, str]]]:
    table = stored.table
    return [(table.version_of(agent), dict(table.labels_of(agent))) for agent in range(len(stored.rows))]


def test_equal_versions_and_label_sets_are_stored_once() -> None:
    """The lines of what was written are what readers parse."""
    write = write_all(
        StoredAttributes(),
        AgentAttributes("1.0", PROD),
        AgentAttributes("1.0", DEV),
        AgentAttributes("", DEV),
    )

    assert write.new_versions == b'"1.0"\n'
    assert write.new_label_sets.count(b"\n") == 2
    stored_again = decode_attributes(
        StoredAttributes(), write.after.rows.tobytes(), write.new_versions, write.new_label_sets
    )
    assert descriptions_of(stored_again) == [("1.0", dict(PROD)), ("1.0", dict(DEV)), ("", dict(DEV))]


def test_unchanged_attributes_are_not_written() -> None:
    """So are those of new agents without any."""
    after = write_all(StoredAttributes(), AgentAttributes("1.0", PROD)).after

    assert plan_attribute_write(after, indices(0), [AgentAttributes("1.0", PROD)]) is None
    assert plan_attribute_write(after, indices(1), [AgentAttributes()]) is None
    assert plan_attribute_write(after, indices(), []) is None


def test_only_changed_agents_are_written() -> None:
    """Known entries need no new line."""
    after = write_all(StoredAttributes(), AgentAttributes("1.0", PROD), AgentAttributes("2.0", PROD)).after
    write = write_all(after, AgentAttributes("1.0", PROD), AgentAttributes("1.0", PROD))

    assert write.changed_agents.tolist() == [1]
    assert (write.new_versions, write.new_label_sets) == (b"", b"")


def test_appended_lines_alone_are_parsed() -> None:
    """Entries that were read before stay the same objects; a list that was written anew is read whole."""
    first = write_all(StoredAttributes(), AgentAttributes("1.0", PROD)).after
    second = write_all(first, AgentAttributes("2.0", PROD))
    stored_again = decode_attributes(
        first, second.after.rows.tobytes(), second.after.versions.blob, first.label_sets.blob
    )

    assert stored_again.label_sets is first.label_sets
    assert stored_again.table.label_sets is first.table.label_sets
    assert descriptions_of(stored_again) == [("2.0", dict(PROD))]
    replaced = decode_attributes(stored_again, second.after.rows.tobytes(), b'"8"\n"9"\n', b"")
    assert descriptions_of(replaced) == [("9", {})]


def test_full_roster_is_written_anew_without_unused_entries() -> None:
    """Numbers change, what agents report does not; agents that did not change are not changed agents."""
    stored = write_all(StoredAttributes(), AgentAttributes("1.0", PROD), AgentAttributes("kept", PROD)).after
    for number in range(20):
        stored = write_all(stored, AgentAttributes(f"1.{number}" * 5, PROD)).after
    write = write_all(
        stored,
        AgentAttributes("new" * 10, PROD),
        AgentAttributes("kept", PROD),
        longest=len(stored.versions.blob),
    )

    assert write.is_rewrite
    assert write.changed_agents.tolist() == [0]
    assert write.omitted_count == 0
    assert set(write.after.versions.entries) == {"", "kept", "new" * 10}
    assert descriptions_of(write.after) == [("new" * 10, dict(PROD)), ("kept", dict(PROD))]


def test_attributes_that_do_not_fit_are_left_out() -> None:
    """Only those: the other agents keep theirs, and nothing is written anew without gain."""
    stored = write_all(StoredAttributes(), AgentAttributes("1" * 50), AgentAttributes("2" * 50)).after
    write = plan_attribute_write(
        stored, indices(2, 3), [AgentAttributes("3" * 50, PROD), AgentAttributes("4")], 112
    )

    assert write is not None
    assert not write.is_rewrite
    assert write.omitted_count == 1
    assert descriptions_of(write.after) == [("1" * 50, {}), ("2" * 50, {}), ("", dict(PROD)), ("4", {})]


def test_numbers_without_an_entry_read_as_none() -> None:
    """Column and rosters are read at one moment, but a damaged record must not break readers."""
    stored = write_all(StoredAttributes(), AgentAttributes("1.0", PROD)).after
    assert descriptions_of(decode_attributes(StoredAttributes(), stored.rows.tobytes(), b"", None)) == [
        ("", {})
    ]
