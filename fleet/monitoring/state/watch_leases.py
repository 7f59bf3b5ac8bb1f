"""Which worker watches a cluster, and the changes that its watch has received: docs/reference/record.md.

A lease expires unless its holder renews it. The token of a lease is the epoch of its changes, so a holder that lost the
lease can write nothing that a round would read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from redis import Redis

from fleet.monitoring.state.connect import map_redis_errors
from fleet.monitoring.state.keys import Keys
from fleet.monitoring.state.missing_capabilities import pack_missing, unpack_missing
from fleet.vocabulary.capabilities import Capability

#: ARGV: new token, expected token (empty: no lease), milliseconds.
_TAKE = """
if (redis.call('HGET', KEYS[1], 'token') or '') ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'ready', '0')
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
"""
#: ARGV: token, milliseconds, missing capabilities, revision, changes (empty: none), address.
#: Returns -1 after the lease was lost.
_RENEW = """
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return -1 end
redis.call('HSET', KEYS[1], 'ready', '1', 'missing', ARGV[3], 'address', ARGV[6])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if ARGV[5] ~= '' then redis.call('XADD', KEYS[2], ARGV[4] .. '-0', 'c', ARGV[5]) end
redis.call('PEXPIRE', KEYS[2], ARGV[2] * 4)
return redis.call('XLEN', KEYS[2])
"""
#: ARGV: token.
_RELEASE = """
if redis.call('HGET', KEYS[1], 'token') == ARGV[1] then redis.call('DEL', KEYS[1]) end
redis.call('DEL', KEYS[2])
return 0
"""


@dataclass(frozen=True, slots=True)
class WatchLease:
    """The lease of a cluster's watch."""

    token: str
    #: The complete list of the watch was recorded, and changes are received.
    is_ready: bool
    #: Of the watched instance, host:port; only of a ready watch.
    address: str = ""
    #: Capabilities that the watch found missing, with the reason.
    missing_capabilities: Mapping[Capability, str] = field(default_factory=dict)
    #: Changes after the revision that was asked for, by revision, ascending; only of a ready watch of the same epoch.
    changes: Mapping[int, bytes] = field(default_factory=dict)


class WatchLeases:
    """Leases of every cluster. Every method raises StateUnavailableError."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self._take = redis.register_script(_TAKE)
        self._renew = redis.register_script(_RENEW)
        self._release = redis.register_script(_RELEASE)

    def read(self, cluster: str, epoch: str, revision: int) -> WatchLease | None:
        """Return the lease with the changes after a revision of an epoch, and delete those up to it.

        None without a lease.
        """
        keys = Keys(self._prefix, cluster)
        with map_redis_errors():
            fields = cast("dict[bytes, bytes]", self._redis.hgetall(keys.watch_lease))
            if not fields:
                return None
            token, is_ready = fields[b"token"].decode(), fields[b"ready"] == b"1"
            address = fields.get(b"address", b"").decode()
            if not is_ready or token != epoch:
                return WatchLease(token, is_ready, address)
            with self._redis.pipeline(transaction=True) as pipe:
                stream = keys.watch_changes(token)
                pipe.xtrim(stream, minid=str(revision + 1), approximate=False)
                pipe.xrange(stream)
                entries = cast("list[tuple[bytes, dict[bytes, bytes]]]", pipe.execute()[1])
        changes = {int(entry_id.partition(b"-")[0]): content[b"c"] for entry_id, content in entries}
        return WatchLease(token, is_ready, address, unpack_missing(fields.get(b"missing")), changes)

    def peek(self, cluster: str) -> WatchLease | None:
        """Return the lease without its changes, and change nothing; None without a lease."""
        with map_redis_errors():
            fields = cast("dict[bytes, bytes]", self._redis.hgetall(Keys(self._prefix, cluster).watch_lease))
        if not fields:
            return None
        is_ready, address = fields[b"ready"] == b"1", fields.get(b"address", b"").decode()
        return WatchLease(fields[b"token"].decode(), is_ready, address)

    def take(self, cluster: str, token: str, instead_of: str, seconds: float) -> bool:
        """Take the lease for `seconds`, if the token of the current one is `instead_of`; empty: if there is none."""
        with map_redis_errors():
            return bool(
                self._take(
                    keys=[Keys(self._prefix, cluster).watch_lease],
                    args=[token, instead_of, str(_milliseconds(seconds))],
                )
            )

    def renew(
        self,
        cluster: str,
        token: str,
        address: str,
        seconds: float,
        missing_capabilities: Mapping[Capability, str],
        revision: int,
        changes: bytes = b"",
    ) -> int | None:
        """Renew the lease of a watch at an address and add changes; return how many wait for a round.

        None after the lease was lost: nothing is written.
        """
        with map_redis_errors():
            milliseconds, missing_blob = str(_milliseconds(seconds)), pack_missing(missing_capabilities)
            reply = self._renew(
                keys=self._keys_of(cluster, token),
                args=[token, milliseconds, missing_blob, str(revision), changes, address],
            )
        count = int(reply)
        return None if count < 0 else count

    def release(self, cluster: str, token: str) -> None:
        """End the lease and delete its changes; the lease of another token stays."""
        with map_redis_errors():
            self._release(keys=self._keys_of(cluster, token), args=[token])

    def _keys_of(self, cluster: str, token: str) -> list[str]:
        keys = Keys(self._prefix, cluster)
        return [keys.watch_lease, keys.watch_changes(token)]


def _milliseconds(seconds: float) -> int:
    return max(int(seconds * 1000), 1)
