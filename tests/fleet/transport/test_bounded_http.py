"""Limits for malicious requests to a real HTTP server in this process, over real connections."""

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
CHUNK = b"a" * 16_384


class HoldingSite:
    """Application that reads the whole request, and responds when `may_respond` is set."""

    def __init__(self) -> None:
        self.may_respond = asyncio.Event()
        self.may_respond.set()
        #: Counts of requests, and of those whose client disconnected before the end.
        self.request_count = 0
        self.disconnect_count = 0
        self.response_body = b"ok"
        #: Count of responses that were read, or whose client disconnected.
        self.response_count = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request."""
        self.request_count += 1
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnect_count += 1
                return
            if not message.get("more_body", False):
                break
        await self.may_respond.wait()
        headers = [(b"content-length", str(len(self.response_body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.response_body, "more_body": True})
        # The server accepts this when the client has read nearly all of the response, or is gone.
        await send({"type": "http.response.body"})
        self.response_count += 1


Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def site() -> AsyncIterator[tuple[HoldingSite, str]]:
    """The application and its address."""
    app = HoldingSite()
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


async def _read_all(link: Link) -> bytes:
    """Read until the server ends the connection; empty if it was reset before."""
    try:
        async with asyncio.timeout(DEADLINE):
            return await link[0].read()
    except ConnectionError:
        return b""


async def _flood(link: Link, request_start: bytes, chunk: bytes) -> int:
    """Send chunks until the server ends the connection, and return the number of bytes sent."""
    _, writer = link
    sent_size = len(request_start)
    writer.write(request_start)
    with contextlib.suppress(ConnectionError):
        while sent_size < 64 * 1024 * 1024:
            writer.write(chunk)
            await writer.drain()
            sent_size += len(chunk)
    return sent_size


@pytest.mark.parametrize(
    ("request_start", "chunk"),
    [
        (b"GET /", CHUNK), (b"GET / HTTP/1.1\r\nx: ", CHUNK),
        (b"GET / HTTP/1.1\r\n", b"x: " + CHUNK + b"\r\n"),
        (POST + b"content-length: 99999999\r\n\r\n", CHUNK),
        (POST + b"transfer-encoding: chunked\r\n\r\n0\r\n", b"x: " + CHUNK + b"\r\n"),
    ],
    ids=["line", "value", "headers", "body", "trailers"],
)  # fmt: skip
async def test_endless_request_is_cut(
    site: tuple[HoldingSite, str], request_start: bytes, chunk: bytes
) -> None:
    """For any endless part the server reads at most some MiB, kernel buffers included, and serves others."""
    _, address = site
    async with _link(address) as link:
        assert await _flood(link, request_start, chunk) < 20 * 1024 * 1024
    async with _link(address) as link:
        link[1].write(GET)
        assert (await link[0].readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")


async def test_oversized_head_gets_431(site: tuple[HoldingSite, str]) -> None:
    """If the client reads the response; the application does not get the request."""
    app, address = site
    async with _link(address) as link:
        # More than the limit and the largest single read.
        link[1].write(b"GET / HTTP/1.1\r\nx: " + b"a" * (BoundedProtocol.largest_head + 512 * 1024))
        response = await _read_all(link)
    assert response == b"" or response.startswith(b"HTTP/1.1 431 ")
    assert app.request_count == 0


@pytest.mark.parametrize("part", [b"", b"\r\n", b"GET / HTTP", b"GET / HTTP/1.1\r\nhost: x\r\n"])
@pytest.mark.parametrize("earlier_request", [b"", GET])
async def test_slow_head_ends_the_connection(
    site: tuple[HoldingSite, str], monkeypatch: pytest.MonkeyPatch, earlier_request: bytes, part: bytes
) -> None:
    """On a new connection or after a request, the server waits for the rest of a head up to the limit."""
    monkeypatch.setattr(BoundedProtocol, "head_within", 0.3)
    _, address = site
    async with _link(address) as link:
        if earlier_request:
            link[1].write(earlier_request)
            await link[0].readuntil(b"ok")
            if not part:
                return  # uvicorn closes idle connections
        link[1].write(part)
        assert (await _read_all(link)).startswith(b"HTTP/1.1 408 ")


async def test_slow_body_ends_the_connection(
    site: tuple[HoldingSite, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application gets a disconnect."""
    monkeypatch.setattr(BoundedProtocol, "request_within", 0.3)
    app, address = site
    async with _link(address) as link:
        link[1].write(POST + b"content-length: 10\r\n\r\nabc")
        assert await _read_all(link) == b""
    await eventually(lambda: app.disconnect_count == 1)


async def test_slow_response_is_not_cut(
    site: tuple[HoldingSite, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long export continues, even if the client sends a blank line meanwhile."""
    monkeypatch.setattr(BoundedProtocol, "head_within", 0.1)
    app, address = site
    app.may_respond.clear()
    started_at = time.monotonic()
    async with _link(address) as link:
        link[1].write(GET + b"\r\n")
        await eventually(lambda: app.request_count == 1 and time.monotonic() > started_at + 0.5)
        app.may_respond.set()
        assert (await link[0].readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")


async def test_each_request_has_its_own_limits(
    site: tuple[HoldingSite, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several requests on a connection may exceed the limit of one."""
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
    assert app.request_count == 8


async def test_unread_response_ends(site: tuple[HoldingSite, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that requests a large file and reads nothing would keep the connection for ever."""
    app, address = site
    monkeypatch.setattr(BoundedProtocol, "read_within", 0.2)
    app.response_body = bytes(64 * 1024 * 1024)
    async with _link(address) as link:
        link[1].write(GET)
        await eventually(lambda: app.response_count == 1)
        assert len(await _read_all(link)) < len(app.response_body)


async def test_slowly_read_response_is_complete(
    site: tuple[HoldingSite, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit starts again whenever the client reads."""
    app, address = site
    monkeypatch.setattr(BoundedProtocol, "read_within", DEADLINE)
    app.response_body = bytes(16 * 1024 * 1024)
    async with _link(address) as link:
        link[1].write(GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        assert len(await _read_all(link)) > len(app.response_body)


async def test_pipelined_requests_have_a_limit(
    site: tuple[HoldingSite, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Thousands at once would take 10 KB each."""
    app, address = site
    app.may_respond.clear()
    async with _link(address) as link:
        link[1].write(GET * 5_000)
        assert (await _read_all(link)).partition(b"\r\n")[0] in (b"", b"HTTP/1.1 400 Bad Request")
    assert app.request_count == 1
    app.may_respond.set()
    await eventually(lambda: app.response_count == 1)
    assert "Exception in ASGI application" not in caplog.text
    async with _link(address) as link:
        link[1].write(GET * 8 + GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        assert (await _read_all(link)).count(b"HTTP/1.1 200 OK\r\n") == 9
