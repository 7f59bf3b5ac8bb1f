"""Removal of everything that Redis has of a cluster."""

from __future__ import annotations

from itertools import islice

from redis import Redis

from fleet.monitoring.state.connect import connect, map_redis_errors
from fleet.monitoring.state.keys import Keys

#: Keys in one command.
_BATCH_SIZE = 500


def delete_cluster_keys(redis: Redis, prefix: str, cluster: str) -> int:
    """Delete the record, the rounds and the connection tests of a cluster; return the number of keys.

    Raises StateUnavailableError.
    """
    deleted_count = 0
    with map_redis_errors():
        keys = redis.scan_iter(match=Keys(prefix, cluster).pattern, count=_BATCH_SIZE)
        while batch := list(islice(keys, _BATCH_SIZE)):
            deleted_count += int(redis.unlink(*batch))
    return deleted_count


def delete_keys_at(redis_url: str, prefix: str, cluster: str) -> int:
    """Do the same with a connection of its own. Raises StateUnavailableError."""
    redis = connect(redis_url)
    try:
        return delete_cluster_keys(redis, prefix, cluster)
    finally:
        redis.close()
