"""Limits for clients that do not read, on a real server in this process, over real connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from typing_extensions import override
from websockets.asyncio.client import connect

from fleet.transport.bounded_websocket import BoundedWebSocketProtocol
from tests.fakes.waiting import DEADLINE, eventually

_HANDSHAKE = (
    b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n\r\n"
)


class Pump:
    """Application that sends frames until the client is gone or it has sent enough."""

    def __init__(self) -> None:
        self.sent_count = 0
        self.frame_count = 10_000_000
        self.ended_count = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a socket."""
        await receive()
        await send({"type": "websocket.accept"})
        try:
            for _ in range(self.frame_count):
                await send({"type": "websocket.send", "bytes": b"x" * 4096})
                self.sent_count += 1
            while (await receive())["type"] != "websocket.disconnect":
                pass
        finally:
            self.ended_count += 1


class _ImpatientProtocol(BoundedWebSocketProtocol):
    read_within = 0.2
    close_within = 0.2


class _Server(uvicorn.Server):
    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


@pytest.fixture
async def pump() -> AsyncIterator[tuple[Pump, int, uvicorn.Server]]:
    """The application, its port and its server; pings after 0.1 s, and again."""
    app = Pump()
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        ws=_ImpatientProtocol,
        lifespan="off",
        log_config=None,
        ws_ping_interval=0.1,
        ws_ping_timeout=0.1,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield app, listener.getsockname()[1], server
    finally:
        server.should_exit = True
        await asyncio.wait([task])
        listener.close()


def _open_deaf_socket(port: int) -> socket.socket:
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    link.connect(("127.0.0.1", port))
    link.sendall(_HANDSHAKE)
    return link


@pytest.mark.parametrize("frame_count", [10_000_000, 1])
async def test_socket_that_never_reads_ends(pump: tuple[Pump, int, uvicorn.Server], frame_count: int) -> None:
    """With frames waiting, and with pings alone: the connection and its application end."""
    app, port, server = pump
    app.frame_count = frame_count
    with contextlib.closing(_open_deaf_socket(port)):
        await eventually(lambda: app.ended_count == 1 and not server.server_state.connections)
    assert app.sent_count * 4096 < 32 * 1024 * 1024, "nothing is kept for it"


async def test_socket_that_reads_gets_everything(pump: tuple[Pump, int, uvicorn.Server]) -> None:
    """Slower than the server sends, but never for as long as the limit."""
    app, port, _ = pump
    app.frame_count = 2_000
    async with asyncio.timeout(DEADLINE), connect(f"ws://127.0.0.1:{port}", ping_interval=None) as link:
        for number in range(app.frame_count):
            assert len(await link.recv()) == 4096
            if number % 500 == 0:
                await asyncio.sleep(0.01)
    assert app.sent_count == 2_000
