from __future__ import annotations

import asyncio
import gc
import socket
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from fleet.transport import listen_sockets

#: Turns of the loop between a connection and the stop of the server.
TURNS = range(6)


class ConnectionRecorder(asyncio.Protocol):
    """Records the connections that a server accepted."""

    def __init__(self, transports: list[asyncio.BaseTransport]) -> None:
        self._transports = transports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transports.append(transport)


async def _loses_connection(stop: Callable[[asyncio.Server], Awaitable[None]], turns: int) -> bool:
    """Stop a server some turns after a connection, and return whether it lost the connection."""
    transports: list[asyncio.BaseTransport] = []
    server = await asyncio.get_running_loop().create_server(
        lambda: ConnectionRecorder(transports), "127.0.0.1", 0
    )
    with socket.create_connection(server.sockets[0].getsockname()):
        for _ in range(turns):
            await asyncio.sleep(0)
        await stop(server)
        for transport in transports:
            transport.abort()
        for _ in range(5):
            await asyncio.sleep(0)
        with warnings.catch_warnings(record=True) as caught_warnings:
            warnings.simplefilter("always")
            gc.collect()
    return any("unclosed" in str(warning.message) for warning in caught_warnings)


@pytest.mark.parametrize("turns", TURNS)
async def test_stopped_server_loses_no_connection(turns: int) -> None:
    assert not await _loses_connection(listen_sockets.stop_listening, turns)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="asyncio loses no connection since Python 3.12")
async def test_closed_server_may_lose_a_connection() -> None:
    """Otherwise the test above proves nothing."""

    async def close(server: asyncio.Server) -> None:
        server.close()

    assert any([await _loses_connection(close, turns) for turns in TURNS])


@pytest.mark.parametrize("turns", TURNS)
async def test_task_of_an_accepted_connection_has_begun(turns: int) -> None:
    """One that is cancelled before it begins never runs, so it could not close its connection."""
    tasks: list[asyncio.Task[None]] = []
    begun_tasks: list[asyncio.Task[None]] = []

    async def serve() -> None:
        begun_tasks.extend(task for task in tasks if task is asyncio.current_task())

    class StartsTask(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.close()
            tasks.append(asyncio.create_task(serve()))

    server = await asyncio.get_running_loop().create_server(StartsTask, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()):
        for _ in range(turns):
            await asyncio.sleep(0)
        await listen_sockets.stop_listening(server)
        assert begun_tasks == tasks
        await asyncio.gather(*tasks)


async def test_socket_listens_before_its_server_starts() -> None:
    """Connections made meanwhile wait, and are served."""
    with await listen_sockets.bind("127.0.0.1", 0) as bound:
        reader, writer = await asyncio.open_connection(*bound.getsockname())

        async def send_greeting(_: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
            client.write(b"late")
            client.close()

        async with await asyncio.start_server(send_greeting, sock=bound):
            assert await reader.read() == b"late"
        writer.close()
        await writer.wait_closed()


async def test_address_in_use_is_refused(address_in_use: tuple[str, int]) -> None:
    """No socket is left open."""
    with pytest.raises(OSError, match="in use"):
        await listen_sockets.bind(*address_in_use)
    gc.collect()


@pytest.fixture
async def address_in_use() -> AsyncIterator[tuple[str, int]]:
    """An address on which another socket listens."""
    with await listen_sockets.bind("127.0.0.1", 0) as bound:
        yield bound.getsockname()
