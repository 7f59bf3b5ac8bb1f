"""When an agent dials its next tunnel: one attempt at a time, with a pause after each.

Teleport's `reversetunnel/agentpool.go`. Pure: `now` and `chance`, a number in [0, 1), are arguments. What to close is
decided in `graceful_closing.py`.
"""

from __future__ import annotations

from fleet.protocol.tracker import Lease, Tracker


class LinearBackoff:
    """Teleport's linear retry: 0 first, then step, 2 step ... up to the ceiling, each with half jitter."""

    def __init__(self, step: float = 1.0, ceiling: float = 8.0) -> None:
        self._step = step
        self._ceiling = ceiling
        self._attempts = 0
        self._used_at: float | None = None

    def next(self, now: float, chance: float) -> float:
        """The pause to make now, seconds: [d/2, d) for the attempt's d. Unused for four ceilings, it starts over."""
        if self._used_at is not None and now - self._used_at > 4 * self._ceiling:
            self._attempts = 0
        self._used_at = now
        duration = min(self._attempts * self._step, self._ceiling)
        self._attempts += 1
        return duration / 2 + chance * duration / 2

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

    def next_dial(self, now: float) -> Lease | None:
        """A lease to dial with now; None while another attempt or its pause runs, or nothing is wanted."""
        if self._dialling or (self._ready_at is not None and now < self._ready_at):
            return None
        lease = self.tracker.try_acquire(now)
        self._dialling = lease is not None
        return lease

    def dial_ended(self, now: float, chance: float) -> None:
        """The attempt ended, well or not: the pause is the same, since a balancer may give the same proxy again."""
        self._dialling = False
        self._ready_at = now + self._backoff.next(now, chance)

    def wake_at(self, now: float) -> float | None:
        """When to ask again without any event; None when only an event can change the answer."""
        if self._dialling:
            return None
        if self._ready_at is not None and now < self._ready_at:
            return self._ready_at
        return self.tracker.next_expiry()
