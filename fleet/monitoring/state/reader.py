"""Read the record, with age applied: what pages, API, metrics and sockets show. docs/record.md, "Reading".

A round that concluded longer ago than `Timing.stale_after` reads as unknown, all but retired agents, whoever asks and
however many pollers are dead. `now` is passed in; nothing here looks at a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, cast

import numpy as np
from redis import Redis

from fleet.monitoring.agent_report import Answer
from fleet.monitoring.classify import FleetFrame, prepare
from fleet.monitoring.columns import MEMORY, NO_INSTANCE, TUNNEL, VERDICT
from fleet.monitoring.evidence import Timing
from fleet.monitoring.state import RecordLost
from fleet.monitoring.state.agent_reports import unpack_answer
from fleet.monitoring.state.codec import HEADER_SIZE, Header, rows_of, unpack_header
from fleet.monitoring.state.connect import connect, reaching
from fleet.monitoring.state.keys import Keys
from fleet.monitoring.state.record import load, nothing
from fleet.monitoring.state.roster import Rosters
from fleet.monitoring.state.tables import explanation_of, table_of, view_of
from fleet.monitoring.views import (
    AgentView,
    Explanation,
    FleetTable,
    InstanceView,
    Layout,
    Snapshot,
    StreamHeader,
    Summary,
)
from fleet.vocabulary.naming import natural
from fleet.vocabulary.verdicts import State

T = TypeVar("T")

#: How often a read starts over because the record was made anew under it.
_TRIES = 3
#: A cluster without a record yet.
_NOTHING = Header(epoch="")


class Reader:
    """The record of every cluster. One object serves all threads of a process."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self._rosters = Rosters(redis)
        # By cluster: (epoch, round, stale), the table of that moment, and its frame.
        self._tables: dict[str, tuple[tuple[str, int, bool], FleetTable, FleetFrame]] = {}

    def header(self, cluster: str, now: float) -> StreamHeader:
        """Where the event stream is, and the counts. One small read. Raises StateUnavailable."""
        header = self._header(cluster)
        stale = is_stale(header, now)
        return StreamHeader(
            cluster=cluster,
            epoch=header.epoch,
            seq=header.seq,
            layout_version=header.layout_version,
            agents=header.rows,
            as_of=header.as_of or None,
            interval=header.interval,
            stale=stale,
            counts=counts_of(header, stale=stale),
        )

    def summary(self, cluster: str, now: float) -> Summary:
        """The fleet in ten numbers. One small read. Raises StateUnavailable."""
        header = self._header(cluster)
        stale = is_stale(header, now)
        return Summary(
            cluster=cluster,
            as_of=header.as_of or None,
            interval=header.interval,
            stale=stale,
            counts=counts_of(header, stale=stale),
            agents=header.rows,
            instances=header.instances,
        )

    def layout_version(self, cluster: str) -> str:
        """The version `layout` would have now. One small read. Raises StateUnavailable."""
        return self._header(cluster).layout_version

    def snapshot(self, cluster: str, now: float) -> Snapshot:
        """Every agent's state at one moment of the event stream. Raises StateUnavailable."""
        with reaching():
            blob = cast("bytes | None", self._redis.get(self._keys(cluster).verdicts))
        header = unpack_header(blob or b"") or _NOTHING
        states = rows_of(blob, VERDICT, header.rows, offset=HEADER_SIZE)["state"]
        stale = is_stale(header, now)
        if stale:
            states = np.where(states == State.RETIRED, np.uint8(State.RETIRED), np.uint8(State.UNKNOWN))
        return Snapshot(
            cluster=cluster,
            epoch=header.epoch,
            seq=header.seq,
            layout_version=header.layout_version,
            as_of=header.as_of or None,
            interval=header.interval,
            stale=stale,
            states=states.tobytes(),
            counts=counts_of(header, stale=stale),
        )

    def layout(self, cluster: str) -> Layout:
        """Who stands where on the map. Raises StateUnavailable."""
        return self._retried(lambda: self._layout(cluster))

    def table(self, cluster: str, now: float) -> FleetTable:
        """All columns at one moment. Costs one small read while no round has concluded. Raises StateUnavailable."""
        header = self._header(cluster)
        stale = is_stale(header, now)
        key = (header.epoch, header.round, stale)
        kept = self._tables.get(cluster)
        if kept is None or kept[0] != key:
            kept = (key, *self._retried(lambda: self._build(cluster, now)))
            self._tables[cluster] = kept
        return kept[1]

    def instances(self, cluster: str, now: float) -> tuple[InstanceView, ...]:
        """All instances ever seen, auths first, by name. Raises StateUnavailable."""
        views = self.table(cluster, now).instances.values()
        return tuple(
            sorted(views, key=lambda view: (view.facts.kind, natural(view.facts.name), view.facts.index))
        )

    def agent(self, table: FleetTable, index: int) -> AgentView:
        """One agent of the table. Raises IndexError."""
        return view_of(table, index, self._frame(table))

    def agents(self, table: FleetTable, indices: Iterable[int]) -> Iterator[AgentView]:
        """Many agents of the table, one by one, also when newer rounds come meanwhile. Raises IndexError."""
        frame = self._frame(table)
        return (view_of(table, index, frame) for index in indices)

    def explain(self, cluster: str, agent_id: str, now: float) -> Explanation | None:
        """One agent with everything its verdict rests on; None for an id nobody has heard of."""
        table = self.table(cluster, now)
        keys = self._keys(cluster)
        index = self._rosters.read(keys.epoch, keys.agents).index.get(agent_id)
        if index is None or index >= len(table.ids) or table.ids[index] != agent_id:
            return None
        found = explanation_of(table, index, self._frame(table))
        opened_at = self._opened(keys, index, found.evidence.tunnels)
        answer = self._answer(keys, index)
        named = _named(answer, table) if answer is not None else {}
        return replace(found, opened_at=opened_at, answer=answer, instances={**found.instances, **named})

    def answers(self, cluster: str) -> dict[int, Answer]:
        """What agents said of themselves lately, by agent index: 2,000 at most. Raises StateUnavailable."""
        with reaching():
            found = cast("dict[bytes, bytes]", self._redis.hgetall(self._keys(cluster).answers))
        return {int(index): unpack_answer(text) for index, text in found.items()}

    def _answer(self, keys: Keys, agent: int) -> Answer | None:
        """What an agent said of itself; it goes with its record, as the indices do."""
        with reaching():
            found = self._redis.hget(keys.answers, str(agent))
        return unpack_answer(found) if isinstance(found, bytes) else None

    def _opened(self, keys: Keys, agent: int, proxies: Sequence[int]) -> dict[int, float]:
        """When an agent's tunnels were opened. Tables leave that out: it is asked for one agent at a time."""
        if not proxies:
            return {}
        with reaching():
            blobs = cast("list[bytes | None]", self._redis.hmget(keys.tunnels, [str(at) for at in proxies]))
        found = {}
        for proxy, blob in zip(proxies, blobs, strict=True):
            rows = np.frombuffer(blob or b"", TUNNEL)
            mine = rows["opened_at"][rows["agent"] == agent]
            if len(mine):
                found[proxy] = float(mine[0])
        return found

    def _build(self, cluster: str, now: float) -> tuple[FleetTable, FleetFrame]:
        try:
            record = load(self._redis, self._rosters, self._keys(cluster), concluded=True)
        except RecordLost:
            if self._header(cluster).epoch:
                raise
            record = nothing(cluster)
        timing = Timing(round_interval=record.header.interval)
        table = table_of(record, now, timing, stale=is_stale(record.header, now))
        # In the words of the moment when the round concluded: its predictions were made then.
        return table, prepare(table.fleet, table.as_of or now)

    def _frame(self, table: FleetTable) -> FleetFrame:
        kept = self._tables.get(table.cluster)
        if kept is not None and kept[1] is table:
            return kept[2]
        return prepare(table.fleet, table.as_of or 0.0)

    def _layout(self, cluster: str) -> Layout:
        keys = self._keys(cluster)
        with reaching(), self._redis.pipeline(transaction=True) as pipe:
            pipe.getrange(keys.verdicts, 0, HEADER_SIZE - 1)
            pipe.get(keys.memory)
            head, memory = cast("list[bytes | None]", pipe.execute())
        header = unpack_header(head or b"") or _NOTHING
        agents = self._rosters.read(keys.epoch, keys.agents)
        instances = self._rosters.read(keys.epoch, keys.instances)
        if header.rows and not agents.epoch == instances.epoch == header.epoch:
            raise RecordLost(f"cluster {cluster}: the record was made anew")
        homes = rows_of(memory, MEMORY, header.rows)["home"]
        # By instance index: instances are numbered in the order in which they were first recorded.
        blocks = [int(index) for index in np.unique(homes) if index != NO_INSTANCE]
        place = np.full(NO_INSTANCE + 1, -1, np.int32)
        place[blocks] = np.arange(len(blocks))
        ids, names = instances.column(0), instances.column(2)
        return Layout(
            cluster=cluster,
            version=header.layout_version,
            ids=agents.first(0, header.rows),
            names=agents.first(1, header.rows),
            homes=tuple(place[homes].tolist()),
            blocks=tuple((ids[index], names[index]) for index in blocks),
        )

    def _keys(self, cluster: str) -> Keys:
        return Keys(self._prefix, cluster)

    def _header(self, cluster: str) -> Header:
        with reaching():
            blob = self._redis.getrange(self._keys(cluster).verdicts, 0, HEADER_SIZE - 1)
        return unpack_header(cast("bytes", blob)) or _NOTHING

    def _retried(self, read: Callable[[], T]) -> T:
        for _ in range(_TRIES - 1):
            try:
                return read()
            except RecordLost:
                continue
        return read()


def _named(answer: Answer, table: FleetTable) -> dict[int, InstanceView]:
    """The instances an answer speaks of."""
    report = answer.report
    ids: set[str] = set()
    if report is not None:
        ids = {*report.tracker.claimed, *(proxy.proxy_id for proxy in report.tracker.proxies)}
    return {at: view for at, view in table.instances.items() if at == answer.proxy or view.facts.id in ids}


def open_reader(url: str, prefix: str) -> Reader:
    """A reader with connections of its own, opened when they are first needed."""
    return Reader(connect(url), prefix)


def is_stale(header: Header, now: float) -> bool:
    """The newest round concluded too long ago, or none ever did."""
    return not header.as_of or now - header.as_of > Timing(round_interval=header.interval).stale_after


def counts_of(header: Header, *, stale: bool) -> Mapping[State, int]:
    """Agents by state; from stale data only that they are retired can be said."""
    if not stale:
        return dict(zip(State, header.counts, strict=True))
    retired = header.counts[State.RETIRED]
    return {**dict.fromkeys(State, 0), State.UNKNOWN: header.rows - retired, State.RETIRED: retired}
