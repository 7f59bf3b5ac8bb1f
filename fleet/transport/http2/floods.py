"""Peers that make us work for nothing: how much of it a connection bears."""

from __future__ import annotations

from collections.abc import Callable

from fleet.transport.http2.frames import Code, ConnectionBroken

#: A peer that reads nothing but makes us answer (pings, settings) is cut off at so many unsent bytes.
_MAX_UNSENT = 4 * 1024 * 1024
#: And at so many frames that one turn of the loop made us write.
_MAX_ANSWERS = 20_000
#: Streams that a client resets: so many at once, and so many more each second (CVE-2023-44487).
_RESETS, _RESETS_PER_SECOND = 1_000, 200


class Resets:
    """Those of one client. The clock is any that goes forward, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = float(_RESETS)
        self._at = clock()

    def count(self) -> None:
        """Take one more. Raises ConnectionBroken when they are too many."""
        at = self._clock()
        self._left = min(_RESETS, self._left + (at - self._at) * _RESETS_PER_SECOND) - 1
        self._at = at
        if self._left < 0:
            raise ConnectionBroken(Code.ENHANCE_YOUR_CALM, "too many streams were reset")


def must_read(unsent_bytes: int, unsent_frames: int) -> None:
    """Refuse to answer a peer that asks and does not read. Raises ConnectionBroken."""
    if unsent_bytes > _MAX_UNSENT or unsent_frames > _MAX_ANSWERS:
        raise ConnectionBroken(Code.ENHANCE_YOUR_CALM, "the peer asks and does not read")
