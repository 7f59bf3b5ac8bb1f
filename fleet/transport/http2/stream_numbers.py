"""Numbers of a connection's streams, and the meaning of frames that arrive after a stream's end. Pure.

RFC 9113 sections 5.1 and 5.1.1. Only reset streams take memory, not those that ended normally.
"""

from __future__ import annotations

from collections import deque

from fleet.transport.http2.frames import ErrorCode, Http2ConnectionError

#: Number of reset streams that are remembered: frames for them may still be in flight.
_MOST_RESETS = 4096
#: Number of remembered gaps between the numbers that a client uses; clients normally leave none.
_MOST_GAPS = 16


class StreamNumbers:
    """Stream numbers. All are odd: clients open the streams, and servers push none."""

    def __init__(self, *, is_server: bool) -> None:
        self._is_server = is_server
        self._gaps: deque[range] = deque(maxlen=_MOST_GAPS)
        #: Reset streams in the order of their resets; True: reset by us.
        self._reset_streams: dict[int, bool] = {}
        #: Greatest number that was dropped from `_reset_streams`.
        self._highest_dropped_number = 0
        #: Greatest number of an opened stream.
        self.last_opened = 0 if is_server else -1

    def next(self) -> int:
        """Return the number of the next stream that we open as a client."""
        self.last_opened += 2
        return self.last_opened

    def open(self, number: int) -> None:
        """Record a new stream of the client. Raises Http2ConnectionError for an even number."""
        if number % 2 == 0:
            raise Http2ConnectionError(
                ErrorCode.PROTOCOL_ERROR, f"a client must not open stream {number}: its number is even"
            )
        if number > self.last_opened + 2:
            self._gaps.append(range(self.last_opened + 1, number))
        self.last_opened = number

    def reset(self, number: int, *, is_local: bool) -> None:
        """Record a reset stream; `is_local`: reset by us."""
        self._reset_streams[number] = is_local
        if len(self._reset_streams) > _MOST_RESETS:
            oldest = next(iter(self._reset_streams))
            del self._reset_streams[oldest]
            self._highest_dropped_number = max(self._highest_dropped_number, oldest)

    def is_idle(self, number: int) -> bool:
        """Return whether no stream with this number was ever opened."""
        return number > self.last_opened or number % 2 == 0

    def check_not_idle(self, number: int) -> None:
        """Raise Http2ConnectionError for a frame on a stream that was never opened."""
        if self.is_idle(number):
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, f"stream {number} was never opened")

    def needs_reset(self, number: int) -> bool:
        """Return whether to answer DATA or HEADERS on an ended stream with RST_STREAM.

        Frames that crossed our own reset are ignored. Raises Http2ConnectionError where a client violates the
        protocol. A server cannot: it may have ended a stream that we have forgotten.
        """
        self.check_not_idle(number)
        is_local = self._reset_streams.get(number)
        if is_local is not None:
            return not is_local
        if not self._is_server or number <= self._highest_dropped_number:
            return True
        if any(number in gap for gap in self._gaps):
            raise Http2ConnectionError(
                ErrorCode.PROTOCOL_ERROR, f"stream {number} was opened after a greater one"
            )
        raise Http2ConnectionError(ErrorCode.STREAM_CLOSED, f"stream {number} is closed")
