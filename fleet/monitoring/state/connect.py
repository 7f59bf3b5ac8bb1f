"""Connections to Redis with bounded waits, and its errors as ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis
from redis.backoff import ConstantBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from fleet.monitoring.state import StateUnavailableError

#: Seconds for an answer and for a connection. Set, not left to redis-py: its defaults changed with version 8.
_ANSWER_TIMEOUT = 5.0
_CONNECT_TIMEOUT = 2.0
#: Bytes taken from a socket at once: columns are megabytes, and the default of 64 KB costs a third more per load.
_READ_SIZE = 1024 * 1024


def connect(url: str) -> Redis:
    """Connect lazily; safe to call before a fork, the pool opens its connections in each process."""
    return Redis.from_url(
        url,
        socket_timeout=_ANSWER_TIMEOUT,
        socket_connect_timeout=_CONNECT_TIMEOUT,
        # One retry at once: an idle connection that the server closed heals, a server that is down is told at once.
        retry=Retry(ConstantBackoff(0.05), 1),
        decode_responses=False,
        socket_read_size=_READ_SIZE,
    )


@contextmanager
def map_redis_errors() -> Iterator[None]:
    """Turn redis-py's errors into StateUnavailable."""
    try:
        yield
    except RedisError as error:
        raise StateUnavailableError(f"Redis does not answer: {error}") from error
