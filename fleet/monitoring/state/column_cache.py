"""Columns that a process caches between rounds, so that it reads only changed ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from redis import Redis

from fleet.monitoring.columns import HEARTBEAT, MEMORY, PLACE, VERDICT
from fleet.monitoring.state.attribute_store import AttributeCache
from fleet.monitoring.state.codec import (
    HEADER_SIZE,
    FeedState,
    RecordHeader,
    Rows,
    blank_rows,
    rows_of,
    unpack_header,
)
from fleet.monitoring.state.connect import map_redis_errors
from fleet.monitoring.state.keys import Keys

_Version = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class ColumnVersions:
    """Versions of columns. Rows are written together with their place in their feed."""

    heartbeats: _Version
    #: Includes the version of the heartbeats, because tracked counts are written with them.
    memory: _Version
    #: Of verdicts and places.
    verdicts: _Version
    tunnels: Mapping[int, _Version]

    @classmethod
    def of(
        cls,
        epoch: bytes,
        memory_version: bytes,
        concluded_round: bytes,
        presence_feed: FeedState,
        tunnel_feeds: Mapping[int, FeedState],
    ) -> ColumnVersions:
        """Return the versions from the small values of the record."""
        heartbeats = (
            epoch,
            presence_feed.epoch,
            presence_feed.revision,
            presence_feed.is_listing,
            presence_feed.parity,
        )
        return cls(
            heartbeats=heartbeats,
            memory=(epoch, memory_version, heartbeats),
            verdicts=(epoch, concluded_round),
            tunnels={
                proxy: (epoch, state.epoch, state.revision, state.is_listing)
                for proxy, state in tunnel_feeds.items()
            },
        )


_NO_VERSION: _Version = ()


@dataclass(slots=True)
class ColumnCache:
    """Cached columns of one cluster, with their versions."""

    header: RecordHeader | None = None
    heartbeats: Rows = field(default_factory=lambda: blank_rows(HEARTBEAT, 0))
    memory: Rows = field(default_factory=lambda: blank_rows(MEMORY, 0))
    verdicts: Rows = field(default_factory=lambda: blank_rows(VERDICT, 0))
    places: Rows = field(default_factory=lambda: blank_rows(PLACE, 0))
    tunnels: dict[int, bytes] = field(default_factory=dict)
    attributes: AttributeCache = field(default_factory=AttributeCache)
    versions: ColumnVersions = ColumnVersions(_NO_VERSION, _NO_VERSION, _NO_VERSION, {})

    def refresh(self, redis: Redis, keys: Keys, new_versions: ColumnVersions) -> ColumnCache:
        """Read the columns whose version has changed. Raises StateUnavailableError."""
        old_versions = self.versions
        proxies = [
            proxy
            for proxy, version in new_versions.tunnels.items()
            if old_versions.tunnels.get(proxy) != version
        ]
        with map_redis_errors(), redis.pipeline(transaction=True) as pipe:
            for key, is_current in (
                (keys.heartbeats, old_versions.heartbeats == new_versions.heartbeats),
                (keys.memory, old_versions.memory == new_versions.memory),
                (keys.verdicts, old_versions.verdicts == new_versions.verdicts),
                (keys.places, old_versions.verdicts == new_versions.verdicts),
            ):
                if not is_current:
                    pipe.get(key)
            if proxies:
                pipe.hmget(keys.tunnels, [str(proxy) for proxy in proxies])
            replies = iter(pipe.execute())
        if old_versions.heartbeats != new_versions.heartbeats:
            self.heartbeats = _decode_rows(next(replies), self.heartbeats)
        if old_versions.memory != new_versions.memory:
            self.memory = _decode_rows(next(replies), self.memory)
        if old_versions.verdicts != new_versions.verdicts:
            blob = next(replies) or b""
            self.header = unpack_header(blob)
            self.verdicts = rows_of(
                blob, VERDICT, self.header.row_count if self.header else 0, offset=HEADER_SIZE
            )
            self.places = _decode_rows(next(replies), self.places)
        if proxies:
            self.tunnels.update(zip(proxies, (blob or b"" for blob in next(replies)), strict=True))
        for proxy in set(self.tunnels) - set(new_versions.tunnels):
            del self.tunnels[proxy]
        self.versions = new_versions
        return self


def _decode_rows(blob: bytes | None, previous_rows: Rows) -> Rows:
    return rows_of(blob, previous_rows.dtype, len(blob or b"") // previous_rows.dtype.itemsize)
