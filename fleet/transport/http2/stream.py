"""One stream of an HTTP/2 connection: what is sent waits for windows; what is read is credited when passed on."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from fleet.transport.http2 import frames
from fleet.transport.http2.frames import Code, Type


class Listener(Protocol):
    """Told what comes on a stream. Nothing comes after an end, a reset or a loss."""

    def on_headers(self, made: Any, *, end: bool) -> None:
        """A list of fields: the head or, at the end, the trailers; as the connection's `Known` made it."""

    def on_data(self, data: bytes, *, end: bool) -> None:
        """Bytes of the body. Call `Stream.consumed` when they are passed on."""

    def on_reset(self, code: Code, why: str) -> None:
        """The peer ended the stream, or broke its protocol."""

    def on_lost(self, why: str) -> None:
        """The connection is gone."""


class Carrier(Protocol):
    """The connection, as streams need it."""

    #: Bytes that may be sent on all streams together.
    window: int
    peer_frame: int
    stream_window: int
    #: The peer reads too slowly: data waits.
    paused: bool

    def write(self, data: bytes) -> None:
        """Send bytes of whole frames."""

    def write_headers(self, number: int, block: bytes, *, end: bool) -> None:
        """Send a list of fields."""

    def write_reset(self, number: int, code: Code) -> None:
        """End a stream."""

    def block(self, stream: Stream) -> None:
        """Flush this stream when there is a window again."""

    def forget(self, stream: Stream) -> None:
        """It is closed."""


class Stream:
    """One of a connection's streams."""

    __slots__ = (
        "_connection",
        "_credit",
        "_credited",
        "_local_ended",
        "_queue",
        "_queued_end",
        "_remote_ended",
        "_trailers",
        "listener",
        "number",
        "readable",
        "window",
    )

    def __init__(self, connection: Carrier, number: int, window: int, readable: int) -> None:
        self._connection = connection
        self.number = number
        #: Whose bytes these are: told when they are on their way.
        self._credited: Stream | None = None
        #: Bytes the peer may be allowed to send anew.
        self._credit = 0
        self._queue: deque[bytes] = deque()
        self._queued_end = False
        self._trailers: bytes | None = None
        self._local_ended = False
        self._remote_ended = False
        self.listener: Listener | None = None
        #: Bytes we may send, by the stream's window; below 0 after the peer made windows smaller.
        self.window = window
        #: Bytes the peer may send.
        self.readable = readable

    @property
    def closed(self) -> bool:
        """Whether nothing comes or goes any more."""
        return self._local_ended and self._remote_ended

    @property
    def waiting(self) -> bool:
        """Whether something waits for a window, or for a peer that reads too slowly."""
        return bool(self._queue) or self._queued_end or self._trailers is not None

    def credit_to(self, source: Stream) -> None:
        """What is sent here came from `source`: it may read on when that is on its way."""
        self._credited = source

    def send_headers(self, block: bytes, *, end: bool = False) -> None:
        """Send a list of fields, after the data before it."""
        if self._local_ended:
            return
        if self._queue:
            assert end, "only trailers come after data"
            self._trailers = block
            return
        self._connection.write_headers(self.number, block, end=end)
        if end:
            self._end_local()

    def send_data(self, data: bytes, *, end: bool = False) -> None:
        """Send bytes, as windows allow."""
        if self._local_ended:
            return
        size = len(data)
        connection = self._connection
        if (
            self._queue
            or connection.paused
            or size > self.window
            or size > connection.window
            or size > connection.peer_frame
        ):
            if data:
                self._queue.append(data)
            self._queued_end = self._queued_end or end
            self.flush()
            return
        self._write(data, end=end)

    def reset(self, code: Code) -> None:
        """End the stream both ways, at once; the listener is told nothing."""
        if self.closed:
            return
        self._connection.write_reset(self.number, code)
        self.drop()

    def consumed(self, size: int) -> None:
        """So many bytes that were read are passed on: the peer may send as many more."""
        if self._remote_ended:
            return
        self._credit += size
        if self._credit >= self._connection.stream_window // 2:
            self.readable += self._credit
            self._connection.write(frames.window_update(self.number, self._credit))
            self._credit = 0

    def flush(self) -> None:
        """Send what waits, as much as may be."""
        connection = self._connection
        while self._queue and not connection.paused:
            room = min(self.window, connection.window, connection.peer_frame)
            if room <= 0:
                break
            data = self._queue.popleft()
            if len(data) > room:
                self._queue.appendleft(data[room:])
                data = data[:room]
            self._write(data, end=self._queued_end and not self._queue and self._trailers is None)
        if self._queue:
            connection.block(self)
            return
        if self._trailers is not None:
            connection.write_headers(self.number, self._trailers, end=True)
            self._trailers = None
            self._end_local()
        elif self._queued_end and not self._local_ended:
            self._write(b"", end=True)

    def headers(self, made: Any, *, end: bool) -> None:
        """Take in what the peer sent."""
        listener = self.listener
        if self._remote_ended or listener is None:
            return
        if end:
            self._end_remote()
        listener.on_headers(made, end=end)

    def data(self, data: bytes, size: int, *, end: bool) -> None:
        """Take in what the peer sent, `size` bytes with padding."""
        listener = self.listener
        if self._remote_ended or listener is None:
            return
        self.readable -= size
        if self.readable < 0:
            self.reset(Code.FLOW_CONTROL_ERROR)
            listener.on_reset(Code.FLOW_CONTROL_ERROR, "it sent more than it was allowed to")
            return
        if end:
            self._end_remote()
        elif size > len(data):
            self.consumed(size - len(data))
        listener.on_data(data, end=end)

    def drop(self) -> Listener | None:
        """Forget everything; whom to tell of it."""
        listener, self.listener = self.listener, None
        self._local_ended = self._remote_ended = True
        self._queue.clear()
        self._queued_end, self._trailers = False, None
        self._connection.forget(self)
        return listener

    def _write(self, data: bytes, *, end: bool) -> None:
        size = len(data)
        self.window -= size
        self._connection.window -= size
        self._connection.write(frames.frame(Type.DATA, frames.END_STREAM if end else 0, self.number, data))
        if size and self._credited is not None:
            self._credited.consumed(size)
        if end:
            self._end_local()

    def _end_local(self) -> None:
        self._local_ended = True
        self._queued_end = False
        if self._remote_ended:
            self._connection.forget(self)

    def _end_remote(self) -> None:
        self._remote_ended = True
        if self._local_ended:
            self._connection.forget(self)
