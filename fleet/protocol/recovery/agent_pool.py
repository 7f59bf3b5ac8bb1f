"""When an agent dials its next tunnel: one attempt at a time, with a pause after each.

Teleport's `reversetunnel/agentpool.go`. Pure: `now` and `chance`, a number in [0, 1), are arguments. What to close is
decided in `graceful_closing.py`.
"""

from __future__ import annotations

from fleet.protocol.recovery.tracker import Lease, Tracker

#: A dial that led to a proxy we hold is given up after its hello. So many in a row are followed by another one at once,
#: since something new was wanted; then each has its pause, as upstream has it, so that one that cannot be found costs
#: the others little.
_MOST_DUPLICATES = 6


class LinearBackoff:
    """Teleport's linear retry: 0 first, then step, 2 step ... up to the ceiling, each with half jitter."""

    def __init__(self, step: float = 1.0, ceiling: float = 8.0) -> None:
        self._step = step
        self._ceiling = ceiling
        self._attempts = 0
        self._used_at: float | None = None

    def next(self, now: float, chance: float) -> float:
        """The pause to make now, seconds: [d/2, d) for the attempt's d. Unused for four ceilings, it starts over."""
        self.record_use(now)
        duration = min(self._attempts * self._step, self._ceiling)
        self._attempts += 1
        return duration / 2 + chance * duration / 2

    def record_use(self, now: float) -> bool:
        """Take note that it is used; whether it was not for four ceilings, and starts over."""
        has_rested = self._used_at is not None and now - self._used_at > 4 * self._ceiling
        self._used_at = now
        if has_rested:
            self.reset()
        return has_rested

    def reset(self) -> None:
        """Start over at 0."""
        self._attempts = 0


class AgentPool:
    """Decides when to dial; the shell does the dialling and reports its end."""

    def __init__(self, tracker: Tracker, backoff: LinearBackoff | None = None) -> None:
        self.tracker = tracker
        self._backoff = backoff or LinearBackoff()
        self._is_dialling = False
        self._ready_at: float | None = None
        self._duplicates_left = _MOST_DUPLICATES

    def next_dial(self, now: float) -> Lease | None:
        """A lease to dial with now; None while another attempt or its pause runs, or nothing is wanted."""
        if self._is_dialling or (self._ready_at is not None and now < self._ready_at):
            return None
        lease = self.tracker.try_acquire(now)
        self._is_dialling = lease is not None
        return lease

    def on_dial_end(self, now: float, chance: float, *, is_duplicate: bool = False) -> None:
        """The attempt ended, well or not: the pause is the same. `held`: it led to a proxy we hold already."""
        self._is_dialling = False
        if self._backoff.record_use(now):
            self._duplicates_left = _MOST_DUPLICATES
        if is_duplicate and self._duplicates_left > 0:
            self._duplicates_left -= 1
            self._ready_at = now
            return
        self._ready_at = now + self._backoff.next(now, chance)

    def reset_backoff(self) -> None:
        """Another proxy is wanted than before: what was in vain says nothing of it, so the pauses start over at 0."""
        self._backoff.reset()
        self._duplicates_left = _MOST_DUPLICATES
        self._ready_at = None

    def wake_at(self, now: float) -> float | None:
        """When to ask again without any event; None when only an event can change the answer."""
        if self._is_dialling:
            return None
        if self._ready_at is not None and now < self._ready_at:
            return self._ready_at
        return self.tracker.next_expiry()
