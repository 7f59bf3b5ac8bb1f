"""Encoding of the record: the header of the verdicts, packed rows, and JSON for small data.

docs/reference/record.md.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.monitoring.columns import (
    HEARTBEAT,
    MEMORY,
    PLACE,
    TUNNEL,
    VERDICT,
    blank_heartbeats,
    blank_memory,
    blank_places,
)
from fleet.monitoring.evidence import FeedFreshness
from fleet.monitoring.state.watch_codec import pack_watch, unpack_watch
from fleet.protocol.destination.health import Health
from fleet.vocabulary.instances import (
    InstanceFacts,
    InstanceKind,
    InstanceResource,
    InstanceState,
    Poll,
    PollAttempt,
    ServingStatus,
    poll_fields_of,
)
from fleet.vocabulary.verdicts import NO_CAUSE, State
from fleet.vocabulary.watch import INITIAL_WATCH

Rows = npt.NDArray[np.void]

#: Another state makes the header longer, so it changes the version. The first version had ten states.
_MAGIC = b"RFV%d" % (len(State) - 9)
_HEADER_FIELDS = struct.Struct("<4sI16sQQddII")
_STATE_COUNTS = struct.Struct(f"<{len(State)}I")
#: Number of cached texts: resources change only with a heartbeat of an instance, and most spells are equal.
_CACHE_SIZE = 4096
#: Parses text; `json.loads` spends half of its time on encodings and trailing text, and rounds parse hundreds.
_decode_json = json.JSONDecoder().raw_decode
#: Length of the header in bytes; the rows follow.
HEADER_SIZE = _HEADER_FIELDS.size + _STATE_COUNTS.size


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """Header before the VERDICT rows: their round and version, and the counts of each state."""

    epoch: str
    row_count: int = 0
    #: Number of the last event: one for each round that changed a state.
    seq: int = 0
    round: int = 0
    #: When the round concluded, seconds since the epoch; 0 before the first one.
    as_of: float = 0.0
    #: Seconds between rounds.
    interval: float = 5.0
    #: Number of agents with a home; with `row_count` the version of the layout, because both only grow.
    agent_home_count: int = 0
    instance_count: int = 0
    #: Counts by value of State.
    counts: tuple[int, ...] = (0,) * len(State)

    @property
    def layout_version(self) -> str:
        """Return the version of the layout. It changes when agents or homes are added, or the record is rebuilt."""
        return f"{self.epoch}-{self.row_count}-{self.agent_home_count}"


def pack_header(header: RecordHeader) -> bytes:
    """Return a header as bytes."""
    header_fields = _HEADER_FIELDS.pack(
        _MAGIC,
        header.row_count,
        header.epoch.encode(),
        header.seq,
        header.round,
        header.as_of,
        header.interval,
        header.agent_home_count,
        header.instance_count,
    )
    return header_fields + _STATE_COUNTS.pack(*header.counts)


def unpack_header(blob: bytes) -> RecordHeader | None:
    """Return the header at the beginning of `blob`; None without one.

    For another version it has only the place in the event stream: the next round continues there with new rows.
    """
    if len(blob) < _HEADER_FIELDS.size or not blob.startswith(_MAGIC[:3]):
        return None
    magic, row_count, epoch, seq, round_number, as_of, interval, agent_home_count, instance_count = (
        _HEADER_FIELDS.unpack_from(blob)
    )
    if magic != _MAGIC:
        return RecordHeader(
            epoch=epoch.rstrip(b"\0").decode(), seq=seq, round=round_number, interval=interval
        )
    if len(blob) < HEADER_SIZE:
        return None
    return RecordHeader(
        epoch=epoch.rstrip(b"\0").decode(),
        row_count=row_count,
        seq=seq,
        round=round_number,
        as_of=as_of,
        interval=interval,
        agent_home_count=agent_home_count,
        instance_count=instance_count,
        counts=_STATE_COUNTS.unpack_from(blob, _HEADER_FIELDS.size),
    )


def blank_rows(dtype: np.dtype[np.void], count: int) -> Rows:
    """Return rows of agents without data."""
    if dtype == HEARTBEAT:
        return blank_heartbeats(count)
    if dtype == MEMORY:
        return blank_memory(count)
    if dtype == PLACE:
        return blank_places(count)
    rows = np.zeros(count, dtype)
    if dtype == VERDICT:
        rows["cause"] = NO_CAUSE
    return rows


def rows_of(blob: bytes | None, dtype: np.dtype[np.void], count: int, *, offset: int = 0) -> Rows:
    """Return the rows in `blob` after `offset` bytes, cut or padded with blank rows to `count`; read-only."""
    row_count = max(len(blob or b"") - offset, 0) // dtype.itemsize
    if blob is None or row_count == 0:
        return blank_rows(dtype, count)
    rows: Rows = np.frombuffer(blob, dtype, count=min(row_count, count), offset=offset)
    if row_count < count:
        rows = np.concatenate([rows, blank_rows(dtype, count - row_count)])
    return rows


def resize_rows(rows: Rows, count: int) -> Rows:
    """Return the rows, cut or padded with blank rows to `count`."""
    if len(rows) >= count:
        return rows[:count]
    return np.concatenate([rows, blank_rows(rows.dtype, count - len(rows))])


def tunnels_of(blobs: Mapping[int, bytes]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16]]:
    """Return the TUNNEL rows of all proxies as parallel arrays of agent index and proxy instance index, by proxy."""
    ordered_blobs = sorted(blobs.items())
    rows = np.frombuffer(b"".join(blob for _, blob in ordered_blobs), TUNNEL)
    lengths = [len(blob) // TUNNEL.itemsize for _, blob in ordered_blobs]
    proxies = np.repeat(np.fromiter((proxy for proxy, _ in ordered_blobs), np.uint16, len(blobs)), lengths)
    return rows["agent"].astype(np.uint32), proxies


@dataclass(frozen=True, slots=True)
class InstanceSpell:
    """State of an instance in the newest round, the start of its problem, and its destination health."""

    state: InstanceState = InstanceState.UNKNOWN
    sick_since: float | None = None
    health: Health = Health.UNKNOWN
    is_draining: bool = False
    #: `InstanceEvidence` as JSON; empty: not recorded.
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class FeedState:
    """Place in an incremental feed, and its freshness."""

    freshness: FeedFreshness = field(default_factory=FeedFreshness)
    #: Epoch of the feed, and the revision to continue from.
    epoch: str = ""
    revision: int = 0
    #: A full list is in progress.
    is_listing: bool = False
    #: Bit of the rows named since the last full list began: it shows which agents are missing in the list.
    parity: int = 0
    #: Instance index of the auth that responded last (presence only).
    last_auth: int | None = None

    def after_failed_attempt(self, at: float) -> FeedState:
        """Return the feed after a failed attempt."""
        return replace(
            self, freshness=FeedFreshness(attempted_at=at, responded_at=self.freshness.responded_at)
        )


def _dump(document: Mapping[str, Any]) -> str:
    return json.dumps(
        {name: content for name, content in document.items() if content not in (None, "", 0)},
        separators=(",", ":"),
    )


def pack_resource(resource: InstanceResource) -> str:
    """Return a resource as JSON."""
    return _dump(asdict(resource))


@lru_cache(_CACHE_SIZE)
def unpack_resource(text: bytes) -> InstanceResource:
    """Return a resource from JSON."""
    return InstanceResource(**{"name": "", "address": "", **_decode_json(text.decode())[0]})


def pack_poll(poll: Poll) -> str:
    """Return a poll as JSON; attempts are [at, ok, error]."""
    fields = poll_fields_of(poll) | {
        "attempts": [[attempt.at, int(attempt.ok), attempt.error] for attempt in poll.attempts],
        "watch": None if poll.watch is INITIAL_WATCH else pack_watch(poll.watch),
    }
    present_fields = {name: content for name, content in fields.items() if content not in (None, ())}
    return json.dumps(present_fields, separators=(",", ":"))


_POLL_FIELDS = frozenset(Poll.__dataclass_fields__)


def unpack_poll(text: bytes) -> dict[str, Any]:
    """Return the fields of a Poll from JSON, without fields of other versions."""
    fields: dict[str, Any] = _decode_json(text.decode())[0]
    fields["attempts"] = tuple(PollAttempt(at, bool(ok), error) for at, ok, error in fields["attempts"])
    if "serving" in fields:
        fields["serving"] = ServingStatus(fields["serving"])
    if "connection_counts" in fields:
        fields["connection_counts"] = tuple((name, count) for name, count in fields["connection_counts"])
    if "watch" in fields:
        fields["watch"] = unpack_watch(fields["watch"])
    if not fields.keys() <= _POLL_FIELDS:
        return {name: value for name, value in fields.items() if name in _POLL_FIELDS}
    return fields


def pack_spell(spell: InstanceSpell) -> str:
    """Return a spell as text: `2 1700000000.0 degraded  {"readyz":503}`, or `1 - healthy draining {}`."""
    since = "-" if spell.sick_since is None else repr(spell.sick_since)
    drain_mark = "draining" if spell.is_draining else ""
    return f"{int(spell.state)} {since} {spell.health} {drain_mark} {spell.evidence}".rstrip()


@lru_cache(_CACHE_SIZE)
def unpack_spell(text: bytes) -> InstanceSpell:
    """Return a spell from text, also of an earlier version, which has only the first parts."""
    state, since, health, drain_mark, evidence, *_ = [*text.decode().split(" ", 4), "", "", "", ""]
    return InstanceSpell(
        InstanceState(int(state)),
        None if since in ("", "-") else float(since),
        Health(health or Health.UNKNOWN),
        bool(drain_mark),
        evidence,
    )


def pack_feed(state: FeedState) -> str:
    """Return a feed state as JSON."""
    fields = {
        "epoch": state.epoch,
        "revision": state.revision,
        "listing": int(state.is_listing),
        "parity": state.parity,
        "attempted_at": state.freshness.attempted_at,
        "answered_at": state.freshness.responded_at,
    }
    present_fields = {name: content for name, content in fields.items() if content}
    # Index 0 is a valid auth: it must not be dropped with empty values.
    return json.dumps(
        present_fields if state.last_auth is None else {**present_fields, "source": state.last_auth},
        separators=(",", ":"),
    )


def unpack_feed(text: bytes | None) -> FeedState:
    """Return a feed state from JSON; empty: never asked."""
    fields = _decode_json((text or b"{}").decode())[0]
    return FeedState(
        freshness=FeedFreshness(
            attempted_at=fields.get("attempted_at"), responded_at=fields.get("answered_at")
        ),
        epoch=fields.get("epoch", ""),
        revision=fields.get("revision", 0),
        is_listing=bool(fields.get("listing", 0)),
        parity=fields.get("parity", 0),
        last_auth=fields.get("source"),
    )


def facts_of(
    identities: Iterable[tuple[str, str, str]],
    resources: Mapping[int, InstanceResource],
    polls: Mapping[int, Mapping[str, Any]],
    spells: Mapping[int, InstanceSpell],
    listed_at: float | None,
) -> dict[int, InstanceFacts]:
    """Return the facts of each instance from its stored parts; `identities` are (id, kind, name) by index.

    `listed_at` is when the lists of instances were last read.
    """
    facts = {}
    for index, (instance_id, kind, name) in enumerate(identities):
        resource = resources.get(index) or InstanceResource(name, address="")
        if not resource.name:
            resource = replace(resource, name=name)
        facts[index] = InstanceFacts(
            id=instance_id,
            index=index,
            kind=InstanceKind(kind),
            sick_since=(spells.get(index) or InstanceSpell()).sick_since,
            listed_at=listed_at,
            **vars(resource),
            **polls.get(index, {}),
        )
    return facts
