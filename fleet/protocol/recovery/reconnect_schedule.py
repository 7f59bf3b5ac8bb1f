"""Schedule of a proxy's reconnect advice to its agents: RFD 226, "Periodic Tunnel Reconnects".

Off unless TELEPORT_UNSTABLE_REVERSETUNNEL_RECONNECT_INTERVAL is set on the proxy. The time of each tunnel is interval +
U[0, interval/2) after it was opened or last advised, so that agents that connected at once do not reconnect at once.
Pure: `now` and `chance`, a number in [0, 1), are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from fleet.protocol import durations

VARIABLE = "TELEPORT_UNSTABLE_REVERSETUNNEL_RECONNECT_INTERVAL"

#: Minimum interval, seconds: agents need time to dial and to settle.
SHORTEST = 1.0
_JITTER = 0.5

K = TypeVar("K", bound=Hashable)


class ReconnectError(ValueError):
    """An interval that cannot be used; the message names the variable."""


def interval_from(environment: Mapping[str, str]) -> float:
    """Return the interval of an environment in seconds; 0 (never) when unset or empty. Raises ReconnectError."""
    text = environment.get(VARIABLE, "")
    if not text:
        return 0.0
    try:
        interval = durations.parse(text)
    except durations.DurationError as error:
        raise ReconnectError(f"{VARIABLE}: {error}") from None
    if interval < SHORTEST:
        shortest = durations.format_seconds(SHORTEST)
        raise ReconnectError(
            f"{VARIABLE}: {text!r} is shorter than {shortest}. Use a duration such as 1h or 30m"
        )
    return interval


class ReconnectSchedule(Generic[K]):
    """Reconnect times of tunnels. Keys are tunnels."""

    def __init__(self, interval: float) -> None:
        """Start without tunnels; `interval` is in seconds, 0 means never."""
        self.interval = interval
        self._due: dict[K, float] = {}

    def add_tunnel(self, tunnel: K, now: float, chance: float) -> None:
        """Advise a new tunnel one interval after `now`, with jitter; `chance` is between 0 and 1."""
        if self.interval > 0:
            self._due[tunnel] = self._next(now, chance)

    def remove_tunnel(self, tunnel: K) -> None:
        """Stop advising a closed tunnel."""
        self._due.pop(tunnel, None)

    def due(self, now: float, chance: Callable[[], float]) -> tuple[K, ...]:
        """Return the tunnels to advise now, the longest due first; one that stays is due again an interval later."""
        due_places = sorted((at, place) for place, at in enumerate(self._due.values()) if at <= now)
        tunnels = tuple(self._due)
        ready = tuple(tunnels[place] for _, place in due_places)
        for tunnel in ready:
            self._due[tunnel] = self._next(now, chance())
        return ready

    def _next(self, now: float, chance: float) -> float:
        return now + self.interval * (1 + _JITTER * chance)
