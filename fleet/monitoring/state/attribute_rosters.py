"""Rosters of the distinct versions and label sets of agents, and the writes that new heartbeats need. Pure.

docs/reference/record.md, "Versions and labels". A roster is JSON, one line per entry. Unlike names, versions and labels
come and go, so a full roster is written anew without the entries that no agent has any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fleet.monitoring.agent_attributes import AgentAttributes, AttributeTable, Labels
from fleet.monitoring.columns import ATTRIBUTE
from fleet.monitoring.state.codec import Rows, resize_rows

EntryT = TypeVar("EntryT", bound="str | Labels")

#: Most bytes of one roster: 80 for each of 100,000 agents.
LONGEST_ROSTER = 8_000_000
#: A full roster is written anew if at most this share of its bytes is still in use.
_WORTHWHILE_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class AttributeRoster(Generic[EntryT]):
    """Distinct entries by number; the first one is empty and is not stored."""

    entries: tuple[EntryT, ...]
    numbers: dict[EntryT, int]
    #: The stored lines.
    blob: bytes = b""

    @classmethod
    def of(cls, entries: Iterable[EntryT]) -> AttributeRoster[EntryT]:
        """Return a roster of these entries, the empty one first."""
        all_entries = tuple(entries)
        numbers = {entry: number for number, entry in enumerate(all_entries)}
        return cls(all_entries, numbers, _encode(all_entries[1:]))

    def extend(self, entries: Sequence[EntryT], tail: bytes) -> AttributeRoster[EntryT]:
        """Return the roster with new entries and their lines at the end."""
        start = len(self.entries)
        numbers = {**self.numbers, **{entry: start + offset for offset, entry in enumerate(entries)}}
        return AttributeRoster((*self.entries, *entries), numbers, self.blob + tail)


_NO_VERSIONS: AttributeRoster[str] = AttributeRoster(("",), {"": 0})
_NO_LABEL_SETS: AttributeRoster[Labels] = AttributeRoster(((),), {(): 0})


@dataclass(frozen=True, slots=True)
class StoredAttributes:
    """The column and the rosters as stored."""

    rows: Rows = field(default_factory=lambda: np.zeros(0, ATTRIBUTE))
    versions: AttributeRoster[str] = _NO_VERSIONS
    label_sets: AttributeRoster[Labels] = _NO_LABEL_SETS
    table: AttributeTable = field(default_factory=AttributeTable)


def decode_attributes(
    previous: StoredAttributes, column: bytes | None, versions: bytes | None, label_sets: bytes | None
) -> StoredAttributes:
    """Return stored attributes. Only lines that were appended after `previous` are parsed."""
    version_roster = _decode_roster(previous.versions, _NO_VERSIONS, versions or b"")
    label_roster = _decode_roster(previous.label_sets, _NO_LABEL_SETS, label_sets or b"")
    rows: Rows = np.frombuffer(column or b"", ATTRIBUTE)
    for name, count in (
        ("version", len(version_roster.entries)),
        ("label_set", len(label_roster.entries)),
    ):
        if len(rows) and rows[name].max() >= count:
            rows = rows.copy()
            rows[name][rows[name] >= count] = 0
    return _attributes_of(rows, version_roster, label_roster, previous)


def _attributes_of(
    rows: Rows,
    versions: AttributeRoster[str],
    label_sets: AttributeRoster[Labels],
    previous: StoredAttributes,
) -> StoredAttributes:
    if label_sets is previous.label_sets:
        mappings = previous.table.label_sets
    else:
        mappings = tuple(dict(labels) for labels in label_sets.entries)
    return StoredAttributes(rows, versions, label_sets, AttributeTable(rows, versions.entries, mappings))


def _decode_roster(
    previous: AttributeRoster[EntryT], empty: AttributeRoster[EntryT], blob: bytes
) -> AttributeRoster[EntryT]:
    if blob == previous.blob:
        return previous
    roster = previous if blob.startswith(previous.blob) else empty
    tail = blob[len(roster.blob) :]
    entries = [_decode_entry(json.loads(line)) for line in tail.decode().split("\n")[:-1]]
    return roster.extend(entries, tail)


def _decode_entry(document: Any) -> Any:
    return tuple(document.items()) if isinstance(document, dict) else document


def _encode(entries: Iterable[str | Labels]) -> bytes:
    documents = (entry if isinstance(entry, str) else dict(entry) for entry in entries)
    return "".join(
        f"{json.dumps(document, separators=(',', ':'), ensure_ascii=False)}\n" for document in documents
    ).encode()


@dataclass(frozen=True, slots=True)
class AttributeWrite:
    """Changes of the column and the rosters by new heartbeats."""

    after: StoredAttributes
    #: Indices of the agents whose version or labels changed.
    changed_agents: npt.NDArray[np.uint32]
    #: Lines to append to a roster.
    new_versions: bytes = b""
    new_label_sets: bytes = b""
    #: A roster was full: everything is written anew.
    is_rewrite: bool = False
    #: Number of agents whose version or labels did not fit.
    omitted_count: int = 0


def plan_attribute_write(
    stored: StoredAttributes,
    agents: npt.NDArray[np.uint32],
    attributes: Sequence[AgentAttributes],
    longest_roster: int = LONGEST_ROSTER,
) -> AttributeWrite | None:
    """Return what to write for agents, by index; None if nothing changed. Bytes: `longest_roster`.

    Agents with a version or labels that do not fit in a roster are recorded without them.
    """
    if not attributes:
        return None
    versions, label_sets = zip(*attributes, strict=True)
    added_versions, version_lines = _find_new_entries(stored.versions, versions)
    added_sets, set_lines = _find_new_entries(stored.label_sets, label_sets)
    original, is_rewrite = stored, False
    if (
        len(stored.versions.blob) + len(version_lines) > longest_roster
        or len(stored.label_sets.blob) + len(set_lines) > longest_roster
    ):
        rewritten = _drop_unused_entries(stored, agents)
        is_rewrite = _byte_count(rewritten) < _WORTHWHILE_SHARE * _byte_count(stored)
        stored = rewritten if is_rewrite else stored
        added_versions, version_lines = _find_new_entries(stored.versions, versions, longest_roster)
        added_sets, set_lines = _find_new_entries(stored.label_sets, label_sets, longest_roster)
    version_roster = (
        stored.versions.extend(added_versions, version_lines) if added_versions else stored.versions
    )
    label_roster = stored.label_sets.extend(added_sets, set_lines) if added_sets else stored.label_sets
    rows = resize_rows(stored.rows, max(len(stored.rows), int(agents.max()) + 1)).copy()
    version_numbers = [version_roster.numbers.get(version, 0) for version in versions]
    set_numbers = [label_roster.numbers.get(labels, 0) for labels in label_sets]
    rows["version"][agents], rows["label_set"][agents] = version_numbers, set_numbers
    after = _attributes_of(rows, version_roster, label_roster, stored)
    if is_rewrite:
        is_changed = np.array(
            [_describe(original, agent) != _describe(after, agent) for agent in agents.tolist()]
        )
    else:
        is_changed = resize_rows(original.rows, len(rows))[agents] != rows[agents]
    changed_agents = agents[is_changed]
    if not len(changed_agents) and not is_rewrite:
        return None
    omitted_count = sum(
        (not number and bool(version)) or (not set_number and bool(labels))
        for number, set_number, version, labels in zip(
            version_numbers, set_numbers, versions, label_sets, strict=True
        )
    )
    return AttributeWrite(
        after=after,
        changed_agents=changed_agents,
        new_versions=version_lines,
        new_label_sets=set_lines,
        is_rewrite=is_rewrite,
        omitted_count=omitted_count,
    )


def _byte_count(stored: StoredAttributes) -> int:
    return len(stored.versions.blob) + len(stored.label_sets.blob)


def _describe(stored: StoredAttributes, agent: int) -> tuple[str, Mapping[str, str]]:
    return stored.table.version_of(agent), stored.table.labels_of(agent)


def _find_new_entries(
    roster: AttributeRoster[EntryT], entries: Iterable[EntryT], longest_roster: int | None = None
) -> tuple[list[EntryT], bytes]:
    """Return the entries that the roster does not have, and their lines; with a limit only those that fit."""
    new_entries, lines = [], list[bytes]()
    remaining_bytes = None if longest_roster is None else longest_roster - len(roster.blob)
    for entry in dict.fromkeys(entries):
        if entry in roster.numbers:
            continue
        line = _encode((entry,))
        if remaining_bytes is not None:
            if len(line) > remaining_bytes:
                continue
            remaining_bytes -= len(line)
        new_entries.append(entry)
        lines.append(line)
    return new_entries, b"".join(lines)


def _drop_unused_entries(stored: StoredAttributes, agents: npt.NDArray[np.uint32]) -> StoredAttributes:
    """Return the attributes without entries that only `agents`, which report anew, or no agents have."""
    rows = stored.rows.copy()
    is_kept = np.ones(len(rows), np.bool_)
    is_kept[agents[agents < len(rows)]] = False
    versions = _renumber(stored.versions, rows["version"], is_kept)
    label_sets = _renumber(stored.label_sets, rows["label_set"], is_kept)
    return replace(_attributes_of(rows, versions, label_sets, stored), rows=rows)


def _renumber(
    roster: AttributeRoster[EntryT], numbers: npt.NDArray[np.uint32], is_kept: npt.NDArray[np.bool_]
) -> AttributeRoster[EntryT]:
    """Return the roster of the entries that kept rows have, and change `numbers` to it; others become 0."""
    used_numbers = np.union1d(numbers[is_kept], [0]).astype(np.intp)
    new_numbers = np.zeros(len(roster.entries), np.uint32)
    new_numbers[used_numbers] = np.arange(len(used_numbers))
    numbers[:] = np.where(is_kept, new_numbers[numbers], 0)
    return AttributeRoster.of(roster.entries[number] for number in used_numbers.tolist())
