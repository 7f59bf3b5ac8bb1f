"""What people must know of the lists of a cluster, such as that they may be old: a sentence for each cluster.

Like the missing capabilities it outlives the record's epochs.
"""

from __future__ import annotations

from typing import cast

from redis import Redis

from fleet.monitoring.state.connect import map_redis_errors
from fleet.monitoring.state.keys import Keys

#: Characters of a stored sentence, which contains an address.
_MAX_LENGTH = 500


class ListNoticeStore:
    """Notices of every cluster."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def write(self, cluster: str, sentence: str) -> None:
        """Store the notice of a cluster if it changed; empty: none. Raises StateUnavailableError."""
        key = Keys(self._prefix, cluster).list_notice
        if self.read(cluster) == sentence[:_MAX_LENGTH]:
            return
        with map_redis_errors():
            if sentence:
                self._redis.set(key, sentence[:_MAX_LENGTH].encode())
            else:
                self._redis.delete(key)

    def read(self, cluster: str) -> str:
        """Return the notice of a cluster; empty without one. Raises StateUnavailableError."""
        with map_redis_errors():
            blob = cast("bytes | None", self._redis.get(Keys(self._prefix, cluster).list_notice))
        return (blob or b"").decode()
