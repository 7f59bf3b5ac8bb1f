"""A clock that goes on by itself, and skips whatever somebody would have slept."""

from __future__ import annotations

import time


class SkippingClock:
    """Real time for what is real; nobody waits for waits."""

    def __init__(self) -> None:
        #: What was slept, in seconds, in order.
        self.waits: list[float] = []
        self._skipped = 0.0

    def now(self) -> float:
        """Seconds, never backwards."""
        return time.monotonic() + self._skipped

    def sleep(self, seconds: float) -> None:
        """Skip."""
        self.waits.append(seconds)
        self._skipped += seconds

    async def sleep_async(self, seconds: float) -> None:
        """Skip."""
        self.sleep(seconds)
