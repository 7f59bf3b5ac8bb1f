"""TCP services for what reaches them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from fleet.transport.listen_sockets import stop_listening

Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(connected: Connected) -> AsyncIterator[int]:
    """A service; its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):  # ended with its test
                await connected(reader, writer)
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
async def echoing() -> AsyncIterator[int]:
    """A service that sends back what it is sent, to the end."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()

    async with serving(echo) as port:
        yield port
