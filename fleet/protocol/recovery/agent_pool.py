"""When an agent dials its next tunnel: one attempt at a time, with a pause after each.

Teleport's `reversetunnel/agentpool.go`. Pure: `now` and `chance`, a number in [0, 1), are arguments. What to close is
decided in `graceful_closing.py`.
"""

from __future__ import annotations

from fleet.protocol.recovery.tracker import Lease, Tracker

#: A dial that led to a proxy we hold is given up after its hello. So many in a row are followed by another one at once,
#: since something new was wanted; then each has its pause, as upstream has it, so that one that cannot be found costs
#: the others little.
_DRAWS = 6


class LinearBackoff:
    """Teleport's linear retry: 0 first, then step, 2 step ... up to the ceiling, each with half jitter."""

    def __init__(self, step: float = 1.0, ceiling: float = 8.0) -> None:
        self._step = step
        self._ceiling = ceiling
        self._attempts = 0
        self._used_at: float | None = None

    def next(self, now: float, chance: float) -> float:
        """The pause to make now, seconds: [d/2, d) for the attempt's d. Unused for four ceilings, it starts over."""
        self.rest(now)
        duration = min(self._attempts * self._step, self._ceiling)
        self._attempts += 1
        return duration / 2 + chance * duration / 2

    def rest(self, now: float) -> bool:
        """Take note that it is used; whether it was not for four ceilings, and starts over."""
        rested = self._used_at is not None and now - self._used_at > 4 * self._ceiling
        self._used_at = now
        if rested:
            self.reset()
        return rested

    def reset(self) -> None:
        """Start over at 0."""
        self._attempts = 0


class AgentPool:
    """Decides when to dial; the shell does the dialling and reports its end."""

    def __init__(self, tracker: Tracker, backoff: LinearBackoff | None = None) -> None:
        self.tracker = tracker
        self._backoff = backoff or LinearBackoff()
        self._dialling = False
        self._ready_at: float | None = None
        self._draws = _DRAWS

    def next_dial(self, now: float) -> Lease | None:
        """A lease to dial with now; None while another attempt or its pause runs, or nothing is wanted."""
        if self._dialling or (self._ready_at is not None and now < self._ready_at):
            return None
        lease = self.tracker.try_acquire(now)
        self._dialling = lease is not None
        return lease

    def dial_ended(self, now: float, chance: float, *, held: bool = False) -> None:
        """The attempt ended, well or not: the pause is the same. `held`: it led to a proxy we hold already."""
        self._dialling = False
        if self._backoff.rest(now):
            self._draws = _DRAWS
        if held and self._draws > 0:
            self._draws -= 1
            self._ready_at = now
            return
        self._ready_at = now + self._backoff.next(now, chance)

    def hasten(self) -> None:
        """Another proxy is wanted than before: what was in vain says nothing of it, so the pauses start over at 0."""
        self._backoff.reset()
        self._draws = _DRAWS
        self._ready_at = None

    def wake_at(self, now: float) -> float | None:
        """When to ask again without any event; None when only an event can change the answer."""
        if self._dialling:
            return None
        if self._ready_at is not None and now < self._ready_at:
            return self._ready_at
        return self.tracker.next_expiry()
