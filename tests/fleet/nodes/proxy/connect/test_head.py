"""The head of a CONNECT, over real TCP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from fleet.nodes.proxy.connect.head import Head
from fleet.protocol.tunnel.connect import RefusalReason, RefusedError

Serve = Callable[[Head], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a port that serves heads."""
    tasks: list[asyncio.Future[None]] = []
    loop = asyncio.get_running_loop()

    def made(head: Head) -> None:
        tasks.append(asyncio.ensure_future(serve(head)))

    async with await loop.create_server(lambda: Head(made), "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            async with asyncio.timeout(60):
                yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            await asyncio.gather(*tasks, return_exceptions=True)


async def refuse(head: Head) -> None:
    """Refuse whoever comes, as the port does."""
    try:
        await head.read(10)
        raise RefusedError(RefusalReason.NO_AGENT, "no agent, ü\nat all")
    except RefusedError as refusal:
        await head.refuse(refusal)


async def test_request_in_pieces_and_what_comes_behind() -> None:
    """The head may come byte by byte; what is behind it is handed over."""
    got: asyncio.Future[tuple[bytes, bytes]] = asyncio.get_running_loop().create_future()

    async def serve(head: Head) -> None:
        request = await head.read(10)
        got.set_result((request.target, head.accept()))
        head.transport.close()

    async with serving(serve) as (reader, writer):
        writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        text = b"CONNECT web.agent-7:80 HTTP/1.1\r\nHost: web.agent-7:80\r\n\r\nearly"
        for byte in text[:-10]:
            writer.write(bytes((byte,)))
            await asyncio.sleep(0)
        writer.write(text[-10:])
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        assert await got == (b"web.agent-7:80", b"early")


async def test_refusal_says_why_twice() -> None:
    """In the status line, for programs that show nothing else, and as the body."""
    async with serving(refuse) as (reader, writer):
        writer.write(b"CONNECT web.agent-7:80 HTTP/1.0\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        assert lines[0] == "HTTP/1.1 404 no agent,   at all"
        assert {"connection: close", "refloat-refused: no-agent"} <= {line.lower() for line in lines}
        assert body.decode() == "no agent, ü\nat all\n"


async def test_refusal_of_head_has_no_body() -> None:
    """HEAD has none."""
    async with serving(refuse) as (reader, writer):
        writer.write(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.read()).endswith(b"\r\n\r\n")


async def test_refused_while_still_talking() -> None:
    """The answer is not lost in a reset when more comes behind the request."""
    async with serving(refuse) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + bytes(300_000))
        assert (await reader.read()).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
        (b"CONNECT web.agent-7:80 HTTP/1.1\r\n\r\n", b"400"),  # without Host
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000, b"431"),
    ],
)
async def test_no_request(sent: bytes, status: bytes) -> None:
    """What is no HTTP, and what has no end, is answered."""
    async with serving(refuse) as (reader, writer):
        writer.write(sent)
        assert (await reader.read()).startswith(b"HTTP/1.1 " + status)


async def test_request_that_does_not_come() -> None:
    """Who says nothing is refused in time, and may go on talking in vain."""

    async def serve(head: Head) -> None:
        try:
            await head.read(0.05)
        except RefusedError as refusal:
            await head.refuse(refusal)

    async with serving(serve) as (reader, writer):
        writer.write(b"CONN")
        assert (await reader.readuntil(b"\n")).startswith(b"HTTP/1.1 408 no complete request arrived")
        writer.write(b"ECT web.agent-7:80 HTTP/1.1\r\n\r\n")


async def test_user_who_leaves() -> None:
    """Nobody waits for him."""
    lost = asyncio.get_running_loop().create_future()

    async def serve(head: Head) -> None:
        with pytest.raises(ConnectionError):
            await head.read(10)
        lost.set_result(True)
        head.transport.close()

    async with serving(serve) as (_, writer):
        writer.write(b"CONN")
        writer.close()
        assert await lost
