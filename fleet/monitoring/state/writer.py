"""Writes to the record, by pollers and tasks only. Every write is guarded by the record's epoch.

docs/reference/record.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import numpy.typing as npt
from redis import Redis

from fleet.monitoring.agent_attributes import AgentAttributes
from fleet.monitoring.agent_report import AgentReportResponse
from fleet.monitoring.columns import HEARTBEAT, MEMORY, RETIRED, TUNNEL, VERDICT
from fleet.monitoring.evidence import PRESENCE
from fleet.monitoring.state import RecordLostError, StateError
from fleet.monitoring.state.agent_reports import pack_agent_response, pack_report_row
from fleet.monitoring.state.attribute_store import add_attributes, add_seed_attributes
from fleet.monitoring.state.batch import Batch
from fleet.monitoring.state.codec import (
    HEADER_SIZE,
    FeedState,
    InstanceSpell,
    RecordHeader,
    Rows,
    blank_rows,
    pack_feed,
    pack_header,
    pack_poll,
    pack_resource,
    pack_spell,
    rows_of,
)
from fleet.monitoring.state.column_cache import ColumnCache
from fleet.monitoring.state.connect import map_redis_errors
from fleet.monitoring.state.keys import Keys
from fleet.monitoring.state.record import ClusterRecord, load_instances, load_record
from fleet.monitoring.state.roster import Rosters, encode_identities
from fleet.vocabulary.instances import InstanceFacts, InstanceResource, Poll

#: Share of changed rows above which a column is written whole: one SET of 3 MB costs as much as 2,000 rows.
_WHOLE_SHARE = 0.05
#: Most attempts of a memory change, which starts over when a round is concluded meanwhile.
_MAX_ATTEMPTS = 20
#: Most rounds that wait for the database; older ones are dropped.
_OUTBOX_LIMIT = 10_000
#: Highest instance index; the two above it mean "no cause" and "the backend".
_MAX_INSTANCES = 0xFFFD


@dataclass(frozen=True, slots=True)
class RecordSeed:
    """Data of a cluster in the database, from which a new record starts. Rows by position."""

    #: (id, name).
    agents: Sequence[tuple[str, str]] = ()
    #: (id, kind, name).
    instances: Sequence[tuple[str, str, str]] = ()
    #: MEMORY rows, one per agent.
    memory: Rows = field(default_factory=lambda: np.zeros(0, MEMORY))
    attributes: Sequence[AgentAttributes] = ()


@dataclass(frozen=True, slots=True)
class Conclusion:
    """Changes of a round."""

    header: RecordHeader
    #: VERDICT, MEMORY and PLACE rows of every agent, and the indices of changed rows.
    verdicts: Rows
    changed_verdict_rows: npt.NDArray[np.uint32]
    memory: Rows
    changed_memory_rows: npt.NDArray[np.uint32]
    places: Rows
    changed_place_rows: npt.NDArray[np.uint32]
    #: Changed spells, by instance index.
    spells: Mapping[int, InstanceSpell]
    #: History for the database; empty without any.
    outbox_entry: bytes = b""
    #: Agents to ask through their tunnels, by instance index of the proxy; and agents whose responses are old.
    agents_to_query: Mapping[int, npt.NDArray[np.uint32]] = field(default_factory=dict)
    reports_to_delete: npt.NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))


class Writer:
    """Write access to the record of every cluster."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self.redis = redis
        self.prefix = prefix
        self._rosters = Rosters(redis)
        #: Cached columns by cluster.
        self._caches: dict[str, ColumnCache] = {}

    def keys(self, cluster: str) -> Keys:
        """Return the Redis keys of a cluster."""
        return Keys(self.prefix, cluster)

    def epoch(self, cluster: str) -> str | None:
        """Return the epoch of the record; None without a record. Raises StateUnavailableError."""
        with map_redis_errors():
            reply = self.redis.get(self.keys(cluster).epoch)
        return reply.decode() if isinstance(reply, bytes) else None

    def create(self, cluster: str, seed: RecordSeed) -> str:
        """Create the record from remembered data unless there is one. Returns the epoch of the record."""
        keys = self.keys(cluster)
        epoch = secrets.token_hex(8)
        batch = Batch(self.redis)
        batch.guard_value(keys.epoch, "")
        batch.add_command("DEL", *keys.record_keys)
        batch.add_command("SET", keys.epoch, epoch)
        if seed.instances:
            batch.add_command("SET", keys.instances, encode_identities(seed.instances))
        if seed.agents:
            batch.add_command("SET", keys.agents, encode_identities(seed.agents))
            batch.add_command("SET", keys.memory, seed.memory.tobytes())
            add_seed_attributes(batch, keys, seed.attributes)
        if batch.run() == 0:
            return epoch
        existing_epoch = self.epoch(cluster)
        if existing_epoch is None:
            raise RecordLostError(f"cluster {cluster}: the record was lost right after it was created")
        return existing_epoch

    def load_instances(self, cluster: str) -> dict[int, InstanceFacts]:
        """Return the facts of all instances. Raises StateUnavailableError."""
        return load_instances(self.redis, self._rosters, self.keys(cluster))

    def load(self, cluster: str) -> ClusterRecord:
        """Return the whole record, with one row per known agent. Raises RecordLostError, StateUnavailableError."""
        cache = self._caches.setdefault(cluster, ColumnCache())
        return load_record(self.redis, self._rosters, self.keys(cluster), cache=cache)

    def intern_agents(
        self, cluster: str, epoch: str, identities: Sequence[tuple[str, str]]
    ) -> npt.NDArray[np.uint32]:
        """Return the indices of agents (id, name); unknown agents are added to the roster. Raises RecordLostError."""
        keys = self.keys(cluster)
        return self._rosters.intern(keys.epoch, keys.agents, epoch, identities)

    def find_agents(self, cluster: str, epoch: str, ids: Iterable[str]) -> npt.NDArray[np.uint32]:
        """Return the indices of the known agents of `ids`. Raises RecordLostError."""
        keys = self.keys(cluster)
        roster = self._rosters.read(keys.epoch, keys.agents)
        if roster.epoch != epoch:
            raise RecordLostError(f"cluster {cluster}: the record was rebuilt")
        indices = [roster.index_by_id[agent_id] for agent_id in ids if agent_id in roster.index_by_id]
        return np.array(indices, np.uint32)

    def intern_instances(
        self, cluster: str, epoch: str, identities: Sequence[tuple[str, str, str]]
    ) -> npt.NDArray[np.uint32]:
        """Return the indices of instances (id, kind, name); unknown ones are added to the roster.

        Raises RecordLostError.
        """
        keys = self.keys(cluster)
        indices = self._rosters.intern(keys.epoch, keys.instances, epoch, identities)
        if len(indices) and int(indices.max()) > _MAX_INSTANCES:
            raise StateError(f"cluster {cluster}: the record is full: more than {_MAX_INSTANCES:,} instances")
        return indices

    def instance_identities(self, cluster: str) -> list[tuple[str, str, str]]:
        """Return (id, kind, name) of all instances by index. Raises StateUnavailableError."""
        keys = self.keys(cluster)
        roster = self._rosters.read(keys.epoch, keys.instances)
        return list(zip(roster.column(0), roster.column(1), roster.column(2), strict=True))

    def memory(self, cluster: str) -> Rows:
        """Return the MEMORY column. Raises StateUnavailableError."""
        with map_redis_errors():
            reply = self.redis.get(self.keys(cluster).memory)
        blob = reply if isinstance(reply, bytes) else b""
        return rows_of(blob, MEMORY, len(blob) // MEMORY.itemsize)

    def agent_ids_and_names(self, cluster: str) -> tuple[list[str], list[str]]:
        """Return ids and names of all agents by index. Raises StateUnavailableError."""
        keys = self.keys(cluster)
        roster = self._rosters.read(keys.epoch, keys.agents)
        return roster.column(0), roster.column(1)

    def feed(self, cluster: str, name: str) -> bytes:
        """Return the stored state of a feed, to guard the next write. Raises StateUnavailableError."""
        with map_redis_errors():
            reply = self.redis.hget(self.keys(cluster).feeds, name)
        return reply if isinstance(reply, bytes) else b""

    def feeds(self, cluster: str) -> dict[str, bytes]:
        """Return the stored feed states, by `presence` or instance index of a proxy. Raises StateUnavailableError."""
        with map_redis_errors():
            reply = cast("dict[bytes, bytes]", self.redis.hgetall(self.keys(cluster).feeds))
        return {name.decode(): text for name, text in reply.items()}

    def heartbeats(self, cluster: str) -> bytes:
        """Return the HEARTBEAT column. Raises StateUnavailableError."""
        with map_redis_errors():
            reply = self.redis.get(self.keys(cluster).heartbeats)
        return reply if isinstance(reply, bytes) else b""

    def tunnels(self, cluster: str, proxy: int, *, is_listing: bool = False) -> bytes:
        """Return the TUNNEL rows of a proxy, or those of its unfinished full list. Raises StateUnavailableError."""
        keys = self.keys(cluster)
        with map_redis_errors():
            reply = self.redis.hget(keys.listings if is_listing else keys.tunnels, str(proxy))
        return reply if isinstance(reply, bytes) else b""

    def agents_to_query(self, cluster: str, proxies: Sequence[int]) -> dict[int, npt.NDArray[np.uint32]]:
        """Return the agents to ask through each of these proxies. Raises StateUnavailableError."""
        if not proxies:
            return {}
        with map_redis_errors():
            reply = self.redis.hmget(self.keys(cluster).report_requests, [str(proxy) for proxy in proxies])
        blobs = cast("list[bytes | None]", reply)
        return {proxy: np.frombuffer(blob, "<u4") for proxy, blob in zip(proxies, blobs, strict=True) if blob}

    def write_agent_responses(
        self, cluster: str, epoch: str, responses: Mapping[int, AgentReportResponse]
    ) -> None:
        """Write the reports of agents, by agent index. Raises RecordLostError, StateUnavailableError."""
        if not responses:
            return
        keys = self.keys(cluster)
        batch = self._start_batch(keys, epoch)
        for agent, response in responses.items():
            batch.add_command("HSET", keys.report_rows, str(agent), pack_report_row(response))
            batch.add_command("HSET", keys.agent_reports, str(agent), pack_agent_response(response))
        self._run_batch(batch, keys)

    def write_heartbeats(
        self,
        cluster: str,
        epoch: str,
        *,
        feed_before: bytes,
        feed_after: FeedState,
        indices: npt.NDArray[np.uint32],
        rows: Rows,
        removed_agents: npt.NDArray[np.uint32],
        removed_at: float,
        tracked_counts: npt.NDArray[np.uint8] | None = None,
        attributes: Sequence[AgentAttributes] = (),
    ) -> bool:
        """Write HEARTBEAT rows, tracked counts, versions and labels; expire rows of `removed_agents` at `removed_at`.

        Returns False and writes nothing when another process changed the feed meanwhile.
        """
        keys = self.keys(cluster)
        batch = self._start_batch(keys, epoch)
        batch.guard_field(keys.feeds, PRESENCE, feed_before)
        batch.add_command("HSET", keys.feeds, PRESENCE, pack_feed(feed_after))
        size = HEARTBEAT.itemsize
        if len(indices):
            batch.pad(keys.heartbeats, blank_rows(HEARTBEAT, 1).tobytes(), int(indices.max()) + 1)
        batch.write_rows(keys.heartbeats, 0, size, indices, rows.tobytes())
        # `expires_at` is the first field of a row.
        if tracked_counts is not None and len(indices):
            # Without a new version: the next heartbeat corrects a round that overwrites the value with an old one.
            batch.pad(keys.memory, blank_rows(MEMORY, 1).tobytes(), int(indices.max()) + 1)
            offset = MEMORY.fields["tracked_count"][1] if MEMORY.fields else 0
            batch.write_rows(keys.memory, offset, MEMORY.itemsize, indices, tracked_counts.tobytes())
        cache = self._caches.setdefault(cluster, ColumnCache()).attributes
        add_attributes(batch, keys, cache, epoch, indices, attributes)
        # An agent without any heartbeat has no row to expire: its index is beyond the column, or its row stays blank.
        batch.write_rows(
            keys.heartbeats,
            0,
            size,
            removed_agents,
            np.full(len(removed_agents), removed_at, "<f8").tobytes(),
        )
        return self._run_batch(batch, keys)

    def write_tunnels(
        self,
        cluster: str,
        epoch: str,
        proxy: int,
        *,
        feed_before: bytes,
        feed_after: FeedState,
        rows: Rows | None,
    ) -> bool:
        """Write the TUNNEL rows of a proxy (None: unchanged) and the place in its feed.

        While a full list is in progress (`feed_after.is_listing`), new rows are kept separately, and the old rows stay
        in use.
        Returns False and writes nothing when another process changed the feed meanwhile.
        """
        assert rows is None or rows.dtype == TUNNEL, "rows of another column"
        keys = self.keys(cluster)
        batch = self._start_batch(keys, epoch)
        batch.guard_field(keys.feeds, str(proxy), feed_before)
        batch.add_command("HSET", keys.feeds, str(proxy), pack_feed(feed_after))
        if rows is not None:
            batch.add_command(
                "HSET", keys.listings if feed_after.is_listing else keys.tunnels, str(proxy), rows.tobytes()
            )
            if not feed_after.is_listing:
                batch.add_command("HDEL", keys.listings, str(proxy))
        return self._run_batch(batch, keys)

    def write_feed(
        self, cluster: str, epoch: str, name: str, *, feed_before: bytes, feed_after: FeedState
    ) -> bool:
        """Write only the freshness of a feed. Returns False when another process changed the feed meanwhile."""
        return self.write_feeds(cluster, epoch, {name: (feed_before, feed_after)})

    def write_feeds(self, cluster: str, epoch: str, feeds: Mapping[str, tuple[bytes, FeedState]]) -> bool:
        """Write only the freshness of feeds, by name: (stored state, new state).

        Returns False and writes nothing when another process changed one of them meanwhile.
        """
        keys = self.keys(cluster)
        batch = self._start_batch(keys, epoch)
        for name, (feed_before, feed_after) in feeds.items():
            batch.guard_field(keys.feeds, name, feed_before)
            batch.add_command("HSET", keys.feeds, name, pack_feed(feed_after))
        return batch.is_empty or self._run_batch(batch, keys)

    def write_instances(
        self,
        cluster: str,
        epoch: str,
        *,
        resources: Mapping[int, InstanceResource] | None = None,
        polls: Mapping[int, Poll] | None = None,
        probed_at: float | None = None,
    ) -> None:
        """Write resources and polls by instance index, and the time of a successful self-probe."""
        keys = self.keys(cluster)
        batch = self._start_batch(keys, epoch)
        for index, resource in (resources or {}).items():
            batch.add_command("HSET", keys.resources, str(index), pack_resource(resource))
        for index, poll in (polls or {}).items():
            batch.add_command("HSET", keys.polls, str(index), pack_poll(poll))
        if probed_at is not None:
            batch.add_command("SET", keys.probe, repr(probed_at))
        if not batch.is_empty:
            self._run_batch(batch, keys)

    def set_retired(self, cluster: str, epoch: str, indices: Sequence[int], *, is_retired: bool) -> None:
        """Mark agents as retired or as reinstated. Raises RecordLostError, StateError."""

        row_indices = np.array(sorted(set(indices)), np.uint32)

        def mark(memory: Rows) -> npt.NDArray[np.uint32]:
            flags = memory["flags"][row_indices]
            memory["flags"][row_indices] = flags | RETIRED if is_retired else flags & ~np.uint8(RETIRED)
            return row_indices

        self._change_memory(cluster, epoch, int(row_indices.max()) + 1 if len(row_indices) else 0, mark)

    def expect_reconnects(self, cluster: str, until_by_agent: Mapping[str, float]) -> None:
        """Set until when requested reconnects run, by agent id; all other agents have none.

        Unknown ids are left out; unchanged agents are not written. Raises RecordLostError, StateError.
        """
        keys = self.keys(cluster)
        roster = self._rosters.read(keys.epoch, keys.agents)
        if not roster.epoch:
            raise RecordLostError(f"cluster {cluster} has no record")
        until_by_index = {
            roster.index_by_id[agent]: at
            for agent, at in until_by_agent.items()
            if agent in roster.index_by_id
        }

        def mark(memory: Rows) -> npt.NDArray[np.uint32]:
            working_until = np.zeros(len(memory))
            working_until[list(until_by_index)] = list(until_by_index.values())
            changed_rows = np.flatnonzero(memory["working_until"] != working_until).astype(np.uint32)
            memory["working_until"] = working_until
            return changed_rows

        self._change_memory(cluster, roster.epoch, max(until_by_index, default=-1) + 1, mark)

    def _change_memory(
        self, cluster: str, epoch: str, count: int, change: Callable[[Rows], npt.NDArray[np.uint32]]
    ) -> None:
        """Apply `change` to the memory of at least `count` agents; it returns the agents that it changed."""
        keys = self.keys(cluster)
        for _ in range(_MAX_ATTEMPTS):
            with map_redis_errors(), self.redis.pipeline(transaction=True) as pipe:
                pipe.get(keys.memory)
                pipe.get(keys.memory_version)
                blob, version = cast("list[bytes | None]", pipe.execute())
            memory = rows_of(blob, MEMORY, max(count, len(blob or b"") // MEMORY.itemsize)).copy()
            changed_rows = change(memory)
            if not len(changed_rows):
                return
            batch = self._start_batch(keys, epoch)
            batch.guard_value(keys.memory_version, version or b"")
            batch.pad(keys.memory, blank_rows(MEMORY, 1).tobytes(), count)
            batch.write_rows(keys.memory, 0, MEMORY.itemsize, changed_rows, memory[changed_rows].tobytes())
            batch.add_command("INCR", keys.memory_version)
            if self._run_batch(batch, keys):
                return
        raise StateError(f"cluster {cluster}: concurrent rounds kept changing the memory of agents")

    def commit(self, cluster: str, record: ClusterRecord, conclusion: Conclusion) -> bool:
        """Write the result of a round, once.

        Returns False and writes nothing when another round was concluded or the memory changed meanwhile.
        """
        keys = self.keys(cluster)
        batch = self._start_batch(keys, record.epoch)
        batch.guard_value(keys.concluded_round, str(record.header.round) if record.header.round else "")
        batch.guard_value(keys.memory_version, record.memory_version)
        batch.add_command("SET", keys.concluded_round, str(conclusion.header.round))
        header = pack_header(conclusion.header)
        has_new_rows = len(conclusion.verdicts) > record.header.row_count
        if has_new_rows or _is_mostly_changed(conclusion.changed_verdict_rows, conclusion.verdicts):
            batch.add_command("SET", keys.verdicts, header + conclusion.verdicts.tobytes())
        else:
            rows = conclusion.verdicts[conclusion.changed_verdict_rows].tobytes()
            batch.add_command("SETRANGE", keys.verdicts, 0, header)
            batch.write_rows(
                keys.verdicts, HEADER_SIZE, VERDICT.itemsize, conclusion.changed_verdict_rows, rows
            )
        for key, column, changed_rows in (
            (keys.memory, conclusion.memory, conclusion.changed_memory_rows),
            (keys.places, conclusion.places, conclusion.changed_place_rows),
        ):
            if has_new_rows or _is_mostly_changed(changed_rows, column):
                batch.add_command("SET", key, column.tobytes())
            else:
                # A record from before an upgrade has no places.
                batch.pad(key, blank_rows(column.dtype, 1).tobytes(), len(column))
                batch.write_rows(key, 0, column.dtype.itemsize, changed_rows, column[changed_rows].tobytes())
        if has_new_rows or len(conclusion.changed_memory_rows):
            batch.add_command("INCR", keys.memory_version)
        for index, spell in conclusion.spells.items():
            batch.add_command("HSET", keys.spells, str(index), pack_spell(spell))
        batch.add_command("DEL", keys.report_requests)
        for proxy, agents in conclusion.agents_to_query.items():
            batch.add_command("HSET", keys.report_requests, str(proxy), agents.astype("<u4").tobytes())
        for key in (keys.report_rows, keys.agent_reports) if len(conclusion.reports_to_delete) else ():
            batch.add_command("HDEL", key, *map(str, conclusion.reports_to_delete.tolist()))
        if conclusion.outbox_entry:
            batch.add_command("RPUSH", keys.outbox, conclusion.outbox_entry)
            batch.add_command("LTRIM", keys.outbox, -_OUTBOX_LIMIT, -1)
        if not self._run_batch(batch, keys):
            return False
        self._update_cache(cluster, record, conclusion)
        return True

    def _update_cache(self, cluster: str, record: ClusterRecord, conclusion: Conclusion) -> None:
        """Cache written columns. A changed memory is read again: Redis assigns its version."""
        cache = self._caches.get(cluster)
        if cache is not None:
            concluded_round = str(conclusion.header.round).encode()
            cache.header, cache.verdicts, cache.places = (
                conclusion.header,
                conclusion.verdicts,
                conclusion.places,
            )
            cache.versions = replace(cache.versions, verdicts=(record.epoch.encode(), concluded_round))

    def has_outbox_entries(self, cluster: str) -> bool:
        """Return whether results of rounds, or versions and labels, wait for the database.

        Raises StateUnavailableError.
        """
        keys = self.keys(cluster)
        with map_redis_errors():
            return bool(self.redis.exists(keys.outbox, keys.unsaved_attributes))

    def read_outbox(self, cluster: str, count: int) -> list[bytes]:
        """Return the oldest `count` results that wait for the database. Raises StateUnavailableError."""
        with map_redis_errors():
            return cast("list[bytes]", self.redis.lrange(self.keys(cluster).outbox, 0, count - 1))

    def remove_from_outbox(self, cluster: str, entry: bytes) -> None:
        """Remove a result that the database has stored. Raises StateUnavailableError."""
        with map_redis_errors():
            self.redis.lrem(self.keys(cluster).outbox, 1, entry)  # type: ignore[arg-type]  # bytes are a value too

    def _start_batch(self, keys: Keys, epoch: str) -> Batch:
        batch = Batch(self.redis)
        batch.guard_value(keys.epoch, epoch)
        return batch

    def _run_batch(self, batch: Batch, keys: Keys) -> bool:
        failed_guard = batch.run()
        if failed_guard == 1:
            raise RecordLostError(f"cluster {keys.cluster}: the record was made anew")
        return failed_guard == 0


def _is_mostly_changed(changed_rows: npt.NDArray[np.uint32], rows: Rows) -> bool:
    return len(changed_rows) > _WHOLE_SHARE * len(rows)
