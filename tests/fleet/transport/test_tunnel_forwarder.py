"""Connections to a local port, and where they come out."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from fleet.transport import channels
from fleet.transport.tunnel_forwarder import TunnelForwarder
from tests.fakes.auth_paths import passage_to
from tests.fakes.waiting import eventually


async def echo() -> asyncio.Server:
    """A service that says everything back."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionResetError):
            while part := await reader.read(65536):
                writer.write(part)
                await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


def address(server: asyncio.Server) -> tuple[str, int]:
    host, port = server.sockets[0].getsockname()
    return host, port


async def test_bytes_pass_and_the_proxy_is_known() -> None:
    """As over a TCP connection, both ways, to its end; and it says through which proxy."""
    server = await echo()
    async with server, passage_to(lambda: address(server), "proxy-7") as passage:
        assert passage.via == ""
        reader, writer = await asyncio.open_connection(*passage.address)
        writer.write(b"hello" * 100_000)
        writer.write_eof()
        assert await reader.read() == b"hello" * 100_000
        assert passage.via == "proxy-7"
        writer.close()


async def test_service_that_is_down_is_a_reset() -> None:
    """Who connects is not left waiting, and does not take it for an orderly end."""
    async with passage_to(lambda: ("127.0.0.1", 1)) as passage:
        reader, writer = await asyncio.open_connection(*passage.address)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_proxy_that_is_frozen_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts and says nothing: a reset in time, so that another is tried."""
    monkeypatch.setattr("fleet.transport.tunnel_forwarder._OPEN_WITHIN", 0.3)
    silent = socket.create_server(("127.0.0.1", 0))
    target = channels.target_of([silent.getsockname()])
    passage = TunnelForwarder(lambda: channels.open_channel(target))
    reader, writer = await asyncio.open_connection(*passage.address)
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    await passage.close()
    silent.close()


async def test_close_ends_everything() -> None:
    """Connections are reset, nobody new gets in, and no task is left."""
    server = await echo()
    before = asyncio.all_tasks()
    async with server, passage_to(lambda: address(server)) as passage:
        reader, writer = await asyncio.open_connection(*passage.address)
        writer.write(b"x")
        assert await reader.read(1) == b"x"
        where = passage.address
        await passage.close()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        with pytest.raises(OSError, match=r"[Cc]onnect"):
            await asyncio.open_connection(*where)
        await eventually(lambda: not [t for t in asyncio.all_tasks() - before if "passage" in repr(t)])
