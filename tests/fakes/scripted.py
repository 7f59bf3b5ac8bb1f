"""A backend on our own HTTP/2 frames with scripted responses, and a unary call to it through a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from fleet.nodes.gateway.server import Gateway
from fleet.transport.channels import channel_options
from fleet.transport.http2.connection import Http2Connection
from fleet.transport.http2.fields import HeaderBlockCache, HeaderFields, encode, plain
from fleet.transport.http2.frames import ErrorCode
from fleet.transport.http2.options import ConnectionOptions
from fleet.transport.http2.stream import Stream
from tests.fakes.echoing import route, run_gateway
from tests.fakes.failing import UNARY

RETRIED = {"retry": {"reasons": ["unavailable"], "attempts": 3, "backoff": "1ms"}}
HEAD = encode(plain((b":status", b"200"), (b"content-type", b"application/grpc")))
OK = encode(plain((b"grpc-status", b"0")))
MESSAGE = b"\0\0\0\0\2hi"

Answer = Callable[[Stream], None]


class Script:
    """Listens to one call and sends the scripted response; health checks always succeed."""

    def __init__(self, stream: Stream, answer: Answer) -> None:
        self._stream = stream
        self._answer = answer

    def on_headers(self, head: HeaderFields, *, end: bool) -> None:
        if any(value == b"/grpc.health.v1.Health/Check" for _, value, _ in head):
            self._answer = answer_healthy

    def on_data(self, data: bytes, *, end: bool) -> None:
        if end:
            self._answer(self._stream)

    def on_reset(self, code: ErrorCode, reason: str) -> None: ...

    def on_lost(self, reason: str) -> None: ...


def answer_healthy(stream: Stream) -> None:
    stream.send_headers(HEAD)
    stream.send_data(b"\0\0\0\0\2\x08\1")
    stream.send_headers(OK, end=True)


def answer_ok(stream: Stream) -> None:
    stream.send_headers(HEAD)
    stream.send_data(MESSAGE)
    stream.send_headers(OK, end=True)


@asynccontextmanager
async def run_scripted_backend(
    *answers: Answer, options: ConnectionOptions | None = None
) -> AsyncIterator[str]:
    """Run a backend on our own frames: the n-th call gets the n-th answer, later calls the last."""
    remaining_answers = list(answers)
    connections: list[Http2Connection] = []

    class Once:
        """Takes an answer for a call, not for a health check."""

        def __call__(self, stream: Stream) -> None:
            (remaining_answers.pop(0) if len(remaining_answers) > 1 else remaining_answers[0])(stream)

    def begin(stream: Stream, head: HeaderFields) -> None:
        stream.listener = Script(stream, Once())

    def make_connection() -> Http2Connection:
        connection = Http2Connection(
            HeaderBlockCache(lambda fields: fields), options or ConnectionOptions(), on_stream=begin
        )
        connections.append(connection)
        return connection

    server = await asyncio.get_running_loop().create_server(make_connection, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    for connection in connections:
        connection.close()


@asynccontextmanager
async def run_tcp_backend(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """Run a TCP backend that does not speak HTTP/2."""
    writers: list[asyncio.StreamWriter] = []

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await serve(reader, writer)

    server = await asyncio.start_server(on_connect, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    for writer in writers:
        writer.close()


@asynccontextmanager
async def run_gateway_with_call(
    folder: Path, *addresses: str, rule: dict[str, Any] | None = None, **flags: Any
) -> AsyncIterator[tuple[Gateway, Callable[..., Awaitable[Any]]]]:
    """Run a gateway; yield it and a function that makes a unary call through it."""
    async with (
        run_gateway(folder, {"svc:1": addresses}, route(rule or {}), **flags) as (gateway, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):

        async def call(**call_options: Any) -> Any:
            try:
                return await channel.unary_unary(call_options.pop("method", UNARY))(
                    b"hi", **{"timeout": 60, **call_options}
                )
            except grpc.aio.AioRpcError as error:
                return error.code().name, error.details()

        yield gateway, call
