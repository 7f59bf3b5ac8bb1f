"""How long to wait before trying again: exponential, with jitter, forgotten after a good while. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits of a client that redials, as upstream's tunnel programs have them, but reset by success. Seconds."""

    first: float = 1.0
    most: float = 60.0
    factor: float = 1.5
    #: Each wait is drawn from this share below and above its middle.
    jitter: float = 0.5
    #: A connection that lasted so long was a good one: the next failure is a first one.
    good_after: float = 30.0

    def wait(self, failures: int, chance: float) -> float:
        """The wait after so many failures in a row, at least 1; `chance` is in [0, 1)."""
        # The exponent is bounded so that a client without a server for weeks does not overflow a float.
        middle = min(self.first * self.factor ** min(failures - 1, 64), self.most)
        return middle * (1 - self.jitter + 2 * self.jitter * chance)

    def failures(self, previous_failures: int, duration: float) -> int:
        """Failures in a row, now that a connection ended that lasted so long."""
        return 1 if duration >= self.good_after else previous_failures + 1
