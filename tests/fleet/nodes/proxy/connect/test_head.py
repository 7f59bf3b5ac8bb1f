"""The request head of a CONNECT, over real TCP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from fleet.nodes.proxy.connect.head import RequestProtocol
from fleet.protocol.tunnel.connect import RefusalReason, RefusedError

ServeHead = Callable[[RequestProtocol], Awaitable[None]]


@contextlib.asynccontextmanager
async def connect_to_server(
    serve: ServeHead,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield a connection to a port that serves request heads."""
    tasks: list[asyncio.Future[None]] = []
    loop = asyncio.get_running_loop()

    def start_task(head: RequestProtocol) -> None:
        tasks.append(asyncio.ensure_future(serve(head)))

    async with await loop.create_server(lambda: RequestProtocol(start_task), "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            async with asyncio.timeout(60):
                yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            await asyncio.gather(*tasks, return_exceptions=True)


async def refuse(head: RequestProtocol) -> None:
    """Refuse every request as the port does."""
    try:
        await head.read(10)
        raise RefusedError(RefusalReason.NO_AGENT, "no agent, ü\nat all")
    except RefusedError as refusal:
        await head.refuse(refusal)


async def test_request_may_arrive_byte_by_byte_with_early_data() -> None:
    """The bytes behind the head are handed over."""
    accepted_request: asyncio.Future[tuple[bytes, bytes]] = asyncio.get_running_loop().create_future()

    async def serve(head: RequestProtocol) -> None:
        request = await head.read(10)
        accepted_request.set_result((request.target, head.accept()))
        head.transport.close()

    async with connect_to_server(serve) as (reader, writer):
        writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        text = b"CONNECT web.agent-7:80 HTTP/1.1\r\nHost: web.agent-7:80\r\n\r\nearly"
        for byte in text[:-10]:
            writer.write(bytes((byte,)))
            await asyncio.sleep(0)
        writer.write(text[-10:])
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        assert await accepted_request == (b"web.agent-7:80", b"early")


async def test_refusal_has_its_reason_in_status_line_and_body() -> None:
    """Some programs show the status line only."""
    async with connect_to_server(refuse) as (reader, writer):
        writer.write(b"CONNECT web.agent-7:80 HTTP/1.0\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        assert lines[0] == "HTTP/1.1 404 no agent,   at all"
        assert {"connection: close", "refloat-refused: no-agent"} <= {line.lower() for line in lines}
        assert body.decode() == "no agent, ü\nat all\n"


async def test_refusal_of_head_request_has_no_body() -> None:
    """HTTP allows no body in a response to HEAD."""
    async with connect_to_server(refuse) as (reader, writer):
        writer.write(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.read()).endswith(b"\r\n\r\n")


async def test_refusal_is_delivered_while_the_client_sends() -> None:
    """Data behind the request does not reset the connection before the response arrives."""
    async with connect_to_server(refuse) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + bytes(300_000))
        assert (await reader.read()).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
        (b"CONNECT web.agent-7:80 HTTP/1.1\r\n\r\n", b"400"),  # without Host
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000, b"431"),
    ],
)
async def test_malformed_or_endless_request_gets_http_error(request_bytes: bytes, status: bytes) -> None:
    """The status tells a malformed head from one that is too long."""
    async with connect_to_server(refuse) as (reader, writer):
        writer.write(request_bytes)
        assert (await reader.read()).startswith(b"HTTP/1.1 " + status)


async def test_incomplete_request_times_out() -> None:
    """The client gets status 408, and later bytes are ignored."""

    async def serve(head: RequestProtocol) -> None:
        try:
            await head.read(0.05)
        except RefusedError as refusal:
            await head.refuse(refusal)

    async with connect_to_server(serve) as (reader, writer):
        writer.write(b"CONN")
        assert (await reader.readuntil(b"\n")).startswith(b"HTTP/1.1 408 no complete request arrived")
        writer.write(b"ECT web.agent-7:80 HTTP/1.1\r\n\r\n")


async def test_lost_client_ends_the_read() -> None:
    """The handler gets a ConnectionError at once."""
    is_lost = asyncio.get_running_loop().create_future()

    async def serve(head: RequestProtocol) -> None:
        with pytest.raises(ConnectionError):
            await head.read(10)
        is_lost.set_result(True)
        head.transport.close()

    async with connect_to_server(serve) as (_, writer):
        writer.write(b"CONN")
        writer.close()
        assert await is_lost
