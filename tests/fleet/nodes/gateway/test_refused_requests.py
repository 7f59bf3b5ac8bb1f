"""Requests to a real gateway that are no gRPC calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleet.transport.http2.connection import Http2Connection
from fleet.transport.http2.fields import HeaderBlockCache, HeaderFields, encode, plain
from fleet.transport.http2.frames import ErrorCode
from fleet.transport.http2.options import ConnectionOptions
from fleet.transport.http2.stream import Stream
from tests.fakes.echoing import run_gateway
from tests.fakes.waiting import eventually


@dataclass
class ResponseRecorder:
    """Record one response."""

    heads: list[dict[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    has_ended: bool = False
    code: ErrorCode | None = None

    def on_headers(self, fields: HeaderFields, *, end: bool) -> None:
        self.heads.append({name: value for name, value, _ in fields})
        self.has_ended = end

    def on_data(self, data: bytes, *, end: bool) -> None:
        self.body += data
        self.has_ended = end

    def on_reset(self, code: ErrorCode, reason: str) -> None:
        self.code = code

    def on_lost(self, reason: str) -> None: ...


@asynccontextmanager
async def open_connection(folder: Path) -> AsyncIterator[Http2Connection]:
    """Yield a connection to a gateway without backends."""
    async with run_gateway(folder, {"svc:1": []}) as (_, address):
        host, _, port = address.rpartition(":")
        ready = asyncio.Event()
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Http2Connection(
                HeaderBlockCache(lambda fields: fields), ConnectionOptions(), on_ready=lambda _: ready.set()
            ),
            host,
            int(port),
        )
        await ready.wait()
        yield connection
        connection.close()


def send_request(
    connection: Http2Connection, method: bytes, *extra_headers: tuple[bytes, bytes]
) -> tuple[Stream, ResponseRecorder]:
    pairs = ((b":method", method), (b":scheme", b"http"), (b":path", b"/a.B/C"), (b":authority", b"a"))
    stream = connection.open(encode(plain(*pairs, *extra_headers)))
    stream.listener = response = ResponseRecorder()
    return stream, response


@pytest.mark.parametrize(
    ("method", "http", "body"),
    [
        (b"GET", b"405", b"This gateway serves gRPC calls only: send them by POST.\n"),
        (b"HEAD", b"405", b""),
        (
            b"POST",
            b"415",
            b"This gateway serves gRPC calls only: their content-type starts with application/grpc.\n",
        ),
    ],
)
async def test_request_that_is_no_grpc_call_gets_http_error(
    method: bytes, http: bytes, body: bytes, tmp_path: Path
) -> None:
    """The response comes before the body of the request; the response to HEAD has no body."""
    async with open_connection(tmp_path) as connection:
        stream, response = send_request(connection, method)
        await eventually(lambda: response.has_ended)
        stream.send_data(b"x" * 1000, end=True)
        _, second_answer = send_request(connection, method)
        await eventually(lambda: second_answer.has_ended)

    assert response.heads[0][b":status"] == http
    assert response.heads[0].get(b"allow") == (b"POST" if http == b"405" else None)
    assert response.body == body
    assert response.code is None


async def test_body_of_a_refused_request_is_checked_and_limited(tmp_path: Path) -> None:
    """A malformed body resets the stream with a protocol error; a long body is stopped without an error."""
    async with open_connection(tmp_path) as connection:
        stream, malformed_answer = send_request(connection, b"POST", (b"content-length", b"2"))
        await eventually(lambda: malformed_answer.has_ended)
        stream.send_data(b"xxx", end=False)
        await eventually(lambda: malformed_answer.code is ErrorCode.PROTOCOL_ERROR)

        stream, long_answer = send_request(connection, b"POST")
        stream.send_data(b"x" * 65_000)
        stream.send_data(b"x" * 65_000)
        await eventually(lambda: long_answer.code is ErrorCode.NO_ERROR)
