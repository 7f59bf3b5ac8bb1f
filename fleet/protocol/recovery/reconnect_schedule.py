"""Schedule of a proxy's reconnect advice to its agents: RFD 226, "Periodic Tunnel Reconnects".

Off unless TELEPORT_UNSTABLE_REVERSETUNNEL_RECONNECT_INTERVAL is set on the proxy. The time of each tunnel is interval +
U[0, interval/2) after it was opened or last advised, so that agents that connected at once do not reconnect at once.
Pure: `now` and `chance`, a number in [0, 1), are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from fleet.protocol import durations

INTERVAL_VARIABLE = "TELEPORT_UNSTABLE_REVERSETUNNEL_RECONNECT_INTERVAL"

#: Minimum interval, seconds: agents need time to dial and to settle.
SHORTEST_INTERVAL = 1.0
_JITTER = 0.5

K = TypeVar("K", bound=Hashable)


class ReconnectError(ValueError):
    """An interval that cannot be used; the message names the variable."""


def interval_from(environment: Mapping[str, str]) -> float:
    """Return the interval of an environment in seconds; 0 (never) when unset or empty. Raises ReconnectError."""
    text = environment.get(INTERVAL_VARIABLE, "")
    if not text:
        return 0.0
    try:
        interval = durations.parse(text)
    except durations.DurationError as error:
        raise ReconnectError(f"{INTERVAL_VARIABLE}: {error}") from None
    if interval < SHORTEST_INTERVAL:
        shortest = durations.format_seconds(SHORTEST_INTERVAL)
        raise ReconnectError(
            f"{INTERVAL_VARIABLE}: {text!r} is shorter than {shortest}. Use a duration such as 1h or 30m"
        )
    return interval


class ReconnectSchedule(Generic[K]):
    """Reconnect times of tunnels. Keys are tunnels."""

    def __init__(self, interval: float) -> None:
        """Start without tunnels; `interval` is in seconds, 0 means never."""
        self.interval = interval
        self._due_at: dict[K, float] = {}

    def add_tunnel(self, tunnel: K, now: float, chance: float) -> None:
        """Advise a new tunnel one interval after `now`, with jitter; `chance` is between 0 and 1."""
        if self.interval > 0:
            self._due_at[tunnel] = self._next_due_at(now, chance)

    def remove_tunnel(self, tunnel: K) -> None:
        """Stop advising a closed tunnel."""
        self._due_at.pop(tunnel, None)

    def take_due(self, now: float, chance: Callable[[], float]) -> tuple[K, ...]:
        """Return the tunnels to advise now, the longest due first; one that stays is due again an interval later."""
        due_indexes = sorted((at, index) for index, at in enumerate(self._due_at.values()) if at <= now)
        tunnels = tuple(self._due_at)
        due_tunnels = tuple(tunnels[index] for _, index in due_indexes)
        for tunnel in due_tunnels:
            self._due_at[tunnel] = self._next_due_at(now, chance())
        return due_tunnels

    def _next_due_at(self, now: float, chance: float) -> float:
        return now + self.interval * (1 + _JITTER * chance)
