"""Requests that are no gRPC calls, at a real gateway's door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleet.transport.http2.connection import Http2Connection
from fleet.transport.http2.fields import BlockCache, HeaderFields, encode, plain
from fleet.transport.http2.frames import Code
from fleet.transport.http2.options import ConnectionOptions
from fleet.transport.http2.stream import Stream
from tests.fakes.echoing import gateway_before
from tests.fakes.waiting import eventually


@dataclass
class Answer:
    """Listens to one answer."""

    heads: list[dict[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    ended: bool = False
    code: Code | None = None

    def on_headers(self, made: HeaderFields, *, end: bool) -> None:
        self.heads.append({name: value for name, value, _ in made})
        self.ended = end

    def on_data(self, data: bytes, *, end: bool) -> None:
        self.body += data
        self.ended = end

    def on_reset(self, code: Code, why: str) -> None:
        self.code = code

    def on_lost(self, why: str) -> None: ...


@asynccontextmanager
async def caller(folder: Path) -> AsyncIterator[Http2Connection]:
    """A connection to a gateway without backends."""
    async with gateway_before(folder, {"svc:1": []}) as (_, address):
        host, _, port = address.rpartition(":")
        ready = asyncio.Event()
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Http2Connection(
                BlockCache(lambda fields: fields), ConnectionOptions(), on_ready=lambda _: ready.set()
            ),
            host,
            int(port),
        )
        await ready.wait()
        yield connection
        connection.close()


def ask(connection: Http2Connection, method: bytes, *more: tuple[bytes, bytes]) -> tuple[Stream, Answer]:
    pairs = ((b":method", method), (b":scheme", b"http"), (b":path", b"/a.B/C"), (b":authority", b"a"))
    stream = connection.open(encode(plain(*pairs, *more)))
    stream.listener = answer = Answer()
    return stream, answer


@pytest.mark.parametrize(
    ("method", "http", "sentence"),
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
async def test_request_that_is_no_call(method: bytes, http: bytes, sentence: bytes, tmp_path: Path) -> None:
    """It is answered at once, in HTTP, before its body; the answer to HEAD has no body."""
    async with caller(tmp_path) as connection:
        stream, answer = ask(connection, method)
        await eventually(lambda: answer.ended)
        stream.send_data(b"x" * 1000, end=True)
        _, second = ask(connection, method)
        await eventually(lambda: second.ended)

    assert answer.heads[0][b":status"] == http
    assert answer.heads[0].get(b"allow") == (b"POST" if http == b"405" else None)
    assert answer.body == sentence
    assert answer.code is None


async def test_rest_of_a_refused_request_is_read(tmp_path: Path) -> None:
    """What is wrong in it is seen, though it was answered; what is long is not wanted."""
    async with caller(tmp_path) as connection:
        stream, malformed = ask(connection, b"POST", (b"content-length", b"2"))
        await eventually(lambda: malformed.ended)
        stream.send_data(b"xxx", end=False)
        await eventually(lambda: malformed.code is Code.PROTOCOL_ERROR)

        stream, long = ask(connection, b"POST")
        stream.send_data(b"x" * 65_000)
        stream.send_data(b"x" * 65_000)
        await eventually(lambda: long.code is Code.NO_ERROR)
