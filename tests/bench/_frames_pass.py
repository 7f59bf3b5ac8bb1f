"""The bare pass-through of the gateway's bench, on the gateway's HTTP/2: every frame goes on, nothing is decided.

No rule, no picker, no metric, no timer, nothing kept to be sent again: what is left is Python's part of reading and
writing frames. python -m tests.bench._frames_pass HOST:PORT
"""

from __future__ import annotations

import asyncio
import json
import sys

import uvloop

from fleet.nodes.shared import addresses
from fleet.transport.http2.backend_dialer import BackendDialer
from fleet.transport.http2.connection import Http2Connection
from fleet.transport.http2.fields import HeaderBlockCache, encode
from fleet.transport.http2.frames import ErrorCode
from fleet.transport.http2.options import ConnectionOptions
from fleet.transport.http2.stream import Stream


class _Relay:
    """Relays the events of one stream to another."""

    __slots__ = ("_to",)

    def __init__(self, to: Stream) -> None:
        self._to = to

    def on_headers(self, head: bytes, *, end: bool) -> None:
        self._to.send_headers(head, end=end)

    def on_data(self, data: bytes, *, end: bool) -> None:
        self._to.send_data(data, end=end)

    def on_reset(self, code: ErrorCode, reason: str) -> None:
        del reason
        self._to.reset(code)

    def on_lost(self, reason: str) -> None:
        del reason
        self._to.reset(ErrorCode.INTERNAL_ERROR)


class _Caller:
    """Waits for a call's headers, then opens its stream to the server."""

    __slots__ = ("_dialer", "_stream")

    def __init__(self, stream: Stream, dialer: BackendDialer) -> None:
        self._stream = stream
        self._dialer = dialer

    def on_headers(self, head: bytes, *, end: bool) -> None:
        connection = self._dialer.find_ready_connection()
        assert connection is not None, "the benchmark's server does not go away"
        outward = connection.open(head, end=end)
        outward.listener = _Relay(self._stream)
        outward.credit_to(self._stream)
        self._stream.credit_to(outward)
        self._stream.listener = _Relay(outward)

    def on_data(self, data: bytes, *, end: bool) -> None:
        raise AssertionError("unreachable: a head comes first")

    def on_reset(self, code: ErrorCode, reason: str) -> None:
        """Nothing to reset: the call has no stream to the server yet."""

    def on_lost(self, reason: str) -> None:
        """Nothing to reset: the call has no stream to the server yet."""


async def pass_on(to: str) -> None:
    """Listen on a port of the system's choice until ended."""
    options = ConnectionOptions()
    blocks: HeaderBlockCache[bytes] = HeaderBlockCache(encode)
    dialer = BackendDialer(addresses.parse(to), blocks, options)
    await dialer.dial()

    def begin(stream: Stream, head: bytes) -> None:
        del head  # on_headers gets it too, with `end`
        stream.listener = _Caller(stream, dialer)

    server = await asyncio.get_running_loop().create_server(
        lambda: Http2Connection(blocks, options, on_stream=begin), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"event": "ready", "grpc": f"127.0.0.1:{port}"}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(pass_on(sys.argv[1]))
