"""One endpoint of an HTTP/2 connection on a transport of the test, and frames of its peer."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from fleet.transport.http2 import frames
from fleet.transport.http2.connection import Http2Connection
from fleet.transport.http2.fields import HeaderBlockCache, HeaderFields, encode, plain
from fleet.transport.http2.frames import ErrorCode, FrameType, SettingId
from fleet.transport.http2.options import ConnectionOptions
from fleet.transport.http2.stream import Stream

REQUEST = plain((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"))
HEAD = encode(REQUEST)
RESPONSE = encode(plain((b":status", b"200")))
TRAILERS = encode(plain((b"grpc-status", b"0")))


class RecordingTransport(asyncio.Transport):
    """Transport that records the bytes that the connection writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written_bytes = b""
        self.is_closed = False
        self.unsent_size = 0
        #: Sends the frames that the connection collects in one turn of the loop.
        self.flush: Callable[[], None] = lambda: None

    @override
    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written_bytes += bytes(data)

    @override
    def close(self) -> None:
        self.is_closed = True

    @override
    def abort(self) -> None:
        self.is_closed = True

    @override
    def get_write_buffer_size(self) -> int:
        return self.unsent_size

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """Return kind, flags, stream and payload of the frames written since the last call."""
        self.flush()
        written_frames, at = [], 0
        data, self.written_bytes = self.written_bytes.removeprefix(frames.PREFACE), b""
        while at < len(data):
            length, kind, flags, number = frames.read_header(data, at)
            at += frames.HEADER_LENGTH + length
            written_frames.append((kind, flags, number, data[at - length : at]))
        return written_frames


class StreamRecorder:
    """Stream listener that records its events."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.events: list[Any] = []

    def on_headers(self, head: HeaderFields, *, end: bool) -> None:
        self.events.append(("headers", end))

    def on_data(self, data: bytes, *, end: bool) -> None:
        self.events.append((data, end))

    def on_reset(self, code: ErrorCode, reason: str) -> None:
        self.events.append(code)

    def on_lost(self, reason: str) -> None:
        self.events.append(reason)


class Endpoint:
    """A connection with a transport of the test instead of a network."""

    def __init__(self, *, server: bool, options: ConnectionOptions | None = None) -> None:
        self.transport = RecordingTransport()
        self.recorders: list[StreamRecorder] = []
        self.end_reasons: list[str] = []
        blocks: HeaderBlockCache[HeaderFields] = HeaderBlockCache(lambda fields: fields)
        self.connection = Http2Connection(
            blocks,
            options or ConnectionOptions(),
            on_stream=self._add_stream if server else None,
            on_end=lambda _, reason: self.end_reasons.append(reason),
        )
        self.connection.connection_made(self.transport)
        self.transport.flush = self.connection.flush
        self.first_frames = self.transport.frames()
        if server:
            self.connection.data_received(frames.PREFACE)

    def _add_stream(self, stream: Stream, fields: HeaderFields) -> None:
        stream.listener = recorder = StreamRecorder(stream)
        self.recorders.append(recorder)

    def receive_settings(self, **values: int) -> None:
        """Receive the SETTINGS of the peer, its first frame."""
        self.connection.data_received(
            frames.settings({SettingId[key]: value for key, value in values.items()})
        )
        self.transport.frames()

    def receive(self, *frames_of_peer: bytes) -> None:
        """Receive frames of the peer."""
        self.connection.data_received(b"".join(frames_of_peer))

    def open(self) -> StreamRecorder:
        """Open a stream as a client."""
        stream = self.connection.open(HEAD)
        stream.listener = recorder = StreamRecorder(stream)
        return recorder


def headers(number: int, *, end: bool = False, block: bytes = HEAD, is_complete: bool = True) -> bytes:
    flags = (frames.END_STREAM if end else 0) | (frames.END_HEADERS if is_complete else 0)
    return frames.frame(FrameType.HEADERS, flags, number, block)


def data(number: int, body: bytes, *, end: bool = False) -> bytes:
    return frames.frame(FrameType.DATA, frames.END_STREAM if end else 0, number, body)


def code_of_goaway(endpoint: Endpoint) -> ErrorCode:
    (payload,) = (payload for kind, _, _, payload in endpoint.transport.frames() if kind == FrameType.GOAWAY)
    return ErrorCode(struct.unpack(">LL", payload[:8])[1])


def sent_resets(endpoint: Endpoint) -> list[tuple[int, ErrorCode]]:
    """Return stream and code of the resets sent since the last call."""
    return [
        (number, ErrorCode(frames.read_uint32(payload)))
        for kind, _, number, payload in endpoint.transport.frames()
        if kind == FrameType.RST_STREAM
    ]
