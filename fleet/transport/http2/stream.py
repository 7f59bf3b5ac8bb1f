"""One stream of an HTTP/2 connection: sent data waits for windows; received data is credited once forwarded."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Protocol

from fleet.transport.http2 import frames
from fleet.transport.http2.frames import ErrorCode, FrameType
from fleet.transport.http2.messages import HeaderListValidity

#: Reading an attribute of an enum is a lookup by name.
_DATA = int(FrameType.DATA)
_BODY_TOO_SHORT = "sent less than its content-length"


class StreamListener(Protocol):
    """Receives the events of a stream. None follows an end, a reset or a loss."""

    def on_headers(self, head: Any, *, end: bool) -> None:
        """Process a header list: the head or, with `end`, the trailers.

        `head` comes from the connection's `HeaderBlockCache`.
        """

    def on_data(self, data: bytes, *, end: bool) -> None:
        """Process bytes of the body. Call `Stream.release_window` once they are forwarded."""

    def on_reset(self, code: ErrorCode, reason: str) -> None:
        """Process that the peer reset the stream, or violated the protocol.

        `reason` is a predicate such as "sent …".
        """

    def on_lost(self, reason: str) -> None:
        """Process the loss of the connection."""


class StreamConnection(Protocol):
    """Interface of the connection for its streams."""

    #: Bytes that may be sent on all streams together.
    send_window: int
    peer_max_frame_size: int
    stream_window: int
    #: The peer reads too slowly: data is queued.
    is_paused: bool

    def write(self, data: bytes) -> None:
        """Send whole frames."""

    def write_headers(self, number: int, block: bytes, *, end: bool) -> None:
        """Send a header list."""

    def write_reset(self, number: int, code: ErrorCode) -> None:
        """Reset a stream."""

    def count_fault(self) -> None:
        """Count a stream that its peer broke. Raises Http2ConnectionError when there are too many."""

    def count_idle_frame(self) -> None:
        """Count an empty DATA frame. Raises Http2ConnectionError when there are too many."""

    def add_blocked_stream(self, stream: Stream) -> None:
        """Flush this stream when there is a window again."""

    def remove_stream(self, stream: Stream) -> None:
        """Remove a closed stream."""


class Stream:
    """One stream of a connection."""

    __slots__ = (
        "_connection",
        "_credit",
        "_credit_source",
        "_has_head",
        "_is_end_queued",
        "_is_server",
        "_local_ended",
        "_queue",
        "_remaining_length",
        "_remote_ended",
        "_trailers",
        "deadline_at",
        "listener",
        "number",
        "receive_window",
        "send_window",
    )

    def __init__(
        self,
        connection: StreamConnection,
        number: int,
        send_window: int,
        receive_window: int,
        *,
        is_server: bool,
    ) -> None:
        """Create a stream; the peer sends a request on it if `is_server`, else a response."""
        self._connection = connection
        self.number = number
        #: Stream that the sent bytes came from; credited when they are sent.
        self._credit_source: Stream | None = None
        #: Bytes of credit that were not announced to the peer yet.
        self._credit = 0
        self._queue: deque[bytes] = deque()
        self._is_end_queued = False
        self._trailers: bytes | None = None
        self._local_ended = False
        self._remote_ended = False
        self._is_server = is_server
        self._has_head = False
        #: Bytes of the body that must still arrive; None without content-length.
        self._remaining_length: int | None = None
        self.listener: StreamListener | None = None
        #: When the deadline of the peer's call has passed, by the loop's clock: from then on it may reset the stream.
        self.deadline_at = math.inf
        #: Bytes that may be sent, by the stream's window; negative after the peer reduced its windows.
        self.send_window = send_window
        #: Bytes that the peer may send.
        self.receive_window = receive_window

    @property
    def is_closed(self) -> bool:
        """Return whether both directions have ended."""
        return self._local_ended and self._remote_ended

    @property
    def has_pending_data(self) -> bool:
        """Return whether data waits for a window, or for a peer that reads too slowly."""
        return bool(self._queue) or self._is_end_queued or self._trailers is not None

    def credit_to(self, source: Stream) -> None:
        """Credit `source` for the bytes sent here, so that its peer may send more."""
        self._credit_source = source

    def send_headers(self, block: bytes, *, end: bool = False) -> None:
        """Send a header list, after all earlier data."""
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
        """Send bytes, queueing them until the windows allow it."""
        if self._local_ended:
            return
        size = len(data)
        connection = self._connection
        if (
            self._queue
            or connection.is_paused
            or size > self.send_window
            or size > connection.send_window
            or size > connection.peer_max_frame_size
        ):
            if data:
                self._queue.append(data)
            self._is_end_queued = self._is_end_queued or end
            self.flush()
            return
        self._write(data, end=end)

    def reset(self, code: ErrorCode) -> None:
        """End both directions at once, without calling the listener."""
        if self.is_closed:
            return
        self._connection.write_reset(self.number, code)
        self.drop()

    def release_window(self, size: int) -> None:
        """Credit `size` received bytes as forwarded: the peer may send as many more."""
        if self._remote_ended:
            return
        self._credit += size
        if self._credit >= self._connection.stream_window // 2:
            self.receive_window += self._credit
            self._connection.write(frames.window_update(self.number, self._credit))
            self._credit = 0

    def flush(self) -> None:
        """Send as much queued data as the windows allow."""
        connection = self._connection
        while self._queue and not connection.is_paused:
            room = min(self.send_window, connection.send_window, connection.peer_max_frame_size)
            if room <= 0:
                break
            data = self._queue.popleft()
            if len(data) > room:
                self._queue.appendleft(data[room:])
                data = data[:room]
            self._write(data, end=self._is_end_queued and not self._queue and self._trailers is None)
        if self._queue:
            connection.add_blocked_stream(self)
            return
        if self._trailers is not None:
            connection.write_headers(self.number, self._trailers, end=True)
            self._trailers = None
            self._end_local()
        elif self._is_end_queued and not self._local_ended:
            self._write(b"", end=True)

    def receive_headers(self, head: Any, validity: HeaderListValidity, *, end: bool) -> None:
        """Process a header list of the peer."""
        listener = self.listener
        if listener is None:
            return
        if self._remote_ended:
            self.fail(ErrorCode.STREAM_CLOSED, "sent HEADERS after the end of the stream")
            return
        if self._has_head:
            fault = validity.trailers_fault if end else "sent two header lists before the body"
        else:
            fault = validity.request_fault if self._is_server else validity.response_fault
            if not fault and validity.is_interim:
                if not end:
                    return
                fault = "ended with an interim response"
            self._has_head = True
            self._remaining_length = validity.content_length
        if end and self._remaining_length:
            fault = fault or _BODY_TOO_SHORT
        if fault:
            self.fail(ErrorCode.PROTOCOL_ERROR, fault)
            return
        if end:
            self._end_remote()
        listener.on_headers(head, end=end)

    def receive_data(self, data: bytes, size: int, *, end: bool) -> None:
        """Process DATA of the peer, `size` bytes with padding."""
        listener = self.listener
        if listener is None:
            return
        if self._remote_ended:
            self.fail(ErrorCode.STREAM_CLOSED, "sent DATA after the end of the stream")
            return
        self.receive_window -= size
        if self.receive_window < 0:
            self.fail(ErrorCode.FLOW_CONTROL_ERROR, "sent more data than the stream's window")
            return
        if self._remaining_length is not None:
            self._remaining_length -= len(data)
            if self._remaining_length < 0 or (end and self._remaining_length):
                self.fail(
                    ErrorCode.PROTOCOL_ERROR, _BODY_TOO_SHORT if end else "sent more than its content-length"
                )
                return
        if end:
            self._end_remote()
        elif size > len(data):
            self.release_window(size - len(data))
        if not data and not end:
            self._connection.count_idle_frame()
            return
        listener.on_data(data, end=end)

    def fail(self, code: ErrorCode, reason: str) -> None:
        """Reset the stream because the peer violated the protocol; the listener gets the reason."""
        listener = self.listener
        self._connection.count_fault()
        self.reset(code)
        if listener is not None:
            listener.on_reset(code, reason)

    def drop(self) -> StreamListener | None:
        """Discard the stream's state, and return its listener; None if it had none any more."""
        listener = self.listener
        self._local_ended = self._remote_ended = True
        self._queue.clear()
        self._is_end_queued, self._trailers = False, None
        self._remove()
        return listener

    def _write(self, data: bytes, *, end: bool) -> None:
        size = len(data)
        self.send_window -= size
        self._connection.send_window -= size
        self._connection.write(frames.frame(_DATA, frames.END_STREAM if end else 0, self.number, data))
        if size and self._credit_source is not None:
            self._credit_source.release_window(size)
        if end:
            self._end_local()

    def _end_local(self) -> None:
        self._local_ended = True
        self._is_end_queued = False
        self._credit_source = None
        if self._remote_ended:
            self._remove()

    def _end_remote(self) -> None:
        self._remote_ended = True
        if self._local_ended:
            self._remove()

    def _remove(self) -> None:
        # If these references stayed, the two streams of a call and the call itself would be a cycle, and would fill the
        # memory until the garbage collector runs.
        self.listener = self._credit_source = None
        self._connection.remove_stream(self)
