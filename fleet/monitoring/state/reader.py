"""Read access to the record for pages, API, metrics and sockets, with the age applied.

docs/reference/record.md, "Reading".

When the newest round is older than `Timing.stale_after`, every agent that is not retired is unknown. `now` is passed
in; this module reads no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, cast

import numpy as np
from redis import Redis

from fleet.monitoring.agent_report import AgentReportResponse
from fleet.monitoring.classify import FleetFrame, prepare_frame
from fleet.monitoring.columns import PLACE, TUNNEL, VERDICT
from fleet.monitoring.evidence import Timing
from fleet.monitoring.state import RecordLostError
from fleet.monitoring.state.agent_reports import unpack_agent_response
from fleet.monitoring.state.attribute_store import AttributeCache
from fleet.monitoring.state.codec import HEADER_SIZE, RecordHeader, rows_of, unpack_header
from fleet.monitoring.state.connect import connect, map_redis_errors
from fleet.monitoring.state.identities import ExpiringIdentity, IdentityStore, IdentityValidity
from fleet.monitoring.state.keys import Keys
from fleet.monitoring.state.list_notices import ListNoticeStore
from fleet.monitoring.state.missing_capabilities import MissingCapabilityStore
from fleet.monitoring.state.record import empty_record, load_record
from fleet.monitoring.state.roster import Rosters
from fleet.monitoring.state.tables import (
    agent_view_of,
    agent_views_of,
    explanation_of,
    sort_instances,
    table_of,
)
from fleet.monitoring.views import (
    AgentView,
    Explanation,
    FleetTable,
    InstanceView,
    Snapshot,
    StreamHeader,
    Summary,
)
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.verdicts import NO_CAUSE, State

T = TypeVar("T")

#: Most attempts of a read, which starts over when the record is rebuilt meanwhile.
_MAX_ATTEMPTS = 3
#: Header of a cluster without a record.
_EMPTY_HEADER = RecordHeader(epoch="")


class Reader:
    """Read access to the record of every cluster. One object serves all threads of a process."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self._rosters = Rosters(redis)
        self._attributes: dict[str, AttributeCache] = {}
        # By cluster: (epoch, round, stale), the table of that moment, and its frame.
        self._tables: dict[str, tuple[tuple[str, int, bool], FleetTable, FleetFrame]] = {}

    def stream_header(self, cluster: str, now: float) -> StreamHeader:
        """Return the place in the event stream, and the counts. One small read. Raises StateUnavailableError."""
        header = self._record_header(cluster)
        stale = is_stale(header, now)
        return StreamHeader(
            cluster=cluster,
            epoch=header.epoch,
            seq=header.seq,
            layout_version=header.layout_version,
            agent_count=header.row_count,
            as_of=header.as_of or None,
            interval=header.interval,
            stale=stale,
            counts=counts_of(header, stale=stale),
        )

    def summary(self, cluster: str, now: float) -> Summary:
        """Return the fleet summary. One small read. Raises StateUnavailableError."""
        header = self._record_header(cluster)
        stale = is_stale(header, now)
        return Summary(
            cluster=cluster,
            as_of=header.as_of or None,
            interval=header.interval,
            stale=stale,
            counts=counts_of(header, stale=stale),
            agent_count=header.row_count,
            instance_count=header.instance_count,
        )

    def layout_version(self, cluster: str) -> str:
        """Return the version of the current layout. One small read. Raises StateUnavailableError."""
        return self._record_header(cluster).layout_version

    def snapshot(self, cluster: str, now: float) -> Snapshot:
        """Return every agent's state and place at one moment of the event stream. Raises StateUnavailableError."""
        keys = self._keys(cluster)
        with map_redis_errors(), self._redis.pipeline(transaction=True) as pipe:
            pipe.get(keys.verdicts)
            pipe.get(keys.places)
            blob, place_blob = cast("list[bytes | None]", pipe.execute())
        header = unpack_header(blob or b"") or _EMPTY_HEADER
        verdicts = rows_of(blob, VERDICT, header.row_count, offset=HEADER_SIZE)
        places = rows_of(place_blob, PLACE, header.row_count)
        states, causes = verdicts["state"], verdicts["cause"]
        stale = is_stale(header, now)
        if stale:
            states = np.where(states == State.RETIRED, np.uint8(State.RETIRED), np.uint8(State.UNKNOWN))
            causes = np.full(len(causes), NO_CAUSE, causes.dtype)
        return Snapshot(
            cluster=cluster,
            epoch=header.epoch,
            seq=header.seq,
            layout_version=header.layout_version,
            as_of=header.as_of or None,
            interval=header.interval,
            stale=stale,
            states=states.tobytes(),
            proxies=places["proxy"].tobytes(),
            auths=places["auth"].tobytes(),
            causes=causes.tobytes(),
            counts=counts_of(header, stale=stale),
        )

    def table(self, cluster: str, now: float) -> FleetTable:
        """Return all columns at one time; one small read while no new round is concluded.

        Raises StateUnavailableError.
        """
        header = self._record_header(cluster)
        stale = is_stale(header, now)
        key = (header.epoch, header.round, stale)
        cache_entry = self._tables.get(cluster)
        if cache_entry is None or cache_entry[0] != key:
            cache_entry = (key, *self._with_retries(lambda: self._build_table(cluster, now)))
            self._tables[cluster] = cache_entry
        return cache_entry[1]

    def instances(self, cluster: str, now: float) -> tuple[InstanceView, ...]:
        """Return every instance that was ever seen, auths first, by name. Raises StateUnavailableError."""
        return sort_instances(self.table(cluster, now).instances.values())

    def agent(self, table: FleetTable, index: int) -> AgentView:
        """Return an agent of the table. Raises IndexError."""
        return agent_view_of(table, index, self._frame_of(table))

    def agents(self, table: FleetTable, indices: Iterable[int]) -> Iterator[AgentView]:
        """Yield agents of the table, also when newer rounds are concluded meanwhile. Raises IndexError."""
        return agent_views_of(table, indices, self._frame_of(table))

    def explain(self, cluster: str, agent_id: str, now: float) -> Explanation | None:
        """Return an agent with the data that its state was derived from; None for an unknown id."""
        table = self.table(cluster, now)
        keys = self._keys(cluster)
        index = self._rosters.read(keys.epoch, keys.agents).index_by_id.get(agent_id)
        if index is None or index >= len(table.ids) or table.ids[index] != agent_id:
            return None
        explanation = explanation_of(table, index, self._frame_of(table))
        opened_at = self._read_tunnel_open_times(keys, index, explanation.evidence.tunnels)
        response = self._read_agent_response(keys, index)
        response_instances = _instances_in(response, table) if response is not None else {}
        return replace(
            explanation,
            opened_at_by_proxy=opened_at,
            agent_report_response=response,
            instances={**explanation.instances, **response_instances},
        )

    def missing_capabilities(self, cluster: str) -> dict[Capability, str]:
        """Return what the newest round found that the cluster's source cannot do. Raises StateUnavailableError."""
        return MissingCapabilityStore(self._redis, self._prefix).read(cluster)

    def list_notice(self, cluster: str) -> str:
        """Return what people must know of the cluster's lists, as a sentence; often empty.

        Raises StateUnavailableError.
        """
        return ListNoticeStore(self._redis, self._prefix).read(cluster)

    def identity(self, cluster: str) -> IdentityValidity | None:
        """Return the identity with which workers read a cluster. Raises StateUnavailableError."""
        return IdentityStore(self._redis, self._prefix).read(cluster)

    def expiring_identity(self, cluster: str, now: float) -> ExpiringIdentity | None:
        """Return the identity if it must be renewed. Raises StateUnavailableError."""
        validity = self.identity(cluster)
        if validity is None or not validity.is_expiring(now):
            return None
        return ExpiringIdentity(validity.expires_at, validity.is_expired(now))

    def agent_responses(self, cluster: str) -> dict[int, AgentReportResponse]:
        """Return recent agent reports by agent index, at most 2,000. Raises StateUnavailableError."""
        with map_redis_errors():
            blobs = cast("dict[bytes, bytes]", self._redis.hgetall(self._keys(cluster).agent_reports))
        return {int(index): unpack_agent_response(text) for index, text in blobs.items()}

    def _read_agent_response(self, keys: Keys, agent: int) -> AgentReportResponse | None:
        """Return the report of an agent, or None. Reports belong to the epoch, like indices."""
        with map_redis_errors():
            blob = self._redis.hget(keys.agent_reports, str(agent))
        return unpack_agent_response(blob) if isinstance(blob, bytes) else None

    def _read_tunnel_open_times(self, keys: Keys, agent: int, proxies: Sequence[int]) -> dict[int, float]:
        """Return when an agent's tunnels were opened, by proxy index. Tables do not include it."""
        if not proxies:
            return {}
        with map_redis_errors():
            blobs = cast(
                "list[bytes | None]", self._redis.hmget(keys.tunnels, [str(proxy) for proxy in proxies])
            )
        opened_at = {}
        for proxy, blob in zip(proxies, blobs, strict=True):
            rows = np.frombuffer(blob or b"", TUNNEL)
            agent_times = rows["opened_at"][rows["agent"] == agent]
            if len(agent_times):
                opened_at[proxy] = float(agent_times[0])
        return opened_at

    def _build_table(self, cluster: str, now: float) -> tuple[FleetTable, FleetFrame]:
        try:
            record = load_record(
                *(self._redis, self._rosters, self._keys(cluster)),
                only_classified=True,
                attribute_cache=self._attributes.setdefault(cluster, AttributeCache()),
            )
        except RecordLostError:
            if self._record_header(cluster).epoch:
                raise
            record = empty_record(cluster)
        timing = Timing(round_interval=record.header.interval)
        table = table_of(record, now, timing, stale=is_stale(record.header, now))
        # In the words of the moment when the round concluded: its predictions were made then.
        return table, prepare_frame(table.fleet, table.as_of or now)

    def _frame_of(self, table: FleetTable) -> FleetFrame:
        cache_entry = self._tables.get(table.cluster)
        if cache_entry is not None and cache_entry[1] is table:
            return cache_entry[2]
        return prepare_frame(table.fleet, table.as_of or 0.0)

    def _keys(self, cluster: str) -> Keys:
        return Keys(self._prefix, cluster)

    def _record_header(self, cluster: str) -> RecordHeader:
        with map_redis_errors():
            blob = self._redis.getrange(self._keys(cluster).verdicts, 0, HEADER_SIZE - 1)
        return unpack_header(cast("bytes", blob)) or _EMPTY_HEADER

    def _with_retries(self, read: Callable[[], T]) -> T:
        for _ in range(_MAX_ATTEMPTS - 1):
            try:
                return read()
            except RecordLostError:
                continue
        return read()


def _instances_in(response: AgentReportResponse, table: FleetTable) -> dict[int, InstanceView]:
    """Return the instances that a report names."""
    report = response.report
    ids: set[str] = set()
    if report is not None:
        ids = {*report.tracker.claimed_proxies, *(proxy.proxy_id for proxy in report.tracker.proxies)}
    return {
        index: view
        for index, view in table.instances.items()
        if index == response.proxy or view.facts.id in ids
    }


def open_reader(url: str, prefix: str) -> Reader:
    """Return a reader with its own connections, opened at first use."""
    return Reader(connect(url), prefix)


def is_stale(header: RecordHeader, now: float) -> bool:
    """Return whether the newest round is too old, or there is none."""
    return not header.as_of or now - header.as_of > Timing(round_interval=header.interval).stale_after


def counts_of(header: RecordHeader, *, stale: bool) -> Mapping[State, int]:
    """Return the number of agents by state; with stale data every state but `retired` counts as unknown."""
    if not stale:
        return dict(zip(State, header.counts, strict=True))
    retired_count = header.counts[State.RETIRED]
    return {
        **dict.fromkeys(State, 0),
        State.UNKNOWN: header.row_count - retired_count,
        State.RETIRED: retired_count,
    }
