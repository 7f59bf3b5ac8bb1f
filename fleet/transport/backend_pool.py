"""Connection pool of the backend client: it never lends a connection that is known to be lost.

Before redis-py lends a connection it checks for the end of its stream. A reset is not an end, but an exception of the
stream's reader. Without this pool, every idle connection that was reset makes one call fail.
"""

from __future__ import annotations

import asyncio
from typing import Any

import redis.asyncio as redis
from redis.exceptions import RedisError
from typing_extensions import override


class NotSentError(Exception):
    """No connection was available, so nothing was sent. The cause of the exception says why."""


class BackendConnectionPool(redis.BlockingConnectionPool):
    """A pool that replaces lost connections and can be emptied."""

    @override
    async def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> Any:
        """Return an open connection. Raises NotSentError."""
        try:
            return await super().get_connection()  # type: ignore[no-untyped-call]
        except (RedisError, OSError, RuntimeError) as error:
            raise NotSentError(str(error)) from error

    @override
    async def ensure_connection(self, connection: Any) -> None:
        """Connect unless connected. Raises TimeoutError."""
        if is_lost(connection):
            await connection.disconnect(nowait=True)
        # The timeout of a connection covers TCP only; authentication must be done by then, too.
        async with asyncio.timeout(connection.socket_connect_timeout):
            await super().ensure_connection(connection)

    async def empty(self) -> None:
        """Close all idle connections: the failure of one may affect all."""
        # No other task can take a connection while this loop closes it.
        idle, self._available_connections = self._available_connections, []
        for connection in idle:
            await connection.disconnect(nowait=True)


def is_lost(connection: Any) -> bool:
    """Return whether the event loop has noticed the loss of a connection."""
    reader, writer = connection._reader, connection._writer  # noqa: SLF001 - redis-py has no public name for them
    if reader is None or writer is None:
        return False
    return reader.exception() is not None or bool(writer.is_closing())
