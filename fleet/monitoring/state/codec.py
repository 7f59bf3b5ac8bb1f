"""The record's bytes: the header of the verdicts, packed rows, and the JSON of what is few. docs/record.md."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.monitoring.columns import HEARTBEAT, MEMORY, TUNNEL, VERDICT, empty_heartbeats, empty_memory
from fleet.monitoring.evidence import FeedFreshness
from fleet.monitoring.state.watch_codec import pack_watch, unpack_watch
from fleet.protocol.destination.health import Health
from fleet.vocabulary.instances import (
    PollAttempt,
    InstanceFacts,
    InstanceKind,
    InstanceState,
    Poll,
    InstanceResource,
    ServingStatus,
    fields_of,
)
from fleet.vocabulary.verdicts import NO_CAUSE, State
from fleet.vocabulary.watch import INITIAL_WATCH

Rows = npt.NDArray[np.void]

#: A verdict more makes a header longer, so it is another version. Ten were there first.
_MAGIC = b"RFV%d" % (len(State) - 9)
_PLACE = struct.Struct("<4sI16sQQddII")
_COUNTS = struct.Struct(f"<{len(State)}I")
#: Texts whose value is kept: resources change with each heartbeat of an instance only, and most spells are alike.
_CACHE_SIZE = 4096
#: Of text; `json.loads` looks for encodings and for what follows first, in half of its time, and rounds read hundreds.
_decode_json = json.JSONDecoder().raw_decode
#: Bytes of the header; the rows follow it.
HEADER_SIZE = _PLACE.size + _COUNTS.size


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """What stands before the VERDICT rows: whose they are, and the counts of each state."""

    epoch: str
    rows: int = 0
    #: Number of the last round that changed a state: its place in the event stream.
    seq: int = 0
    round: int = 0
    #: When the round concluded, seconds since the epoch; 0 before the first one.
    as_of: float = 0.0
    #: Seconds between rounds.
    interval: float = 5.0
    #: Agents that have a home: with `rows` it says which layout this is, for both only grow.
    home_count: int = 0
    instances: int = 0
    #: By value of State.
    counts: tuple[int, ...] = (0,) * len(State)

    @property
    def layout_version(self) -> str:
        """Changes exactly when agents or homes were added, or the record was made anew."""
        return f"{self.epoch}-{self.rows}-{self.home_count}"


def pack_header(header: RecordHeader) -> bytes:
    """The header's bytes."""
    place = _PLACE.pack(
        _MAGIC,
        header.rows,
        header.epoch.encode(),
        header.seq,
        header.round,
        header.as_of,
        header.interval,
        header.home_count,
        header.instances,
    )
    return place + _COUNTS.pack(*header.counts)


def unpack_header(blob: bytes) -> RecordHeader | None:
    """The header at the beginning of `blob`; None when there is none.

    Of one of another version only the place in the event stream: the next round goes on from there, with new rows.
    """
    if len(blob) < _PLACE.size or not blob.startswith(_MAGIC[:3]):
        return None
    magic, rows, epoch, seq, round_number, as_of, interval, home_count, instances = _PLACE.unpack_from(blob)
    if magic != _MAGIC:
        return RecordHeader(epoch=epoch.rstrip(b"\0").decode(), seq=seq, round=round_number, interval=interval)
    if len(blob) < HEADER_SIZE:
        return None
    return RecordHeader(
        epoch=epoch.rstrip(b"\0").decode(),
        rows=rows,
        seq=seq,
        round=round_number,
        as_of=as_of,
        interval=interval,
        home_count=home_count,
        instances=instances,
        counts=_COUNTS.unpack_from(blob, _PLACE.size),
    )


def blank_rows(dtype: np.dtype[np.void], count: int) -> Rows:
    """Rows of agents of whom nothing is known."""
    if dtype == HEARTBEAT:
        return empty_heartbeats(count)
    if dtype == MEMORY:
        return empty_memory(count)
    rows = np.zeros(count, dtype)
    if dtype == VERDICT:
        rows["cause"] = NO_CAUSE
    return rows


def rows_of(blob: bytes | None, dtype: np.dtype[np.void], count: int, *, offset: int = 0) -> Rows:
    """The rows in `blob` after `offset` bytes, cut or filled up with blank ones to `count`; read-only."""
    row_count = max(len(blob or b"") - offset, 0) // dtype.itemsize
    if blob is None or row_count == 0:
        return blank_rows(dtype, count)
    rows: Rows = np.frombuffer(blob, dtype, count=min(row_count, count), offset=offset)
    if row_count < count:
        rows = np.concatenate([rows, blank_rows(dtype, count - row_count)])
    return rows


def fit_rows(rows: Rows, count: int) -> Rows:
    """The rows, cut or filled up with blank ones to `count`."""
    if len(rows) >= count:
        return rows[:count]
    return np.concatenate([rows, blank_rows(rows.dtype, count - len(rows))])


