"""Browsers of the bench `push`: sockets that read everything and note latencies, and sockets that never read."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

_SEQ = re.compile(r'"seq":(\d+)')
_CONNECT_TIMEOUT = 60.0


class Latencies:
    """Milliseconds from the publication of each update until each browser has it."""

    def __init__(self) -> None:
        #: Moment of publication by sequence number, in seconds of `perf_counter`.
        self.published_at: dict[int, float] = {}
        self.milliseconds: list[float] = []
        #: Frames of snapshots: how often browsers started over, the first time included.
        self.snapshot_count = 0
        self.closed_count = 0

    def note(self, frame: str | bytes) -> None:
        """Note a frame that a browser received now."""
        now = time.perf_counter()
        if isinstance(frame, bytes):
            self.snapshot_count += 1
            return
        if not frame.startswith('{"type":"delta"'):
            return
        match = _SEQ.search(frame)
        assert match is not None, "every update has a sequence number"
        published_at = self.published_at.get(int(match[1]))
        if published_at is not None:
            self.milliseconds.append((now - published_at) * 1000)


@asynccontextmanager
async def open_browsers(
    url: str, headers: Sequence[Mapping[str, str]], latencies: Latencies, *, origin: str | None
) -> AsyncIterator[None]:
    """Open one socket per entry of `headers`, each of which reads until the end of the block."""
    async with AsyncExitStack() as stack:
        links = [
            await stack.enter_async_context(
                connect(
                    url,
                    additional_headers=dict(fields),
                    origin=origin,  # type: ignore[arg-type] # a NewType of str
                    compression=None,
                    open_timeout=_CONNECT_TIMEOUT,
                    max_queue=None,
                )
            )
            for fields in headers
        ]
        tasks = [asyncio.create_task(_read(link, latencies)) for link in links]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for link in links:
                link.transport.abort()


async def _read(link: ClientConnection, latencies: Latencies) -> None:
    try:
        while True:
            latencies.note(await link.recv())
    except ConnectionClosed:
        latencies.closed_count += 1


def open_deaf_socket(url: str, headers: Mapping[str, str]) -> socket.socket:
    """Open a WebSocket that never reads after its handshake, with the smallest receive buffer there is."""
    parts = urlsplit(url)
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    link.settimeout(_CONNECT_TIMEOUT)
    link.connect((parts.hostname, parts.port))
    fields: dict[str, Any] = {
        "Host": parts.netloc,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Version": "13",
        **headers,
    }
    head = "".join(f"{name}: {text}\r\n" for name, text in fields.items())
    link.sendall(f"GET {parts.path} HTTP/1.1\r\n{head}\r\n".encode())
    assert link.recv(12) == b"HTTP/1.1 101", "the socket was refused"
    return link
