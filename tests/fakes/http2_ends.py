"""One end of an HTTP/2 connection on a wire of the test, and frames of its peer."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from fleet.transport.http2 import frames
from fleet.transport.http2.connection import Http2Connection
from fleet.transport.http2.fields import BlockCache, HeaderFields, encode, plain
from fleet.transport.http2.frames import Code, Setting, Type
from fleet.transport.http2.options import ConnectionOptions
from fleet.transport.http2.stream import Stream

REQUEST = plain((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"))
HEAD = encode(REQUEST)
RESPONSE = encode(plain((b":status", b"200")))
TRAILERS = encode(plain((b"grpc-status", b"0")))


class Wire(asyncio.Transport):
    """Keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False
        self.unsent = 0
        #: Frames of one turn of the loop go together.
        self.flush: Callable[[], None] = lambda: None

    @override
    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written += bytes(data)

    @override
    def close(self) -> None:
        self.closed = True

    @override
    def abort(self) -> None:
        self.closed = True

    @override
    def get_write_buffer_size(self) -> int:
        return self.unsent

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """Kind, flags, stream and payload of all that was written since the last time."""
        self.flush()
        found, at = [], 0
        data, self.written = self.written.removeprefix(frames.PREFACE), b""
        while at < len(data):
            length, kind, flags, number = frames.header(data, at)
            at += frames.HEADER_LENGTH + length
            found.append((kind, flags, number, data[at - length : at]))
        return found


class Heard:
    """Listens and remembers."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.seen: list[Any] = []

    def on_headers(self, head: HeaderFields, *, end: bool) -> None:
        self.seen.append(("headers", end))

    def on_data(self, data: bytes, *, end: bool) -> None:
        self.seen.append((data, end))

    def on_reset(self, code: Code, reason: str) -> None:
        self.seen.append(code)

    def on_lost(self, reason: str) -> None:
        self.seen.append(reason)


class End:
    """One connection with a wire instead of a network."""

    def __init__(self, *, server: bool, options: ConnectionOptions | None = None) -> None:
        self.wire = Wire()
        self.heard: list[Heard] = []
        self.ends: list[str] = []
        known: BlockCache[HeaderFields] = BlockCache(lambda fields: fields)
        self.connection = Http2Connection(
            known,
            options or ConnectionOptions(),
            on_stream=self._begin if server else None,
            on_end=lambda _, why: self.ends.append(why),
        )
        self.connection.connection_made(self.wire)
        self.wire.flush = self.connection.flush
        self.greeting = self.wire.frames()
        if server:
            self.connection.data_received(frames.PREFACE)

    def _begin(self, stream: Stream, made: HeaderFields) -> None:
        stream.listener = heard = Heard(stream)
        self.heard.append(heard)

    def settle(self, **values: int) -> None:
        """The peer's first frame."""
        self.connection.data_received(frames.settings({Setting[key]: value for key, value in values.items()}))
        self.wire.frames()

    def get(self, *sent: bytes) -> None:
        """The peer sends."""
        self.connection.data_received(b"".join(sent))

    def open(self) -> Heard:
        """A client's call."""
        stream = self.connection.open(HEAD)
        stream.listener = heard = Heard(stream)
        return heard


def headers(number: int, *, end: bool = False, block: bytes = HEAD, last: bool = True) -> bytes:
    flags = (frames.END_STREAM if end else 0) | (frames.END_HEADERS if last else 0)
    return frames.frame(Type.HEADERS, flags, number, block)


def data(number: int, body: bytes, *, end: bool = False) -> bytes:
    return frames.frame(Type.DATA, frames.END_STREAM if end else 0, number, body)


def code_of_goaway(end: End) -> Code:
    (payload,) = (payload for kind, _, _, payload in end.wire.frames() if kind == Type.GOAWAY)
    return Code(struct.unpack(">LL", payload[:8])[1])


def resets(end: End) -> list[tuple[int, Code]]:
    """Return the streams that this end has reset since the last time, and why."""
    return [
        (number, Code(frames.read_uint32(payload)))
        for kind, _, number, payload in end.wire.frames()
        if kind == Type.RST_STREAM
    ]
