"""Tunnel forwarder: connections to a local port, and their ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from fleet.transport import channels
from fleet.transport.tunnel_forwarder import TunnelForwarder
from tests.fakes.auth_paths import forwarder_to
from tests.fakes.waiting import eventually


async def start_echo_server() -> asyncio.Server:
    """Start a service that sends back all bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionResetError):
            while part := await reader.read(65536):
                writer.write(part)
                await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


def address_of(server: asyncio.Server) -> tuple[str, int]:
    host, port = server.sockets[0].getsockname()
    return host, port


async def test_bytes_are_forwarded_and_the_proxy_is_known() -> None:
    """Both directions work to their ends, as in TCP; `via` names the proxy."""
    server = await start_echo_server()
    async with server, forwarder_to(lambda: address_of(server), "proxy-7") as forwarder:
        assert forwarder.proxy_id == ""
        reader, writer = await asyncio.open_connection(*forwarder.address)
        writer.write(b"hello" * 100_000)
        writer.write_eof()
        assert await reader.read() == b"hello" * 100_000
        assert forwarder.proxy_id == "proxy-7"
        writer.close()


async def test_unreachable_service_resets_the_connection() -> None:
    """The client neither waits nor gets an orderly end."""
    async with forwarder_to(lambda: ("127.0.0.1", 1)) as forwarder:
        reader, writer = await asyncio.open_connection(*forwarder.address)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_frozen_proxy_resets_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts and does not respond: after a timeout another proxy can be tried."""
    monkeypatch.setattr("fleet.transport.tunnel_forwarder._OPEN_WITHIN", 0.3)
    silent_socket = socket.create_server(("127.0.0.1", 0))
    target = channels.target_of([silent_socket.getsockname()])
    forwarder = TunnelForwarder(lambda: channels.open_channel(target))
    reader, writer = await asyncio.open_connection(*forwarder.address)
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    await forwarder.close()
    silent_socket.close()


async def test_close_resets_connections() -> None:
    """New connections are refused, and no task is left."""
    server = await start_echo_server()
    tasks_before = asyncio.all_tasks()
    async with server, forwarder_to(lambda: address_of(server)) as forwarder:
        reader, writer = await asyncio.open_connection(*forwarder.address)
        writer.write(b"x")
        assert await reader.read(1) == b"x"
        forwarder_address = forwarder.address
        await forwarder.close()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        with pytest.raises(OSError, match=r"[Cc]onnect"):
            await asyncio.open_connection(*forwarder_address)
        await eventually(
            lambda: (
                not [task for task in asyncio.all_tasks() - tasks_before if "tunnel forwarder" in repr(task)]
            )
        )
