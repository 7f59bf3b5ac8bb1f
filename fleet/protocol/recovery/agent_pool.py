"""Schedule of an agent's dials: one attempt at a time, with a pause after each.

Teleport's `reversetunnel/agentpool.go`. Pure: `now` and `chance`, a number in [0, 1), are arguments.
`graceful_closing.py` decides which tunnels to close.
"""

from __future__ import annotations

from fleet.protocol.recovery.tracker import Tracker, TunnelLease

#: Dials without a pause after they reached a proxy that the agent has a tunnel to already: the agent closes such a
#: connection after the hello and dials again, since it needs another proxy. Of 4 n dials to any of n proxies, 2 % miss
#: the one that the agent needs. After so many each dial has its pause, as upstream, so that a proxy that cannot be
#: reached causes little load on the others.
_FREE_DUPLICATES_PER_PROXY = 4
_MIN_FREE_DUPLICATES = 6
_MAX_FREE_DUPLICATES = 32
_BACKOFF_STEP = 1.0
_BACKOFF_CEILING = 8.0


def free_duplicates_of(proxy_count: int) -> int:
    """Return the number of dials without a pause after they reached a proxy with a tunnel of the agent."""
    return min(max(_FREE_DUPLICATES_PER_PROXY * proxy_count, _MIN_FREE_DUPLICATES), _MAX_FREE_DUPLICATES)


def mean_pause_of(attempt: int) -> float:
    """Return the mean pause after attempt `attempt`, from 0 on, seconds."""
    return 0.75 * min(attempt * _BACKOFF_STEP, _BACKOFF_CEILING)


class LinearBackoff:
    """Teleport's linear retry: 0, step, 2 * step … up to the ceiling, each with half jitter. Seconds."""

    def __init__(self, step: float = _BACKOFF_STEP, ceiling: float = _BACKOFF_CEILING) -> None:
        self._step = step
        self._ceiling = ceiling
        self._attempt_count = 0
        self._used_at: float | None = None

    def next_pause(self, now: float, chance: float) -> float:
        """Return the pause in seconds: [d/2, d) for the attempt's d. Starts over after four ceilings without use."""
        self.record_use(now)
        duration = min(self._attempt_count * self._step, self._ceiling)
        self._attempt_count += 1
        return duration / 2 + chance * duration / 2

    def record_use(self, now: float) -> bool:
        """Record a use, and return whether the backoff starts over after four ceilings without use."""
        has_rested = self._used_at is not None and now - self._used_at > 4 * self._ceiling
        self._used_at = now
        if has_rested:
            self.reset()
        return has_rested

    def reset(self) -> None:
        """Start over at a pause of 0 s."""
        self._attempt_count = 0


class AgentPool:
    """Decides when to dial; the caller dials and reports the end of each attempt."""

    def __init__(self, tracker: Tracker, backoff: LinearBackoff | None = None) -> None:
        self.tracker = tracker
        self._backoff = backoff or LinearBackoff()
        self._is_dialing = False
        self._next_dial_at: float | None = None
        self._duplicate_count = 0

    def next_dial(self, now: float) -> TunnelLease | None:
        """Return a lease to dial with now; None while an attempt or its pause lasts, or no tunnel is needed."""
        if self._is_dialing or (self._next_dial_at is not None and now < self._next_dial_at):
            return None
        lease = self.tracker.try_acquire(now)
        self._is_dialing = lease is not None
        return lease

    def on_dial_end(self, now: float, chance: float, *, is_duplicate: bool = False) -> None:
        """Record the end of an attempt, successful or not.

        `is_duplicate`: it reached a proxy with a tunnel of this agent.
        """
        self._is_dialing = False
        if self._backoff.record_use(now):
            self._duplicate_count = 0
        if is_duplicate and self._duplicate_count < free_duplicates_of(self.tracker.desired_proxy_count(now)):
            self._duplicate_count += 1
            self._next_dial_at = now
            return
        self._next_dial_at = now + self._backoff.next_pause(now, chance)

    def reset_backoff(self) -> None:
        """Start the pauses over at 0 s, because more or other proxies are needed: past failures do not count."""
        self._backoff.reset()
        self._duplicate_count = 0
        self._next_dial_at = None

    def wake_at(self, now: float) -> float | None:
        """Return when to call `next_dial` again without any event; None when only an event can change its result."""
        if self._is_dialing:
            return None
        if self._next_dial_at is not None and now < self._next_dial_at:
            return self._next_dial_at
        return self.tracker.next_expiry()
