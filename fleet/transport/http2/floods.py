"""Limits against peers that cause work without a purpose (denial of service)."""

from __future__ import annotations

from collections.abc import Callable

from fleet.transport.http2.frames import ErrorCode, Http2ConnectionError

#: Maximum unsent bytes to a peer that reads nothing but requires responses (to pings, settings).
_MOST_UNSENT_BYTES = 4 * 1024 * 1024
#: Maximum frames that one turn of the loop may queue for such a peer.
_MOST_UNSENT_FRAMES = 20_000
#: Streams that a client resets, or forces us to reset: a burst, and a rate per second (CVE-2023-44487, CVE-2025-8671).
_RESET_BURST, _RESETS_PER_SECOND = 1_000, 200
#: Seconds by which a request may be read late: the server counts a deadline from the read, the client from its send.
_DEADLINE_SLACK = 0.1
#: Frames of a client without effect (CVE-2019-9512, -9513, -9515, -9518). A gRPC client with keep-alives pings at most
#: every 10 s; one that measures bandwidth pings after data, which is not counted.
_IDLE_FRAME_BURST, _IDLE_FRAMES_PER_SECOND = 100, 10


class EventBudget:
    """Token bucket for events of one client: a burst, and a rate per second. The clock is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float], burst: int, per_second: float, sentence: str) -> None:
        self._clock = clock
        self._burst = burst
        self._per_second = per_second
        self._sentence = sentence
        self._remaining = float(burst)
        self._counted_at = clock()

    def count(self) -> None:
        """Count an event. Raises Http2ConnectionError when there are too many."""
        at = self._clock()
        self._remaining = min(self._burst, self._remaining + (at - self._counted_at) * self._per_second) - 1
        self._counted_at = at
        if self._remaining < 0:
            raise Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, self._sentence)


class ResetBudget:
    """Limit of one client for streams that it resets, or forces us to reset.

    A gRPC client resets each call whose deadline has passed, at any rate. Those resets are free: with short deadlines
    a client can make the server end as many calls without any reset.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._budget = EventBudget(clock, _RESET_BURST, _RESETS_PER_SECOND, "too many streams were reset")
        #: Streams that ended here; the client may not know yet, and may reset each of them once.
        self._ended_stream_count = 0

    def record_ended_stream(self) -> None:
        """Record the end of a stream."""
        self._ended_stream_count += 1

    def count(self) -> None:
        """Count a stream that its client forced us to reset. Raises Http2ConnectionError."""
        self._budget.count()

    def count_client_reset(self, deadline_at: float | None) -> None:
        """Count a reset by the client of a stream with this deadline; None: it had ended.

        Raises Http2ConnectionError.
        """
        if deadline_at is None:
            is_free = self._ended_stream_count > 0
            self._ended_stream_count -= is_free
        else:
            is_free = self._clock() >= deadline_at - _DEADLINE_SLACK
            self._ended_stream_count -= 1  # the stream has ended, and cannot be reset again
        if not is_free:
            self._budget.count()


class IdleFrameBudget:
    """Limit of one client for frames without effect."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._ping_budget = EventBudget(
            clock, _IDLE_FRAME_BURST, _IDLE_FRAMES_PER_SECOND, "too_many_pings"
        )  # gRPC clients recognise this text
        self._other_frame_budget = EventBudget(
            clock, _IDLE_FRAME_BURST, _IDLE_FRAMES_PER_SECOND, "too many frames without effect"
        )
        self._sent_bytes_at_last_ping = 0

    def count_ping(self, sent_bytes: int) -> None:
        """Count a ping, unless data was sent since the last one (`sent_bytes` is total bytes).

        Raises Http2ConnectionError.
        """
        if sent_bytes == self._sent_bytes_at_last_ping:
            self._ping_budget.count()
        self._sent_bytes_at_last_ping = sent_bytes

    def count_other_frame(self) -> None:
        """Count SETTINGS, PRIORITY, empty DATA, or a frame of an unknown type. Raises Http2ConnectionError."""
        self._other_frame_budget.count()


def check_unsent(unsent_bytes: int, unsent_frames: int) -> None:
    """Raise Http2ConnectionError for a peer that requires responses but does not read them."""
    if unsent_bytes > _MOST_UNSENT_BYTES or unsent_frames > _MOST_UNSENT_FRAMES:
        raise Http2ConnectionError(
            ErrorCode.ENHANCE_YOUR_CALM, "the peer does not read the responses that it requires"
        )
