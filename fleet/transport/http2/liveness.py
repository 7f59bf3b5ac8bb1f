"""Detection of a frozen peer: silence while calls are open leads to a ping, and an unanswered ping ends the connection.

gRPC servers end a connection with `too_many_pings` after more than two pings within 5 minutes of each other, unless
they sent data in between (gRFC A8, and `EnforcementPolicy` of grpc-go). Data that came after the answer to the last
ping was sent after that ping was counted, so one more ping is allowed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fleet.transport.http2 import frames
from fleet.transport.http2.frames import FrameType

_PING = frames.frame(FrameType.PING, 0, 0, b"refloat?")


class Liveness:
    """Liveness of one connection, on one event loop."""

    def __init__(
        self,
        ping_after: float,
        answer_within: float,
        ping_interval_without_data: float,
        *,
        has_calls: Callable[[], bool],
        send: Callable[[bytes], None],
        on_dead_peer: Callable[[str], None],
    ) -> None:
        """Start idle. Times are in seconds.

        `ping_interval_without_data` is the minimum time between two pings without data in between. `has_calls` returns
        whether a call waits for the peer; `on_dead_peer` is called with the reason.
        """
        self._ping_after = ping_after
        self._answer_within = answer_within
        self._ping_interval_without_data = ping_interval_without_data
        self._has_calls = has_calls
        self._send = send
        self._on_dead_peer = on_dead_peer
        self._loop = asyncio.get_running_loop()
        self._last_seen_at = self._loop.time()
        #: Time of the last ping; None after its answer.
        self._unanswered_ping_at: float | None = None
        self._last_ping_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        #: True if DATA or HEADERS came since the answer to the last ping; set by the connection.
        self.has_data_since_ping = False

    def record_activity(self) -> None:
        """Record that bytes arrived."""
        self._last_seen_at = self._loop.time()

    def record_ping_ack(self) -> None:
        """Record the answer to our ping."""
        self._unanswered_ping_at = None
        self.has_data_since_ping = False

    def watch(self) -> None:
        """Start to watch, because a call waits for the peer."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._ping_after, self._check)

    def stop(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self._timer = None
        if not self._has_calls():
            return
        now = self._loop.time()
        if self._unanswered_ping_at is not None and self._last_seen_at < self._unanswered_ping_at:
            self._on_dead_peer(f"no answer to a ping within {self._answer_within:g} s")
            return
        wait = self._ping_after - (now - self._last_seen_at)
        if wait <= 0:
            # At most `ping_after`: data that arrives in the meantime permits an earlier ping.
            wait = min(self._last_ping_at + self._ping_interval_without_data - now, self._ping_after)
            if self.has_data_since_ping or wait <= 0:
                self._unanswered_ping_at = self._last_ping_at = now
                self._send(_PING)
                wait = self._answer_within
        self._timer = self._loop.call_later(wait, self._check)
