"""Exponential backoff with jitter; a long-lived connection resets the count of failures. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Backoff of a client that redials: the values of upstream's tunnel programs, plus a reset on success. Seconds."""

    first: float = 1.0
    ceiling: float = 60.0
    factor: float = 1.5
    #: Share by which a wait may be shorter or longer than its mean.
    jitter: float = 0.5
    #: Seconds a connection must last to reset the count: the failure after it counts as the first.
    reset_after: float = 30.0

    def wait(self, failures: int, chance: float) -> float:
        """Return the wait in seconds after `failures` failures in a row (at least 1); `chance` is in [0, 1)."""
        # The exponent is bounded: a client without a server for weeks must not overflow a float.
        middle = min(self.first * self.factor ** min(failures - 1, 64), self.ceiling)
        return middle * (1 - self.jitter + 2 * self.jitter * chance)

    def failures_after(self, previous_failures: int, duration: float) -> int:
        """Return the count of failures in a row after a connection that lasted `duration` seconds ended."""
        return 1 if duration >= self.reset_after else previous_failures + 1
