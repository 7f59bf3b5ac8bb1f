"""Peers that make us work for nothing: how much of it a connection bears."""

from __future__ import annotations

from collections.abc import Callable

from fleet.transport.http2.frames import Code, ConnectionBrokenError

#: A peer that reads nothing but makes us answer (pings, settings) is cut off at so many unsent bytes.
_MAX_UNSENT = 4 * 1024 * 1024
#: And at so many frames that one turn of the loop made us write.
_MAX_ANSWERS = 20_000
#: Streams that a client resets, or makes us reset: so many at once, and so many more each second (CVE-2023-44487,
#: CVE-2025-8671).
_RESETS, _RESETS_PER_SECOND = 1_000, 200
#: A request may be read so late, seconds: a deadline is counted from then on, by its client from before.
_DEADLINE_SLACK = 0.1
#: Frames of a client that move nothing (CVE-2019-9512, -9513, -9515, -9518). A gRPC client that keeps its connection
#: alive pings every 10 s at most; one that measures bandwidth pings after data, which is not counted.
_IDLE, _IDLE_PER_SECOND = 100, 10


class EventBudget:
    """So many events of one client at once, and so many more each second. The clock goes forward, in seconds."""

    def __init__(self, clock: Callable[[], float], burst: int, per_second: float, sentence: str) -> None:
        self._clock = clock
        self._burst = burst
        self._per_second = per_second
        self._sentence = sentence
        self._remaining = float(burst)
        self._at = clock()

    def count(self) -> None:
        """Take one more event. Raises ConnectionBroken when there were too many."""
        at = self._clock()
        self._remaining = min(self._burst, self._remaining + (at - self._at) * self._per_second) - 1
        self._at = at
        if self._remaining < 0:
            raise ConnectionBrokenError(Code.ENHANCE_YOUR_CALM, self._sentence)


class ResetBudget:
    """The budget of one client for streams that it resets, or makes us reset.

    A gRPC client resets each call whose deadline is over, at any rate. Those resets are free: whoever sends short
    deadlines has the server end as many calls without any reset.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._budget = EventBudget(clock, _RESETS, _RESETS_PER_SECOND, "too many streams were reset")
        #: Streams that ended here: their client may not know it yet, and reset each of them once.
        self._ended_count = 0

    def record_ended_stream(self) -> None:
        """Note a stream that is over."""
        self._ended_count += 1

    def count(self) -> None:
        """Count a stream that its client made us reset. Raises ConnectionBroken."""
        self._budget.count()

    def count_client_reset(self, deadline_at: float | None) -> None:
        """Count a reset by the client, of a stream with that deadline; None: it was over. Raises ConnectionBroken."""
        if deadline_at is None:
            is_free = self._ended_count > 0
            self._ended_count -= is_free
        else:
            is_free = self._clock() >= deadline_at - _DEADLINE_SLACK
            self._ended_count -= 1  # the stream is over now, and cannot be reset again
        if not is_free:
            self._budget.count()


class IdleFrameBudget:
    """The budget of one client for frames that move nothing."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._pings = EventBudget(
            clock, _IDLE, _IDLE_PER_SECOND, "too_many_pings"
        )  # gRPC clients know these words
        self._other_frames = EventBudget(clock, _IDLE, _IDLE_PER_SECOND, "too many frames that move nothing")
        self._sent_bytes = 0

    def count_ping(self, sent_bytes: int) -> None:
        """Take a ping, when so many bytes of data had been sent to its peer. Raises ConnectionBroken."""
        if sent_bytes == self._sent_bytes:
            self._pings.count()
        self._sent_bytes = sent_bytes

    def count_other(self) -> None:
        """Take SETTINGS, PRIORITY, DATA without data, or a frame of an unknown type. Raises ConnectionBroken."""
        self._other_frames.count()


def check_unsent(unsent_bytes: int, unsent_frames: int) -> None:
    """Refuse to answer a peer that asks and does not read. Raises ConnectionBroken."""
    if unsent_bytes > _MAX_UNSENT or unsent_frames > _MAX_ANSWERS:
        raise ConnectionBrokenError(Code.ENHANCE_YOUR_CALM, "the peer asks and does not read")
