"""Write the record: only pollers and tasks may. Every write is guarded by the record's epoch. docs/record.md."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import numpy.typing as npt
from redis import Redis

from fleet.monitoring.agent_report import Answer
from fleet.monitoring.columns import HEARTBEAT, MEMORY, RETIRED, TUNNEL, VERDICT
from fleet.monitoring.evidence import PRESENCE
from fleet.monitoring.state import RecordLost, StateError
from fleet.monitoring.state.agent_reports import pack_answer, pack_told
from fleet.monitoring.state.batch import Batch
from fleet.monitoring.state.codec import (
    HEADER_SIZE,
    FeedState,
    Header,
    Rows,
    Spell,
    blank,
    pack_feed,
    pack_header,
    pack_poll,
    pack_resource,
    pack_spell,
    rows_of,
)
from fleet.monitoring.state.column_cache import Kept
from fleet.monitoring.state.connect import reaching
from fleet.monitoring.state.keys import Keys
from fleet.monitoring.state.record import Record, load, load_instances
from fleet.monitoring.state.roster import Rosters, encode
from fleet.vocabulary.instances import InstanceFacts, Poll, Resource

#: Above this share of changed rows a column is written whole: one SET of 3 MB costs as much as 2,000 rows in place.
_WHOLE_SHARE = 0.05
#: How often a change of the memory starts over because a round was concluded meanwhile.
_TRIES = 20
#: Rounds that the database may owe before the oldest are given up.
_OUTBOX_LIMIT = 10_000
#: Highest instance index: the two above it mean "no cause" and "the backend".
_MAX_INSTANCES = 0xFFFD


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the database keeps of a cluster: the beginning of a new record. Rows by position."""

    #: (id, name).
    agents: Sequence[tuple[str, str]] = ()
    #: (id, kind, name).
    instances: Sequence[tuple[str, str, str]] = ()
    #: MEMORY rows, one per agent.
    memory: Rows = field(default_factory=lambda: np.zeros(0, MEMORY))


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a round changes."""

    header: Header
    #: VERDICT and MEMORY of every agent, and the indices of the rows that are new.
    verdicts: Rows
    verdicts_changed: npt.NDArray[np.uint32]
    memory: Rows
    memory_changed: npt.NDArray[np.uint32]
    #: Spells that are new, by instance index.
    spells: Mapping[int, Spell]
    #: What the database is owed; empty when nothing is.
    owed: bytes = b""
    #: Agents to be asked through their tunnels, by instance index of the proxy; and agents whose answers are old.
    ask: Mapping[int, npt.NDArray[np.uint32]] = field(default_factory=dict)
    forget: npt.NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))


class Writer:
    """The record of every cluster, for those who may write."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self.redis = redis
        self.prefix = prefix
        self._rosters = Rosters(redis)
        #: Columns by cluster, kept between rounds.
        self._kept: dict[str, Kept] = {}

    def keys(self, cluster: str) -> Keys:
        """The keys of a cluster."""
        return Keys(self.prefix, cluster)

    def epoch(self, cluster: str) -> str | None:
        """The record's epoch; None when there is no record. Raises StateUnavailable."""
        with reaching():
            found = self.redis.get(self.keys(cluster).epoch)
        return found.decode() if isinstance(found, bytes) else None

    def create(self, cluster: str, remembered: Remembered) -> str:
        """Make the record from what is remembered, if there is none. Answers the epoch of the record there is then."""
        keys = self.keys(cluster)
        epoch = secrets.token_hex(8)
        batch = Batch(self.redis)
        batch.guard_value(keys.epoch, "")
        batch.do("DEL", *keys.record)
        batch.do("SET", keys.epoch, epoch)
        if remembered.instances:
            batch.do("SET", keys.instances, encode(remembered.instances))
        if remembered.agents:
            batch.do("SET", keys.agents, encode(remembered.agents))
            batch.do("SET", keys.memory, remembered.memory.tobytes())
        if batch.run() == 0:
            return epoch
        found = self.epoch(cluster)
        if found is None:
            raise RecordLost(f"cluster {cluster}: the record was made and lost at once")
        return found

    def load_instances(self, cluster: str) -> dict[int, InstanceFacts]:
        """Facts of all instances. Raises StateUnavailable."""
        return load_instances(self.redis, self._rosters, self.keys(cluster))

    def load(self, cluster: str) -> Record:
        """The whole record, one row for every agent known now. Raises RecordLost, StateUnavailable."""
        kept = self._kept.setdefault(cluster, Kept())
        return load(self.redis, self._rosters, self.keys(cluster), kept=kept)

    def agents(self, cluster: str, epoch: str, wanted: Sequence[tuple[str, str]]) -> npt.NDArray[np.uint32]:
        """Indices of agents (id, name); unknown ones join the roster. Raises RecordLost."""
        keys = self.keys(cluster)
        return self._rosters.intern(keys.epoch, keys.agents, epoch, wanted)

    def known_agents(self, cluster: str, epoch: str, ids: Iterable[str]) -> npt.NDArray[np.uint32]:
        """Indices of those of `ids` that have one. Raises RecordLost."""
        keys = self.keys(cluster)
        known = self._rosters.read(keys.epoch, keys.agents)
        if known.epoch != epoch:
            raise RecordLost(f"cluster {cluster}: the record was made anew")
        found = [known.index[identity] for identity in ids if identity in known.index]
        return np.array(found, np.uint32)

    def instances(
        self, cluster: str, epoch: str, wanted: Sequence[tuple[str, str, str]]
    ) -> npt.NDArray[np.uint32]:
        """Indices of instances (id, kind, name); unknown ones join the roster. Raises RecordLost."""
        keys = self.keys(cluster)
        indices = self._rosters.intern(keys.epoch, keys.instances, epoch, wanted)
        if len(indices) and int(indices.max()) > _MAX_INSTANCES:
            raise StateError(f"cluster {cluster}: more than {_MAX_INSTANCES} instances were ever seen")
        return indices

    def instance_names(self, cluster: str) -> list[tuple[str, str, str]]:
        """(id, kind, name) of all instances by index. Raises StateUnavailable."""
        keys = self.keys(cluster)
        known = self._rosters.read(keys.epoch, keys.instances)
        return list(zip(known.column(0), known.column(1), known.column(2), strict=True))

    def memory(self, cluster: str) -> Rows:
        """The MEMORY column as it is kept. Raises StateUnavailable."""
        with reaching():
            found = self.redis.get(self.keys(cluster).memory)
        blob = found if isinstance(found, bytes) else b""
        return rows_of(blob, MEMORY, len(blob) // MEMORY.itemsize)

    def agent_ids(self, cluster: str) -> tuple[list[str], list[str]]:
        """Ids and names of all agents by index. Raises StateUnavailable."""
        keys = self.keys(cluster)
        known = self._rosters.read(keys.epoch, keys.agents)
        return known.column(0), known.column(1)

    def feed(self, cluster: str, field_name: str) -> bytes:
        """A feed's state as it is kept, to guard the write that follows. Raises StateUnavailable."""
        with reaching():
            found = self.redis.hget(self.keys(cluster).feeds, field_name)
        return found if isinstance(found, bytes) else b""

    def feeds(self, cluster: str) -> dict[str, bytes]:
        """All feeds' states as they are kept: `presence`, or the instance index of a proxy. Raises StateUnavailable."""
        with reaching():
            found = cast("dict[bytes, bytes]", self.redis.hgetall(self.keys(cluster).feeds))
        return {name.decode(): text for name, text in found.items()}

    def heartbeats(self, cluster: str) -> bytes:
        """The HEARTBEAT column as it is kept. Raises StateUnavailable."""
        with reaching():
            found = self.redis.get(self.keys(cluster).heartbeats)
        return found if isinstance(found, bytes) else b""

    def tunnels(self, cluster: str, proxy: int, *, listing: bool = False) -> bytes:
        """A proxy's TUNNEL rows as they are kept, or those of its unfinished full list. Raises StateUnavailable."""
        keys = self.keys(cluster)
        with reaching():
            found = self.redis.hget(keys.listings if listing else keys.tunnels, str(proxy))
        return found if isinstance(found, bytes) else b""

    def to_ask(self, cluster: str, proxies: Sequence[int]) -> dict[int, npt.NDArray[np.uint32]]:
        """Agents to be asked through each of these proxies. Raises StateUnavailable."""
        if not proxies:
            return {}
        with reaching():
            found = self.redis.hmget(self.keys(cluster).asked, [str(proxy) for proxy in proxies])
        blobs = cast("list[bytes | None]", found)
        return {proxy: np.frombuffer(blob, "<u4") for proxy, blob in zip(proxies, blobs, strict=True) if blob}

    def write_answers(self, cluster: str, epoch: str, answers: Mapping[int, Answer]) -> None:
        """Write what agents said of themselves, by agent index. Raises RecordLost, StateUnavailable."""
        if not answers:
            return
        keys = self.keys(cluster)
        batch = self._batch(keys, epoch)
        for agent, answer in answers.items():
            batch.do("HSET", keys.told, str(agent), pack_told(answer))
            batch.do("HSET", keys.answers, str(agent), pack_answer(answer))
        self._won(batch, keys)

    def write_heartbeats(
        self,
        cluster: str,
        epoch: str,
        *,
        before: bytes,
        after: FeedState,
        indices: npt.NDArray[np.uint32],
        rows: Rows,
        ended: npt.NDArray[np.uint32],
        ended_at: float,
        tracked: npt.NDArray[np.uint8] | None = None,
    ) -> bool:
        """Write new HEARTBEAT rows with what the agents track, and end those of `ended` agents at `ended_at`.

        Answers False, and writes nothing, when somebody else moved the feed on meanwhile.
        """
        keys = self.keys(cluster)
        batch = self._batch(keys, epoch)
        batch.guard_field(keys.feeds, PRESENCE, before)
        batch.do("HSET", keys.feeds, PRESENCE, pack_feed(after))
        size = HEARTBEAT.itemsize
        if len(indices):
            batch.pad(keys.heartbeats, blank(HEARTBEAT, 1).tobytes(), int(indices.max()) + 1)
        batch.rows(keys.heartbeats, 0, size, indices, rows.tobytes())
        # `expires_at` is the first field of a row.
        if tracked is not None and len(indices):
            # Without a new version: a round that writes an old value over it is put right by the next heartbeat.
            batch.pad(keys.memory, blank(MEMORY, 1).tobytes(), int(indices.max()) + 1)
            offset = MEMORY.fields["tracked"][1] if MEMORY.fields else 0
            batch.rows(keys.memory, offset, MEMORY.itemsize, indices, tracked.tobytes())
        # An agent that was never heard of has no row to end: its index is beyond the column, or its row stays blank.
        batch.rows(keys.heartbeats, 0, size, ended, np.full(len(ended), ended_at, "<f8").tobytes())
        return self._won(batch, keys)

    def write_tunnels(
        self, cluster: str, epoch: str, proxy: int, *, before: bytes, after: FeedState, rows: Rows | None
    ) -> bool:
        """Write a proxy's TUNNEL rows (None: as they were) and its place in its feed.

        While a full list is under way (`after.listing`) the rows wait beside, and the old ones stay in use.
        Answers False, and writes nothing, when somebody else moved the feed on meanwhile.
        """
        assert rows is None or rows.dtype == TUNNEL, "rows of another column"
        keys = self.keys(cluster)
        batch = self._batch(keys, epoch)
        batch.guard_field(keys.feeds, str(proxy), before)
        batch.do("HSET", keys.feeds, str(proxy), pack_feed(after))
        if rows is not None:
            batch.do("HSET", keys.listings if after.listing else keys.tunnels, str(proxy), rows.tobytes())
            if not after.listing:
                batch.do("HDEL", keys.listings, str(proxy))
        return self._won(batch, keys)

    def write_feed(
        self, cluster: str, epoch: str, field_name: str, *, before: bytes, after: FeedState
    ) -> bool:
        """Write only how fresh a feed is. Answers False when somebody else moved it on meanwhile."""
        return self.write_feeds(cluster, epoch, {field_name: (before, after)})

    def write_feeds(self, cluster: str, epoch: str, feeds: Mapping[str, tuple[bytes, FeedState]]) -> bool:
        """Write only how fresh feeds are, by name: (as it was kept, as it is now).

        Answers False, and writes nothing, when somebody else moved one of them on meanwhile.
        """
        keys = self.keys(cluster)
        batch = self._batch(keys, epoch)
        for name, (before, after) in feeds.items():
            batch.guard_field(keys.feeds, name, before)
            batch.do("HSET", keys.feeds, name, pack_feed(after))
        return batch.empty or self._won(batch, keys)

    def write_instances(
        self,
        cluster: str,
        epoch: str,
        *,
        resources: Mapping[int, Resource] | None = None,
        polls: Mapping[int, Poll] | None = None,
        probed_at: float | None = None,
    ) -> None:
        """Write what resources and polls said, by instance index, and when a self-probe succeeded."""
        keys = self.keys(cluster)
        batch = self._batch(keys, epoch)
        for index, resource in (resources or {}).items():
            batch.do("HSET", keys.resources, str(index), pack_resource(resource))
        for index, poll in (polls or {}).items():
            batch.do("HSET", keys.polls, str(index), pack_poll(poll))
        if probed_at is not None:
            batch.do("SET", keys.probe, repr(probed_at))
        if not batch.empty:
            self._won(batch, keys)

    def set_retired(self, cluster: str, epoch: str, indices: Sequence[int], *, retired: bool) -> None:
        """Mark agents as retired by an operator, or as in use again. Raises RecordLost, StateError."""

        chosen = np.array(sorted(set(indices)), np.uint32)

        def mark(memory: Rows) -> npt.NDArray[np.uint32]:
            flags = memory["flags"][chosen]
            memory["flags"][chosen] = flags | RETIRED if retired else flags & ~np.uint8(RETIRED)
            return chosen

        self._change_memory(cluster, epoch, int(chosen.max()) + 1 if len(chosen) else 0, mark)

    def expect_reconnects(self, cluster: str, until: Mapping[str, float]) -> None:
        """Reconnects we asked for run until then, by agent id; of no other agent does one.

        Ids that the record does not know are left out; nothing is written where it says so already. Raises RecordLost,
        StateError.
        """
        keys = self.keys(cluster)
        known = self._rosters.read(keys.epoch, keys.agents)
        if not known.epoch:
            raise RecordLost(f"cluster {cluster}: there is no record")
        chosen = {known.index[agent]: at for agent, at in until.items() if agent in known.index}

        def mark(memory: Rows) -> npt.NDArray[np.uint32]:
            wanted = np.zeros(len(memory))
            wanted[list(chosen)] = list(chosen.values())
            differ = np.flatnonzero(memory["working_until"] != wanted).astype(np.uint32)
            memory["working_until"] = wanted
            return differ

        self._change_memory(cluster, known.epoch, max(chosen, default=-1) + 1, mark)

    def _change_memory(
        self, cluster: str, epoch: str, count: int, change: Callable[[Rows], npt.NDArray[np.uint32]]
    ) -> None:
        """Have `change` change what is remembered, of `count` agents at least; it answers of whom it did."""
        keys = self.keys(cluster)
        for _ in range(_TRIES):
            with reaching(), self.redis.pipeline(transaction=True) as pipe:
                pipe.get(keys.memory)
                pipe.get(keys.memory_version)
                blob, version = cast("list[bytes | None]", pipe.execute())
            memory = rows_of(blob, MEMORY, max(count, len(blob or b"") // MEMORY.itemsize)).copy()
            chosen = change(memory)
            if not len(chosen):
                return
            batch = self._batch(keys, epoch)
            batch.guard_value(keys.memory_version, version or b"")
            batch.pad(keys.memory, blank(MEMORY, 1).tobytes(), count)
            batch.rows(keys.memory, 0, MEMORY.itemsize, chosen, memory[chosen].tobytes())
            batch.do("INCR", keys.memory_version)
            if self._won(batch, keys):
                return
        raise StateError(f"cluster {cluster}: rounds kept changing what agents are remembered by")

    def commit(self, cluster: str, before: Record, conclusion: Conclusion) -> bool:
        """Write a round's result, once.

        Answers False, and writes nothing, when another round was concluded or the memory changed meanwhile.
        """
        keys = self.keys(cluster)
        batch = self._batch(keys, before.epoch)
        batch.guard_value(keys.concluded, str(before.header.round) if before.header.round else "")
        batch.guard_value(keys.memory_version, before.memory_version)
        batch.do("SET", keys.concluded, str(conclusion.header.round))
        header = pack_header(conclusion.header)
        grown = len(conclusion.verdicts) > before.header.rows
        if grown or _mostly(conclusion.verdicts_changed, conclusion.verdicts):
            batch.do("SET", keys.verdicts, header + conclusion.verdicts.tobytes())
        else:
            rows = conclusion.verdicts[conclusion.verdicts_changed].tobytes()
            batch.do("SETRANGE", keys.verdicts, 0, header)
            batch.rows(keys.verdicts, HEADER_SIZE, VERDICT.itemsize, conclusion.verdicts_changed, rows)
        if grown or _mostly(conclusion.memory_changed, conclusion.memory):
            batch.do("SET", keys.memory, conclusion.memory.tobytes())
        else:
            rows = conclusion.memory[conclusion.memory_changed].tobytes()
            batch.rows(keys.memory, 0, MEMORY.itemsize, conclusion.memory_changed, rows)
        if grown or len(conclusion.memory_changed):
            batch.do("INCR", keys.memory_version)
        for index, spell in conclusion.spells.items():
            batch.do("HSET", keys.spells, str(index), pack_spell(spell))
        batch.do("DEL", keys.asked)
        for proxy, asked in conclusion.ask.items():
            batch.do("HSET", keys.asked, str(proxy), asked.astype("<u4").tobytes())
        for key in (keys.told, keys.answers) if len(conclusion.forget) else ():
            batch.do("HDEL", key, *map(str, conclusion.forget.tolist()))
        if conclusion.owed:
            batch.do("RPUSH", keys.outbox, conclusion.owed)
            batch.do("LTRIM", keys.outbox, -_OUTBOX_LIMIT, -1)
        if not self._won(batch, keys):
            return False
        self._keep(cluster, before, conclusion)
        return True

    def _keep(self, cluster: str, before: Record, conclusion: Conclusion) -> None:
        """What we have just written need not be read again; the memory is, if it changed: its version is Redis's."""
        kept = self._kept.get(cluster)
        if kept is not None:
            newest = str(conclusion.header.round).encode()
            kept.header, kept.verdicts = conclusion.header, conclusion.verdicts
            kept.versions = replace(kept.versions, verdicts=(before.epoch.encode(), newest))

    def owes(self, cluster: str) -> bool:
        """Whether the database has not got all results yet. Raises StateUnavailable."""
        with reaching():
            return bool(self.redis.exists(self.keys(cluster).outbox))

    def owed(self, cluster: str, count: int) -> list[bytes]:
        """The oldest `count` results the database has not got yet. Raises StateUnavailable."""
        with reaching():
            return cast("list[bytes]", self.redis.lrange(self.keys(cluster).outbox, 0, count - 1))

    def settled(self, cluster: str, owed: bytes) -> None:
        """The database has got this result. Raises StateUnavailable."""
        with reaching():
            self.redis.lrem(self.keys(cluster).outbox, 1, owed)  # type: ignore[arg-type]  # bytes are a value too

    def _batch(self, keys: Keys, epoch: str) -> Batch:
        batch = Batch(self.redis)
        batch.guard_value(keys.epoch, epoch)
        return batch

    def _won(self, batch: Batch, keys: Keys) -> bool:
        failed = batch.run()
        if failed == 1:
            raise RecordLost(f"cluster {keys.cluster}: the record was made anew")
        return failed == 0


def _mostly(changed: npt.NDArray[np.uint32], rows: Rows) -> bool:
    return len(changed) > _WHOLE_SHARE * len(rows)
