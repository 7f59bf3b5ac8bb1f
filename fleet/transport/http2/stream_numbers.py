"""The numbers of one connection's streams, and what a frame means that comes after a stream's end. Pure.

RFC 9113 sections 5.1 and 5.1.1. Memory is used for streams that were reset, not for those that ended well.
"""

from __future__ import annotations

from collections import deque

from fleet.transport.http2.frames import Code, ConnectionBrokenError

#: Reset streams that are remembered: frames may still be on their way to them.
_MOST_RESETS = 4096
#: Gaps that are remembered between the numbers a client uses; clients leave none.
_GAPS = 16


class StreamNumbers:
    """Streams are odd: a client opens them, and no server pushes any."""

    def __init__(self, *, server: bool) -> None:
        self._server = server
        self._gaps: deque[range] = deque(maxlen=_GAPS)
        #: Reset streams in the order of their resets; True: by our end.
        self._reset: dict[int, bool] = {}
        #: The greatest number that was dropped from `_reset`.
        self._highest_dropped = 0
        #: The greatest number of a stream that was opened.
        self.last = 0 if server else -1

    def next(self) -> int:
        """Return the number of the stream that we open as a client."""
        self.last += 2
        return self.last

    def open(self, number: int) -> None:
        """Note a stream that the client opened with a new number. Raises ConnectionBroken."""
        if number % 2 == 0:
            raise ConnectionBrokenError(Code.PROTOCOL_ERROR, f"a client cannot open stream {number}: it is even")
        if number > self.last + 2:
            self._gaps.append(range(self.last + 1, number))
        self.last = number

    def reset(self, number: int, *, is_local: bool) -> None:
        """Note a stream that was reset, here or by the peer."""
        self._reset[number] = is_local
        if len(self._reset) > _MOST_RESETS:
            oldest = next(iter(self._reset))
            del self._reset[oldest]
            self._highest_dropped = max(self._highest_dropped, oldest)

    def is_idle(self, number: int) -> bool:
        """Return whether no stream of this number was ever opened."""
        return number > self.last or number % 2 == 0

    def check_not_idle(self, number: int) -> None:
        """Refuse a frame on a stream that was never opened. Raises ConnectionBroken."""
        if self.is_idle(number):
            raise ConnectionBrokenError(Code.PROTOCOL_ERROR, f"stream {number} was never opened")

    def needs_reset(self, number: int) -> bool:
        """Return whether DATA or HEADERS on a stream that is over is answered by RST_STREAM.

        It is passed over if our own reset was on its way. Raises ConnectionBroken where a client cannot mean well. A
        server may: it had ended a stream that we forgot.
        """
        self.check_not_idle(number)
        is_local = self._reset.get(number)
        if is_local is not None:
            return not is_local
        if not self._server or number <= self._highest_dropped:
            return True
        if any(number in gap for gap in self._gaps):
            raise ConnectionBrokenError(Code.PROTOCOL_ERROR, f"stream {number} begins after a greater one")
        raise ConnectionBrokenError(Code.STREAM_CLOSED, f"stream {number} is closed")
