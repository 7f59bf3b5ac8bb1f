"""A clock that skips sleeps: it follows the real time, and adds what would have been slept."""

from __future__ import annotations

import time


class SkippingClock:
    """Real time plus the skipped sleeps."""

    def __init__(self) -> None:
        #: The skipped sleeps in seconds, in order.
        self.waits: list[float] = []
        self._skipped_seconds = 0.0

    def now(self) -> float:
        """Return seconds that never go backwards."""
        return time.monotonic() + self._skipped_seconds

    def sleep(self, seconds: float) -> None:
        """Skip a sleep."""
        self.waits.append(seconds)
        self._skipped_seconds += seconds

    async def sleep_async(self, seconds: float) -> None:
        """Skip a sleep."""
        self.sleep(seconds)
