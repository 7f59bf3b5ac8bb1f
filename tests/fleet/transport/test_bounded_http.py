"""What strangers send to a real server in this process, over real connections."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fleet.nodes.shared import asgi_site
from fleet.transport.bounded_http import BoundedProtocol
from fleet.transport.tls import TLSFiles
from tests.fakes.waiting import DEADLINE, eventually

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\n"
PIECE = b"a" * 16_384


class Site:
    """Reads the whole request, then answers when it may."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        #: Requests that came, and those whose client went away before they were whole.
        self.requests = 0
        self.disconnects = 0
        self.answer = b"ok"
        #: Responses that were taken, or whose client went away.
        self.answered = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        self.requests += 1
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnects += 1
                return
            if not message.get("more_body", False):
                break
        await self.may_answer.wait()
        headers = [(b"content-length", str(len(self.answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.answer, "more_body": True})
        # The server takes this when the client has read nearly all of it, or is gone.
        await send({"type": "http.response.body"})
        self.answered += 1


Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def site() -> AsyncIterator[tuple[Site, str]]:
    """The application and where it listens."""
    app = Site()
    async with asgi_site.serve(app, ("127.0.0.1", 0), TLSFiles()) as address:
        yield app, address


@asynccontextmanager
async def _link(address: str) -> AsyncIterator[Link]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _rest(link: Link) -> bytes:
    """Everything until the server ends the connection; empty when it was reset before that could be read."""
    try:
        async with asyncio.timeout(DEADLINE):
            return await link[0].read()
    except ConnectionError:
        return b""


async def _flood(link: Link, first: bytes, piece: bytes) -> int:
    """Send pieces until the server ends the connection, and return how many bytes that took."""
    _, writer = link
    sent = len(first)
    writer.write(first)
    with contextlib.suppress(ConnectionError):
        while sent < 64 * 1024 * 1024:
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
    return sent


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"GET /", PIECE), (b"GET / HTTP/1.1\r\nx: ", PIECE),
        (b"GET / HTTP/1.1\r\n", b"x: " + PIECE + b"\r\n"),
        (POST + b"content-length: 99999999\r\n\r\n", PIECE),
        (POST + b"transfer-encoding: chunked\r\n\r\n0\r\n", b"x: " + PIECE + b"\r\n"),
    ],
    ids=["line", "value", "headers", "body", "trailers"],
)  # fmt: skip
async def test_endless_request_is_cut(site: tuple[Site, str], first: bytes, piece: bytes) -> None:
    """Whatever part of it has no end, the server takes some MiB at most, kernel buffers too, and serves others."""
    _, address = site
    async with _link(address) as link:
        assert await _flood(link, first, piece) < 20 * 1024 * 1024
    async with _link(address) as link:
        link[1].write(GET)
        assert (await link[0].readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")


async def test_head_that_is_too_large_is_answered(site: tuple[Site, str]) -> None:
    """431, when the client lets itself be told; the application never hears of it."""
    app, address = site
    async with _link(address) as link:
        # More than the limit and the largest single read.
        link[1].write(b"GET / HTTP/1.1\r\nx: " + b"a" * (BoundedProtocol.largest_head + 512 * 1024))
        response = await _rest(link)
    assert response == b"" or response.startswith(b"HTTP/1.1 431 ")
    assert app.requests == 0


@pytest.mark.parametrize("part", [b"", b"\r\n", b"GET / HTTP", b"GET / HTTP/1.1\r\nhost: x\r\n"])
@pytest.mark.parametrize("before", [b"", GET])
async def test_slow_head_ends_the_connection(
    site: tuple[Site, str], monkeypatch: pytest.MonkeyPatch, before: bytes, part: bytes
) -> None:
    """On a new connection, or after a request: half a head, or none, is waited for no longer than the limit."""
    monkeypatch.setattr(BoundedProtocol, "head_within", 0.3)
    _, address = site
    async with _link(address) as link:
        if before:
            link[1].write(before)
            await link[0].readuntil(b"ok")
            if not part:
                return  # an idle connection is uvicorn's to close
        link[1].write(part)
        assert (await _rest(link)).startswith(b"HTTP/1.1 408 ")


async def test_slow_body_ends_the_connection(site: tuple[Site, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The application hears that its client is gone."""
    monkeypatch.setattr(BoundedProtocol, "request_within", 0.3)
    app, address = site
    async with _link(address) as link:
        link[1].write(POST + b"content-length: 10\r\n\r\nabc")
        assert await _rest(link) == b""
    await eventually(lambda: app.disconnects == 1)


async def test_slow_response_is_not_cut(site: tuple[Site, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A long export, also when the client sends a blank line meanwhile."""
    monkeypatch.setattr(BoundedProtocol, "head_within", 0.1)
    app, address = site
    app.may_answer.clear()
    began = time.monotonic()
    async with _link(address) as link:
        link[1].write(GET + b"\r\n")
        await eventually(lambda: app.requests == 1 and time.monotonic() > began + 0.5)
        app.may_answer.set()
        assert (await link[0].readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")


async def test_requests_one_after_the_other(site: tuple[Site, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has the limits to itself: together they may be larger than one may."""
    monkeypatch.setattr(BoundedProtocol, "largest_head", 1000)
    monkeypatch.setattr(BoundedProtocol, "largest_request", 2000)
    app, address = site
    body = POST + b"content-length: 600\r\n\r\n" + b"a" * 600
    async with _link(address) as link:
        for _ in range(5):
            link[1].write(body)
            await link[0].readuntil(b"ok")
        link[1].write(GET + GET + GET)
        for _ in range(3):
            await link[0].readuntil(b"ok")
    assert app.requests == 8


async def test_response_that_nobody_reads_ends(
    site: tuple[Site, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger who requests a large file and reads nothing would keep the connection for ever."""
    app, address = site
    monkeypatch.setattr(BoundedProtocol, "read_within", 0.2)
    app.answer = bytes(64 * 1024 * 1024)
    async with _link(address) as link:
        link[1].write(GET)
        await eventually(lambda: app.answered == 1)
        assert len(await _rest(link)) < len(app.answer)


async def test_response_that_is_read_slowly_comes_whole(
    site: tuple[Site, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is for what waits, and begins again whenever some of it was read."""
    app, address = site
    monkeypatch.setattr(BoundedProtocol, "read_within", DEADLINE)
    app.answer = bytes(16 * 1024 * 1024)
    async with _link(address) as link:
        link[1].write(GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        assert len(await _rest(link)) > len(app.answer)


async def test_few_requests_wait_for_the_response_before_them(
    site: tuple[Site, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Thousands that came at once would take 10 KB each, and a stranger sends more after every response."""
    app, address = site
    app.may_answer.clear()
    async with _link(address) as link:
        link[1].write(GET * 5_000)
        assert (await _rest(link)).partition(b"\r\n")[0] in (b"", b"HTTP/1.1 400 Bad Request")
    assert app.requests == 1
    app.may_answer.set()
    await eventually(lambda: app.answered == 1)
    assert "Exception in ASGI application" not in caplog.text
    async with _link(address) as link:
        link[1].write(GET * 8 + GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        assert (await _rest(link)).count(b"HTTP/1.1 200 OK\r\n") == 9
