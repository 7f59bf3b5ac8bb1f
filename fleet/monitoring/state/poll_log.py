"""How the newest rounds of a cluster went: its rounds, their shards, and feeds that started over.

For *Data health*: docs/reference/data-health.md. Lists of limited length that expire; independent of the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, TypeVar, cast

from redis import Redis

from fleet.monitoring.state.connect import map_redis_errors
from fleet.monitoring.state.keys import Keys

#: Most entries of each list: an hour of rounds every 5 s.
MAX_ROUNDS, MAX_SHARDS, MAX_FEED_RESETS = 720, 720, 200
#: Seconds without a new entry until a list is deleted: people look at it hours after the rounds stopped.
_TTL_SECONDS = 86_400
Entry = TypeVar("Entry")


class FeedResetReason(StrEnum):
    """Why a feed started over, so that changes between two rounds may have been missed."""

    #: The instance restarted, or another one answers: its revisions begin anew.
    NEW_EPOCH = "new-epoch"
    #: The instance no longer had the changes since the last revision.
    GAP = "gap"
    #: Another worker recorded the feed meanwhile, so this answer was dropped.
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class RoundEntry:
    """A round that was concluded."""

    number: int
    #: When a worker started it, and when it was concluded, seconds since the epoch.
    started_at: float
    ended_at: float
    #: The process that enqueued the round: `gen4711@host`; empty if it is not known.
    scheduler: str = ""
    #: When it was enqueued; 0: not known.
    enqueued_at: float = 0.0
    #: Every shard was polled; otherwise the next round concluded what had been recorded.
    is_complete: bool = True

    @property
    def seconds(self) -> float:
        """Return the duration."""
        return max(0.0, self.ended_at - self.started_at)


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """A shard that a worker polled."""

    round_number: int
    shard: int
    #: `host:pid` of the worker.
    worker: str
    ended_at: float
    seconds: float
    target_count: int
    failed_count: int
    probe_succeeded: bool


@dataclass(frozen=True, slots=True)
class FeedReset:
    """A feed that started over."""

    at: float
    #: `presence`, or the id of a proxy.
    feed: str
    reason: FeedResetReason


class PollLog:
    """The lists of every cluster. Every method raises StateUnavailableError."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def add_round(self, cluster: str, entry: RoundEntry) -> None:
        """Add a round; the oldest one is dropped."""
        self._add(Keys(self._prefix, cluster).round_log, asdict(entry), MAX_ROUNDS)

    def add_shard(self, cluster: str, entry: ShardEntry) -> None:
        """Add a polled shard; the oldest one is dropped."""
        self._add(Keys(self._prefix, cluster).shard_log, asdict(entry), MAX_SHARDS)

    def add_feed_reset(self, cluster: str, entry: FeedReset) -> None:
        """Add a feed that started over; the oldest one is dropped."""
        self._add(Keys(self._prefix, cluster).feed_resets, asdict(entry), MAX_FEED_RESETS)

    def read_rounds(self, cluster: str) -> tuple[RoundEntry, ...]:
        """Return the newest rounds, newest first."""
        return self._read(Keys(self._prefix, cluster).round_log, RoundEntry)

    def read_shards(self, cluster: str) -> tuple[ShardEntry, ...]:
        """Return the newest shards, newest first."""
        return self._read(Keys(self._prefix, cluster).shard_log, ShardEntry)

    def read_feed_resets(self, cluster: str) -> tuple[FeedReset, ...]:
        """Return the newest feeds that started over, newest first."""
        return self._read(Keys(self._prefix, cluster).feed_resets, FeedReset)

    def _add(self, key: str, document: dict[str, Any], max_count: int) -> None:
        blob = json.dumps(document, separators=(",", ":"))
        with map_redis_errors(), self._redis.pipeline(transaction=False) as pipe:
            pipe.lpush(key, blob)
            pipe.ltrim(key, 0, max_count - 1)
            pipe.expire(key, _TTL_SECONDS)
            pipe.execute()

    def _read(self, key: str, entry_type: type[Entry]) -> tuple[Entry, ...]:
        with map_redis_errors():
            blobs = cast("list[bytes]", self._redis.lrange(key, 0, -1))
        return tuple(_unpack(blobs, entry_type))


def _unpack(blobs: list[bytes], entry_type: type[Entry]) -> Iterator[Entry]:
    """Yield the entries, without those of another version."""
    for blob in blobs:
        fields = json.loads(blob)
        if fields.keys() == entry_type.__dataclass_fields__.keys():  # type: ignore[attr-defined] # all are dataclasses
            if "reason" in fields:
                fields["reason"] = FeedResetReason(fields["reason"])
            yield entry_type(**fields)
