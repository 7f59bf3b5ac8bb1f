"""Connections to Redis with timeouts, and conversion of its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis
from redis.backoff import ConstantBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from fleet.monitoring.state import StateUnavailableError

#: Timeouts of responses and of connections in seconds. Explicit, because the defaults of redis-py changed in version 8.
_RESPONSE_TIMEOUT_SECONDS = 5.0
_CONNECT_TIMEOUT_SECONDS = 2.0
#: Bytes per read from a socket: columns are megabytes, and the default of 64 KB makes a load a third slower.
_READ_SIZE = 1024 * 1024


def connect(url: str) -> Redis:
    """Return a client that connects lazily; safe before a fork: each process opens its own connections."""
    return Redis.from_url(
        url,
        socket_timeout=_RESPONSE_TIMEOUT_SECONDS,
        socket_connect_timeout=_CONNECT_TIMEOUT_SECONDS,
        # One immediate retry: it repairs an idle connection that the server closed, and reports a server that is down.
        retry=Retry(ConstantBackoff(0.05), 1),
        decode_responses=False,
        socket_read_size=_READ_SIZE,
    )


@contextmanager
def map_redis_errors() -> Iterator[None]:
    """Convert errors of redis-py to StateUnavailableError."""
    try:
        yield
    except RedisError as error:
        raise StateUnavailableError(f"Redis is not responding: {str(error).rstrip('.')}") from error
