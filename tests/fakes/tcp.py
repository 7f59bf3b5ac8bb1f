"""TCP services for tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from fleet.transport.listen_sockets import stop_listening

OnConnection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serve_tcp(on_connection: OnConnection) -> AsyncIterator[int]:
    """Run a TCP service; yield its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):  # ended with its test
                await on_connection(reader, writer)
        finally:
            tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await stop_listening(server)
        await asyncio.sleep(0)  # who came last begins
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(list(tasks))


@contextlib.asynccontextmanager
async def serve_echo() -> AsyncIterator[int]:
    """Run a TCP service that echoes; yield its port."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()

    async with serve_tcp(echo) as port:
        yield port
