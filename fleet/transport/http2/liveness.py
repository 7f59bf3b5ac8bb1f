"""A peer that is frozen: silence while calls are open is asked by a ping, and one that is not answered ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fleet.transport.http2 import frames
from fleet.transport.http2.frames import Type

_PING = frames.frame(Type.PING, 0, 0, b"refloat?")


class Liveness:
    """Of one connection, and one event loop."""

    def __init__(
        self,
        ping_after: float,
        answer_within: float,
        *,
        wanted: Callable[[], bool],
        send: Callable[[bytes], None],
        dead: Callable[[str], None],
    ) -> None:
        """Watch nothing yet. `wanted` says whether anybody waits for the peer; `dead` is told why. Seconds."""
        self._ping_after = ping_after
        self._answer_within = answer_within
        self._wanted = wanted
        self._send = send
        self._dead = dead
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._pinged_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def heard(self) -> None:
        """Something came."""
        self._heard_at = self._loop.time()

    def answered(self) -> None:
        """Our ping was answered."""
        self._pinged_at = None

    def watch(self) -> None:
        """Somebody waits for the peer from now on."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._ping_after, self._look)

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if not self._wanted():
            return
        now = self._loop.time()
        if self._pinged_at is not None and self._heard_at < self._pinged_at:
            self._dead(f"no answer to a ping within {self._answer_within:g} s")
            return
        wait = self._ping_after - (now - self._heard_at)
        if wait <= 0:
            self._pinged_at = now
            self._send(_PING)
            wait = self._answer_within
        self._timer = self._loop.call_later(wait, self._look)