def tunnels_of(blobs: Mapping[int, bytes]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16]]:
    """All proxies' TUNNEL rows as parallel arrays of agent index and proxy's instance index."""
    rows = np.frombuffer(b"".join(blobs.values()), TUNNEL)
    lengths = [len(blob) // TUNNEL.itemsize for blob in blobs.values()]
    proxies = np.repeat(np.fromiter(blobs, np.uint16, len(blobs)), lengths)
    return rows["agent"].astype(np.uint32), proxies


@dataclass(frozen=True, slots=True)
class InstanceSpell:
    """The state an instance had in the newest round, since when it is sick, and what it was as a destination."""

    state: InstanceState = InstanceState.UNKNOWN
    sick_since: float | None = None
    health: Health = Health.UNKNOWN
    draining: bool = False


@dataclass(frozen=True, slots=True)
class FeedState:
    """Our place in an incremental feed, and its freshness."""

    freshness: FeedFreshness = field(default_factory=FeedFreshness)
    #: The feed's own epoch and the revision to ask from.
    epoch: str = ""
    revision: int = 0
    #: A full list is under way and not complete yet.
    listing: bool = False
    #: Rows named since the last full list began carry this bit: it tells who was left out.
    parity: int = 0
    #: Instance index of the auth that answered last (presence only).
    source: int | None = None

    def after_failed_attempt(self, at: float) -> FeedState:
        """The same after an attempt that failed."""
        return replace(self, freshness=FeedFreshness(attempted_at=at, answered_at=self.freshness.answered_at))


def _dump(document: Mapping[str, Any]) -> str:
    return json.dumps(
        {name: content for name, content in document.items() if content not in (None, "", 0)}, separators=(",", ":")
    )


def pack_resource(resource: InstanceResource) -> str:
    """Its JSON."""
    return _dump(asdict(resource))


@lru_cache(_CACHE_SIZE)
def unpack_resource(text: bytes) -> InstanceResource:
    """From its JSON."""
    return InstanceResource(**{"name": "", "address": "", **_decode_json(text.decode())[0]})


def pack_poll(poll: Poll) -> str:
    """Its JSON: attempts are [at, ok, error]."""
    fields = fields_of(poll) | {
        "attempts": [[attempt.at, int(attempt.ok), attempt.error] for attempt in poll.attempts],
        "watch": None if poll.watch is INITIAL_WATCH else pack_watch(poll.watch),
    }
    present_fields = {name: content for name, content in fields.items() if content is not None}
    return json.dumps(present_fields, separators=(",", ":"))


_POLL_FIELDS = frozenset(Poll.__dataclass_fields__)


def unpack_poll(text: bytes) -> dict[str, Any]:
    """The fields of a Poll, from its JSON; those of another version are left out."""
    fields: dict[str, Any] = _decode_json(text.decode())[0]
    fields["attempts"] = tuple(PollAttempt(at, bool(ok), error) for at, ok, error in fields["attempts"])
    if "serving" in fields:
        fields["serving"] = ServingStatus(fields["serving"])
    if "watch" in fields:
        fields["watch"] = unpack_watch(fields["watch"])
    if not fields.keys() <= _POLL_FIELDS:
        return {name: value for name, value in fields.items() if name in _POLL_FIELDS}
    return fields


def pack_spell(spell: InstanceSpell) -> str:
    """Its text: `2 1700000000.0 degraded`, or `1 - healthy draining` for one that is well."""
    since = "-" if spell.sick_since is None else repr(spell.sick_since)
    return f"{int(spell.state)} {since} {spell.health}" + (" draining" if spell.draining else "")


@lru_cache(_CACHE_SIZE)
def unpack_spell(text: bytes) -> InstanceSpell:
    """From its text."""
    state, since, health, drain_mark, *_ = [*text.decode().split(" "), "", "", ""]
    return InstanceSpell(
        InstanceState(int(state)),
        None if since in ("", "-") else float(since),
        Health(health or Health.UNKNOWN),
        bool(drain_mark),
    )


def pack_feed(state: FeedState) -> str:
    """Its JSON."""
    fields = {
        "epoch": state.epoch,
        "revision": state.revision,
        "listing": int(state.listing),
        "parity": state.parity,
        "attempted_at": state.freshness.attempted_at,
        "answered_at": state.freshness.answered_at,
    }
    present_fields = {name: content for name, content in fields.items() if content}
    # Index 0 is an auth like any other: it must not be dropped with what is empty.
    return json.dumps(
        present_fields if state.source is None else {**present_fields, "source": state.source}, separators=(",", ":")
    )


def unpack_feed(text: bytes | None) -> FeedState:
    """From its JSON; nothing kept means never asked."""
    fields = _decode_json((text or b"{}").decode())[0]
    return FeedState(
        freshness=FeedFreshness(attempted_at=fields.get("attempted_at"), answered_at=fields.get("answered_at")),
        epoch=fields.get("epoch", ""),
        revision=fields.get("revision", 0),
        listing=bool(fields.get("listing", 0)),
        parity=fields.get("parity", 0),
        source=fields.get("source"),
    )


def facts_of(
    identities: Iterable[tuple[str, str, str]],
    resources: Mapping[int, InstanceResource],
    polls: Mapping[int, Mapping[str, Any]],
    spells: Mapping[int, InstanceSpell],
    listed_at: float | None,
) -> dict[int, InstanceFacts]:
    """Join what is kept of each instance; `names` are (id, kind, name) by index.

    `listed_at` is when the lists of instances were last answered.
    """
    facts = {}
    for index, (identity, kind, name) in enumerate(identities):
        resource = resources.get(index) or InstanceResource(name, address="")
        if not resource.name:
            resource = replace(resource, name=name)
        facts[index] = InstanceFacts(
            id=identity,
            index=index,
            kind=InstanceKind(kind),
            sick_since=(spells.get(index) or InstanceSpell()).sick_since,
            listed_at=listed_at,
            **vars(resource),
            **polls.get(index, {}),
        )
    return facts
