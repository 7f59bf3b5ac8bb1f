"""The connections of the nodes' backend: a pool that never lends a connection whose loss is known.

Before redis-py lends a connection it looks for the end of its stream. A reset is no end: it is an exception of the
reader of the stream. Without this pool every idle connection that was reset fails one call.
"""

from __future__ import annotations

import asyncio
from typing import Any

import redis.asyncio as redis
from redis.exceptions import RedisError
from typing_extensions import override


class NotSentError(Exception):
    """No connection was available, so that nothing was sent. The cause of the exception says why."""


class Pool(redis.BlockingConnectionPool):
    """A pool that replaces lost connections, and that can be emptied."""

    @override
    async def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> Any:
        """Return a connection that is connected. Raises NotSent."""
        try:
            return await super().get_connection()  # type: ignore[no-untyped-call]
        except (RedisError, OSError, RuntimeError) as error:
            raise NotSentError(str(error)) from error

    @override
    async def ensure_connection(self, connection: Any) -> None:
        """Connect a connection unless it is connected. Raises TimeoutError."""
        if is_lost(connection):
            await connection.disconnect(nowait=True)
        # The limit of a connection is for TCP alone; signing in has to be over by then, too.
        async with asyncio.timeout(connection.socket_connect_timeout):
            await super().ensure_connection(connection)

    async def empty(self) -> None:
        """Close all idle connections: what happened to one connection may have happened to all."""
        # No other task can take a connection while this loop closes it.
        idle, self._available_connections = self._available_connections, []
        for connection in idle:
            await connection.disconnect(nowait=True)


def is_lost(connection: Any) -> bool:
    """Return whether the event loop has seen the loss of a connection."""
    reader, writer = connection._reader, connection._writer  # noqa: SLF001 - redis-py has no other name for them
    if reader is None or writer is None:
        return False
    return reader.exception() is not None or bool(writer.is_closing())
