"""Columns one process keeps between rounds, so that it reads only those that somebody changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from redis import Redis

from fleet.monitoring.columns import HEARTBEAT, MEMORY, VERDICT
from fleet.monitoring.state.codec import HEADER_SIZE, FeedState, Header, Rows, blank, rows_of, unpack_header
from fleet.monitoring.state.connect import reaching
from fleet.monitoring.state.keys import Keys

_Version = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Versions:
    """What says that a column is another one. Rows are written together with their place in the feed they came from."""

    heartbeats: _Version
    #: With that of the heartbeats: what agents track is written with these.
    memory: _Version
    verdicts: _Version
    tunnels: Mapping[int, _Version]

    @classmethod
    def of(
        cls, epoch: bytes, memory: bytes, newest: bytes, presence: FeedState, tunnels: Mapping[int, FeedState]
    ) -> Versions:
        """From the record's small values."""
        heartbeats = (epoch, presence.epoch, presence.revision, presence.listing, presence.parity)
        return cls(
            heartbeats=heartbeats,
            memory=(epoch, memory, heartbeats),
            verdicts=(epoch, newest),
            tunnels={
                proxy: (epoch, state.epoch, state.revision, state.listing) for proxy, state in tunnels.items()
            },
        )


_NEVER: _Version = ()


@dataclass(slots=True)
class Kept:
    """Columns of one cluster, and which version each is of."""

    header: Header | None = None
    heartbeats: Rows = field(default_factory=lambda: blank(HEARTBEAT, 0))
    memory: Rows = field(default_factory=lambda: blank(MEMORY, 0))
    verdicts: Rows = field(default_factory=lambda: blank(VERDICT, 0))
    tunnels: dict[int, bytes] = field(default_factory=dict)
    versions: Versions = Versions(_NEVER, _NEVER, _NEVER, {})

    def refresh(self, redis: Redis, keys: Keys, wanted: Versions) -> Kept:
        """Read the columns whose version is not the wanted one. Raises StateUnavailable."""
        have = self.versions
        proxies = [proxy for proxy, version in wanted.tunnels.items() if have.tunnels.get(proxy) != version]
        with reaching(), redis.pipeline(transaction=True) as pipe:
            for key, same in (
                (keys.heartbeats, have.heartbeats == wanted.heartbeats),
                (keys.memory, have.memory == wanted.memory),
                (keys.verdicts, have.verdicts == wanted.verdicts),
            ):
                if not same:
                    pipe.get(key)
            if proxies:
                pipe.hmget(keys.tunnels, [str(proxy) for proxy in proxies])
            answers = iter(pipe.execute())
        if have.heartbeats != wanted.heartbeats:
            self.heartbeats = _all(next(answers), self.heartbeats)
        if have.memory != wanted.memory:
            self.memory = _all(next(answers), self.memory)
        if have.verdicts != wanted.verdicts:
            blob = next(answers) or b""
            self.header = unpack_header(blob)
            self.verdicts = rows_of(blob, VERDICT, self.header.rows if self.header else 0, offset=HEADER_SIZE)
        if proxies:
            self.tunnels.update(zip(proxies, (blob or b"" for blob in next(answers)), strict=True))
        for proxy in set(self.tunnels) - set(wanted.tunnels):
            del self.tunnels[proxy]
        self.versions = wanted
        return self


def _all(blob: bytes | None, like: Rows) -> Rows:
    return rows_of(blob, like.dtype, len(blob or b"") // like.dtype.itemsize)
