"""Calls on our own HTTP/2 frames, for what no gRPC library sends: any deadline header, without keeping it."""

from __future__ import annotations

import asyncio

from fleet.nodes.gateway import heads
from fleet.nodes.gateway.heads import ResponseHead
from fleet.nodes.shared import addresses
from fleet.protocol.retry import grpc_http2
from fleet.protocol.retry.grpc_http2 import Status
from fleet.transport.http2.backend_dialer import BackendDialer
from fleet.transport.http2.connection import Http2Connection
from fleet.transport.http2.fields import HeaderBlockCache, encode, plain
from fleet.transport.http2.frames import ErrorCode
from fleet.transport.http2.options import ConnectionOptions


class RawCall:
    """Listens to one call."""

    def __init__(self) -> None:
        self.data = b""
        #: How the call ended, and in which words.
        self.end_future: asyncio.Future[tuple[Status | None, str]] = (
            asyncio.get_running_loop().create_future()
        )

    def on_headers(self, head: ResponseHead, *, end: bool) -> None:
        """Take a head, or the end."""
        if end:
            self._end(head.status, grpc_http2.read_message(head.message))

    def on_data(self, data: bytes, *, end: bool) -> None:
        """Take bytes of the answer."""
        self.data += data

    def on_reset(self, code: ErrorCode, reason: str) -> None:
        """Take a reset."""
        self._end(None, f"reset: {code.name} {reason}")

    def on_lost(self, reason: str) -> None:
        """Take the loss of the connection."""
        self._end(None, f"lost: {reason}")

    def _end(self, status: Status | None, details: str) -> None:
        if not self.end_future.done():
            self.end_future.set_result((status, details))


async def open_connection(address: str, options: ConnectionOptions | None = None) -> Http2Connection:
    """One connection to a gateway. Close it."""
    options = options or ConnectionOptions(ping_after=3600.0)
    dialer = BackendDialer(
        addresses.parse(address), HeaderBlockCache(heads.read_response_head), options, within=60.0
    )
    return await dialer.dial()


async def deaf_connection(address: str) -> Http2Connection:
    """One connection on which no more than a thousand bytes of each answer are taken. Close it."""
    return await open_connection(address, ConnectionOptions(stream_window=1_000, ping_after=3600.0))


def call(connection: Http2Connection, path: str, body: bytes = b"hi", *, timeout: str = "") -> RawCall:
    """Begin a unary call with this `grpc-timeout`."""
    fields = plain(
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.encode()),
        (b":authority", b"gateway"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        *([(b"grpc-timeout", timeout.encode())] if timeout else []),
    )
    listener = RawCall()
    stream = connection.open(encode(fields))
    stream.listener = listener
    stream.send_data(b"\0" + len(body).to_bytes(4) + body, end=True)
    return listener
