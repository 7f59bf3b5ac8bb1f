"""Numbers of a connection's streams, and the meaning of frames that arrive after a stream's end. Pure.

RFC 9113 sections 5.1 and 5.1.1. Only reset streams take memory, not those that ended normally.
"""

from __future__ import annotations

from collections import deque

from fleet.transport.http2.frames import ConnectionBrokenError, ErrorCode

#: Number of reset streams that are remembered: frames for them may still be in flight.
_MOST_RESETS = 4096
#: Number of remembered gaps between the numbers that a client uses; clients normally leave none.
_GAPS = 16


class StreamNumbers:
    """Stream numbers. All are odd: clients open the streams, and servers push none."""

    def __init__(self, *, server: bool) -> None:
        self._server = server
        self._gaps: deque[range] = deque(maxlen=_GAPS)
        #: Reset streams in the order of their resets; True: reset by us.
        self._reset: dict[int, bool] = {}
        #: Greatest number that was dropped from `_reset`.
        self._highest_dropped = 0
        #: Greatest number of an opened stream.
        self.last = 0 if server else -1

    def next(self) -> int:
        """Return the number of the next stream that we open as a client."""
        self.last += 2
        return self.last

    def open(self, number: int) -> None:
        """Record a new stream of the client. Raises ConnectionBrokenError for an even number."""
        if number % 2 == 0:
            raise ConnectionBrokenError(
                ErrorCode.PROTOCOL_ERROR, f"a client must not open stream {number}: its number is even"
            )
        if number > self.last + 2:
            self._gaps.append(range(self.last + 1, number))
        self.last = number

    def reset(self, number: int, *, is_local: bool) -> None:
        """Record a reset stream; `is_local`: reset by us."""
        self._reset[number] = is_local
        if len(self._reset) > _MOST_RESETS:
            oldest = next(iter(self._reset))
            del self._reset[oldest]
            self._highest_dropped = max(self._highest_dropped, oldest)

    def is_idle(self, number: int) -> bool:
        """Return whether no stream with this number was ever opened."""
        return number > self.last or number % 2 == 0

    def check_not_idle(self, number: int) -> None:
        """Raise ConnectionBrokenError for a frame on a stream that was never opened."""
        if self.is_idle(number):
            raise ConnectionBrokenError(ErrorCode.PROTOCOL_ERROR, f"stream {number} was never opened")

    def needs_reset(self, number: int) -> bool:
        """Return whether to answer DATA or HEADERS on an ended stream with RST_STREAM.

        Frames that crossed our own reset are ignored. Raises ConnectionBrokenError where a client violates the
        protocol. A server cannot: it may have ended a stream that we have forgotten.
        """
        self.check_not_idle(number)
        is_local = self._reset.get(number)
        if is_local is not None:
            return not is_local
        if not self._server or number <= self._highest_dropped:
            return True
        if any(number in gap for gap in self._gaps):
            raise ConnectionBrokenError(
                ErrorCode.PROTOCOL_ERROR, f"stream {number} was opened after a greater one"
            )
        raise ConnectionBrokenError(ErrorCode.STREAM_CLOSED, f"stream {number} is closed")
