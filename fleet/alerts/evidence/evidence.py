"""The evidence of an incident at its peak: a copy of the affected agents and of what its charts show. Pure.

docs/reference/alerts.md, "Evidence of an incident".
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.monitoring import columns
from fleet.monitoring.columns import (
    HEALTH_CHECK,
    NO_INSTANCE,
    PLACE_PROXY_COUNT,
    REASON_BITS,
    RECOVERY_SHIFT,
    blank_heartbeats,
    blank_memory,
    blank_places,
)
from fleet.monitoring.evidence import FleetEvidence, ReconnectMode
from fleet.monitoring.views import AgentView, FleetTable, InstanceView
from fleet.vocabulary.incidents import Incident, IncidentState
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, InstanceState
from fleet.vocabulary.verdicts import BACKEND_CAUSE, Reason, Recovery, State, Verdict, VerdictSentences

#: Maximum number of agents in one copy, stranded ones first. The counts and the heat map's totals cover all agents.
MAX_AGENTS = 100_000
#: Maximum number of distinct sentences in one copy: the most frequent ones. The other agents have the reason's label.
_MAX_SENTENCES = 500
#: Number of agents up to which every growth is copied. A copy of more agents is taken again after this growth, as a
#: factor, or after this many seconds.
_ALWAYS_COPIED_COUNT = 5_000
_GROWTH_FACTOR = 1.1
_RECOPY_SECONDS = 15.0
_FORMAT_VERSION = 1
_HEADER_LENGTH = struct.Struct("<I")

#: One row per affected agent; times in whole seconds since the epoch, 0: none. 26 bytes.
EVIDENCE = np.dtype(
    [
        ("since", "<u4"),
        ("recovers_at", "<u4"),
        ("cause", "<u2"),
        ("auth", "<u2"),
        ("proxies", "<u2", (PLACE_PROXY_COUNT,)),
        ("home_proxy", "<u2"),
        ("last_auth", "<u2"),
        ("sentence", "<u2"),
        ("state", "u1"),
        ("reason_and_recovery", "u1"),
        ("mode", "u1"),
        ("flags", "u1"),  # HEALTH_CHECK
    ]
)
#: Fields on which the sentence of a verdict depends.
_SENTENCE_FIELDS = ("state", "reason_and_recovery", "cause", "auth", "last_auth", "mode", "flags", "proxies")

#: Returns the explanations of the verdicts of agents, by their indices.
DescribeVerdicts = Callable[[Sequence[int]], Iterable[VerdictSentences | None]]
Indices = npt.NDArray[np.intp]
Rows = npt.NDArray[np.void]


class EvidenceError(ValueError):
    """A stored copy that this version cannot read."""


@dataclass(frozen=True, slots=True)
class CopyMark:
    """Size and time of the newest copy of an incident, by which a larger one is recognised."""

    affected_count: int
    stranded_count: int
    #: Time of the poll that the copy shows.
    taken_at: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """The affected agents of an incident at one time, with the instances that they name."""

    cluster: str
    #: Time of the poll, seconds since the epoch.
    taken_at: float
    #: Number of affected agents, and how many of them were stranded: more than `rows` beyond MAX_AGENTS.
    affected_count: int
    stranded_count: int
    #: Ids and names of the agents in `rows`, stranded ones first.
    ids: tuple[str, ...]
    names: tuple[str, ...]
    rows: Rows
    #: Explanations of verdicts, by `sentence` of a row.
    sentences: tuple[VerdictSentences, ...]
    #: The instances that the rows name, by index.
    instances: Mapping[int, InstanceFacts]
    #: Number of agents of the fleet by home proxy and auth.
    agent_count_by_pair: Mapping[tuple[int, int], int]


def mark_of(incident: Incident, as_of: float) -> CopyMark:
    """Return the size of an incident at the poll of `as_of`, without silenced agents."""
    # The incident has the number of stranded agents only of its peak.
    is_peak = incident.affected_count == incident.peak_count
    return CopyMark(incident.affected_count, incident.worst_stranded_count if is_peak else 0, as_of)


def has_grown(incident: Incident, newest_mark: CopyMark | None) -> bool:
    """Return whether an incident affects more agents than its newest copy has, or strands more of them."""
    if not incident.affected_count or incident.state is IncidentState.RESOLVED:
        return False
    mark = mark_of(incident, 0.0)
    return newest_mark is None or (
        (mark.affected_count, mark.stranded_count) > (newest_mark.affected_count, newest_mark.stranded_count)
    )


def is_copy_due(incident: Incident, newest_mark: CopyMark | None, as_of: float) -> bool:
    """Return whether an incident that has grown should be copied at the poll of `as_of`. Large copies are rare."""
    return (
        newest_mark is None
        or incident.affected_count <= _ALWAYS_COPIED_COUNT
        or incident.affected_count >= _GROWTH_FACTOR * newest_mark.affected_count
        or as_of >= newest_mark.taken_at + _RECOPY_SECONDS
    )


def copy_evidence(
    table: FleetTable,
    affected: Indices,
    describe: DescribeVerdicts,
    agent_count_by_pair: Mapping[tuple[int, int], int] | None = None,
) -> Evidence:
    """Return a copy of the agents at the indices `affected` of a table with a time (`as_of`).

    `describe` returns the explanations of the verdicts of the agents at some indices; None for one that has none.
    `agent_count_by_pair`: result of `count_agents_by_pair`, for several copies of one table.
    """
    is_stranded = table.verdicts["state"][affected] == State.STRANDED
    copied = affected[np.argsort(~is_stranded, kind="stable")][:MAX_AGENTS]
    rows = _copy_rows(table, copied)
    rows["sentence"], sentences = _describe_rows(rows, copied, describe)
    positions = copied.tolist()
    if agent_count_by_pair is None:
        agent_count_by_pair = count_agents_by_pair(table)
    named_indices = {
        int(index)
        for field in ("cause", "auth", "proxies", "home_proxy", "last_auth")
        for index in np.unique(rows[field]).tolist()
    }.union(*agent_count_by_pair)
    return Evidence(
        cluster=table.cluster,
        taken_at=table.as_of or 0.0,
        affected_count=len(affected),
        stranded_count=int(np.count_nonzero(is_stranded)),
        ids=tuple(table.ids[position] for position in positions),
        names=tuple(table.names[position] for position in positions),
        rows=rows,
        sentences=sentences,
        instances={index: view.facts for index, view in table.instances.items() if index in named_indices},
        agent_count_by_pair=agent_count_by_pair,
    )


def count_agents_by_pair(table: FleetTable, indices: Indices | None = None) -> Counter[tuple[int, int]]:
    """Count agents by the indices of home proxy and auth. Without `indices`: all that count as the fleet."""
    if indices is None:
        states = table.verdicts["state"]
        indices = np.flatnonzero((states != State.RETIRED) & (states != State.NEVER))
    homes = table.memory["home_proxy"][indices].astype(np.int64)
    auths = table.memory["last_auth"][indices].astype(np.int64)
    packed_pairs, counts = np.unique(homes << 16 | auths, return_counts=True)
    pairs = zip(packed_pairs.tolist(), counts.tolist(), strict=True)
    return Counter({(packed_pair >> 16, packed_pair & 0xFFFF): count for packed_pair, count in pairs})


def pack_evidence(evidence: Evidence) -> bytes:
    """Return the copy as compressed bytes."""
    header = {
        "version": _FORMAT_VERSION,
        "cluster": evidence.cluster,
        "taken_at": evidence.taken_at,
        "affected_count": evidence.affected_count,
        "stranded_count": evidence.stranded_count,
        "fields": [[name, *_shape_of(name)] for name in EVIDENCE.names or ()],
        "agent_count": len(evidence.ids),
        "sentences": evidence.sentences,
        "instances": [
            [facts.index, facts.id, facts.kind.value, facts.name, facts.group, facts.region, facts.version]
            for facts in evidence.instances.values()
        ],
        "pairs": [[*pair, count] for pair, count in evidence.agent_count_by_pair.items()],
        "names": evidence.names,
        # Many sources name an agent by its id.
        "ids": None if evidence.ids == evidence.names else evidence.ids,
    }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    # Column by column, because neighbours of one column are alike and compress well.
    columns_bytes = b"".join(
        np.ascontiguousarray(evidence.rows[name]).tobytes() for name in EVIDENCE.names or ()
    )
    return zlib.compress(_HEADER_LENGTH.pack(len(text)) + text + columns_bytes, 1)


def unpack_evidence(blob: bytes) -> Evidence:
    """Return the copy from its bytes. Raises EvidenceError."""
    with _damage_as_error():
        content, offset, header = _open(blob)
        return Evidence(
            cluster=header["cluster"],
            taken_at=header["taken_at"],
            affected_count=header["affected_count"],
            stranded_count=header["stranded_count"],
            ids=_read_ids(header),
            names=tuple(header["names"]),
            rows=_read_rows(content, offset, header),
            sentences=tuple(_read_sentences(entry) for entry in header["sentences"]),
            instances={entry[0]: _facts_of(entry) for entry in header["instances"]},
            agent_count_by_pair={(home, auth): count for home, auth, count in header["pairs"]},
        )


def unpack_agent_ids(blob: bytes) -> tuple[str, ...]:
    """Return only the ids of the copied agents, in a quarter of the time. Raises EvidenceError."""
    with _damage_as_error():
        return _read_ids(_open(blob)[2])


@contextmanager
def _damage_as_error() -> Iterator[None]:
    try:
        yield
    except (zlib.error, struct.error, KeyError, IndexError, TypeError, ValueError) as error:
        raise (
            error if isinstance(error, EvidenceError) else EvidenceError(f"the copy is damaged: {error}")
        ) from error


def _open(blob: bytes) -> tuple[bytes, int, Mapping[str, Any]]:
    """Return the content of a stored copy, where its columns begin, and its header."""
    content = zlib.decompress(blob)
    (header_size,) = _HEADER_LENGTH.unpack_from(content)
    offset = _HEADER_LENGTH.size + header_size
    header = json.loads(content[_HEADER_LENGTH.size : offset])
    if header["version"] != _FORMAT_VERSION:
        raise EvidenceError(f"a copy of format {header['version']} is not readable by this version")
    return content, offset, header


def _read_ids(header: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(header["names"] if header["ids"] is None else header["ids"])


def table_of_evidence(evidence: Evidence) -> FleetTable:
    """Return the copied agents as a table, for the presenters of live agents. It has no tunnels and no health."""
    count = len(evidence.ids)
    rows = evidence.rows
    heartbeats, memory, places = blank_heartbeats(count), blank_memory(count), blank_places(count)
    verdicts = np.zeros(count, columns.VERDICT)
    for name in ("since", "recovers_at", "cause", "state", "reason_and_recovery"):
        verdicts[name] = rows[name]
    heartbeats["mode"], heartbeats["flags"] = rows["mode"], rows["flags"]
    memory["home_proxy"], memory["last_auth"] = rows["home_proxy"], rows["last_auth"]
    places["auth"], places["proxies"] = rows["auth"], rows["proxies"]
    return FleetTable(
        cluster=evidence.cluster,
        epoch="",
        seq=0,
        as_of=evidence.taken_at,
        stale=False,
        ids=evidence.ids,
        names=evidence.names,
        instances=instance_views_of(evidence),
        heartbeats=heartbeats,
        memory=memory,
        verdicts=verdicts,
        places=places,
        tunnel_agents=np.zeros(0, np.uint32),
        tunnel_proxies=np.zeros(0, np.uint16),
        fleet=FleetEvidence(evidence.cluster, evidence.instances),
    )


def instance_views_of(evidence: Evidence) -> dict[int, InstanceView]:
    """Return the instances that the copy names, by index. Their states are not part of the copy."""
    return {
        index: InstanceView(facts, InstanceState.UNKNOWN, "", 0, {})
        for index, facts in evidence.instances.items()
    }


def agent_views_of(evidence: Evidence, positions: Sequence[int]) -> Iterator[AgentView]:
    """Yield the copied agents at these positions, as lists of agents show them. Raises IndexError."""
    return (_agent_view_of(evidence, position) for position in positions)


def _copy_rows(table: FleetTable, copied: Indices) -> Rows:
    rows = np.zeros(len(copied), EVIDENCE)
    verdicts, memory = table.verdicts[copied], table.memory[copied]
    places, heartbeats = table.places[copied], table.heartbeats[copied]
    for name in ("since", "recovers_at"):
        # Not negative and not above the highest second of the column: such times are faults of a source.
        rows[name] = np.clip(verdicts[name], 0, 0xFFFFFFFF)
    for name in ("cause", "state", "reason_and_recovery"):
        rows[name] = verdicts[name]
    for name in ("auth", "proxies"):
        rows[name] = places[name]
    for name in ("home_proxy", "last_auth"):
        rows[name] = memory[name]
    rows["mode"], rows["flags"] = heartbeats["mode"], heartbeats["flags"] & HEALTH_CHECK
    return rows


def _describe_rows(
    rows: Rows, copied: Indices, describe: DescribeVerdicts
) -> tuple[npt.NDArray[np.uint16], tuple[VerdictSentences, ...]]:
    """Return the sentence number of each row, and the sentences: one description per combination of causes."""
    sentence_rows = np.ascontiguousarray(rows[list(_SENTENCE_FIELDS)]).astype(
        [(name, EVIDENCE[name]) for name in _SENTENCE_FIELDS]
    )
    keys = sentence_rows.view(np.dtype((np.void, sentence_rows.dtype.itemsize))).ravel()
    _, first_positions, group_of_row, counts = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    frequent_groups = np.argsort(-counts, kind="stable")[:_MAX_SENTENCES]
    described_indices = copied[first_positions[frequent_groups]].tolist()
    sentences_by_group = dict(zip(frequent_groups.tolist(), describe(described_indices), strict=True))
    numbers_by_sentences: dict[VerdictSentences, int] = {}
    numbers = np.zeros(len(counts), np.uint16)
    for group, position in enumerate(first_positions.tolist()):
        sentences = sentences_by_group.get(group)
        if sentences is None:
            reason = Reason(int(rows["reason_and_recovery"][position]) & REASON_BITS)
            sentences = VerdictSentences(f"{reason.label.capitalize()}.")
        numbers[group] = numbers_by_sentences.setdefault(sentences, len(numbers_by_sentences))
    return numbers[group_of_row.ravel()], tuple(numbers_by_sentences)


def _read_sentences(entry: str | list[str]) -> VerdictSentences:
    """Return the sentences of a stored copy; earlier versions stored both as one text."""
    return VerdictSentences(entry) if isinstance(entry, str) else VerdictSentences(*entry)


def _shape_of(name: str) -> tuple[str, int]:
    """Return the type of the numbers of a field, and how many a row has."""
    dtype = EVIDENCE[name]
    base, shape = dtype.subdtype or (dtype, (1,))
    return base.str, shape[0]


def _read_rows(content: bytes, offset: int, header: Mapping[str, object]) -> Rows:
    """Return the rows of a stored copy. Fields that it lacks are 0; fields that this version lacks are skipped."""
    count = header["agent_count"]
    fields = header["fields"]
    assert isinstance(count, int)
    assert isinstance(fields, list)
    rows = np.zeros(count, EVIDENCE)
    for name, number_type, width in fields:
        numbers = np.frombuffer(content, number_type, count * width, offset)
        offset += numbers.nbytes
        if name in (EVIDENCE.names or ()):
            rows[name] = numbers.reshape(count, width) if width > 1 else numbers
    return rows


def _facts_of(entry: Sequence[str | int]) -> InstanceFacts:
    index, identity, kind, name, group, region, version = entry
    return InstanceFacts(
        id=str(identity),
        index=int(index),
        kind=InstanceKind(str(kind)),
        name=str(name),
        address="",
        group=str(group),
        region=str(region),
        version=str(version),
    )


def _agent_view_of(evidence: Evidence, position: int) -> AgentView:
    row = evidence.rows[position]
    state, cause = State(int(row["state"])), int(row["cause"])

    def id_of(index: int) -> str | None:
        facts = evidence.instances.get(index)
        return None if index == NO_INSTANCE or facts is None else facts.id

    return AgentView(
        index=position,
        id=evidence.ids[position],
        name=evidence.names[position],
        state=state,
        verdict=Verdict(
            state=state,
            reason=Reason(int(row["reason_and_recovery"]) & REASON_BITS),
            cause=f"backend/{evidence.cluster}" if cause == BACKEND_CAUSE else id_of(cause) or "",
            recovery=Recovery(int(row["reason_and_recovery"]) >> RECOVERY_SHIFT),
            recovers_at=float(row["recovers_at"]) or None,
            strands_at=None,
            sentences=evidence.sentences[int(row["sentence"])],
        ),
        since=float(row["since"]) or None,
        auth=id_of(int(row["auth"])),
        proxies=tuple(
            identity for index in row["proxies"].tolist() if (identity := id_of(index)) is not None
        ),
        home_proxy=id_of(int(row["home_proxy"])),
        heartbeat_at=None,
        expires_at=None,
        mode=ReconnectMode(int(row["mode"])),
        health_check=bool(row["flags"] & HEALTH_CHECK) if row["mode"] else None,
    )
