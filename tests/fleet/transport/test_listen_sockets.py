from __future__ import annotations

import asyncio
import gc
import socket
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from fleet.transport import listen_sockets

#: At each of these turns of the loop after a connection the server is stopped once.
TURNS = range(6)


class Taken(asyncio.Protocol):
    """Keeps the connections that a server accepted."""

    def __init__(self, transports: list[asyncio.BaseTransport]) -> None:
        self._transports = transports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transports.append(transport)


async def _lost(stop: Callable[[asyncio.Server], Awaitable[None]], turns: int) -> bool:
    """Stop a server so many turns after somebody connects; whether it lost the connection."""
    transports: list[asyncio.BaseTransport] = []
    server = await asyncio.get_running_loop().create_server(lambda: Taken(transports), "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()):
        for _ in range(turns):
            await asyncio.sleep(0)
        await stop(server)
        for transport in transports:
            transport.abort()
        for _ in range(5):
            await asyncio.sleep(0)
        with warnings.catch_warnings(record=True) as complaints:
            warnings.simplefilter("always")
            gc.collect()
    return any("unclosed" in str(complaint.message) for complaint in complaints)


@pytest.mark.parametrize("turns", TURNS)
async def test_server_that_stops_knows_of_everybody_whom_it_accepted(turns: int) -> None:
    """In whichever turn of the loop that is."""
    assert not await _lost(listen_sockets.stop_listening, turns)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="asyncio loses nobody since Python 3.12")
async def test_server_that_is_only_closed_may_lose_somebody() -> None:
    """Else the test above proves nothing."""

    async def close(server: asyncio.Server) -> None:
        server.close()

    assert any([await _lost(close, turns) for turns in TURNS])


async def test_socket_listens_before_a_server_takes_it() -> None:
    """Who dials meanwhile waits, and is served."""
    with await listen_sockets.bind("127.0.0.1", 0) as bound:
        reader, writer = await asyncio.open_connection(*bound.getsockname())

        async def answer(_: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
            client.write(b"late")
            client.close()

        async with await asyncio.start_server(answer, sock=bound):
            assert await reader.read() == b"late"
        writer.close()
        await writer.wait_closed()


async def test_address_that_is_taken_is_refused(taken: tuple[str, int]) -> None:
    """And no socket is left."""
    with pytest.raises(OSError, match="in use"):
        await listen_sockets.bind(*taken)
    gc.collect()


@pytest.fixture
async def taken() -> AsyncIterator[tuple[str, int]]:
    """An address where somebody listens."""
    with await listen_sockets.bind("127.0.0.1", 0) as bound:
        yield bound.getsockname()
