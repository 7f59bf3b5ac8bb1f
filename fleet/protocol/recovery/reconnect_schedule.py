"""When a proxy advises its agents to reconnect: RFD 226, "Periodic Tunnel Reconnects".

Off unless TELEPORT_UNSTABLE_REVERSETUNNEL_RECONNECT_INTERVAL is set on the proxy. Each tunnel has its own time,
interval + U[0, interval/2) after it was opened or last advised: agents that came as one herd do not leave as one.
Pure: `now` and `chance`, a number in [0, 1), are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from fleet.protocol import durations

VARIABLE = "TELEPORT_UNSTABLE_REVERSETUNNEL_RECONNECT_INTERVAL"

#: Agents need time to dial and to settle; more often is a mistake.
SHORTEST = 1.0
_JITTER = 0.5

K = TypeVar("K", bound=Hashable)


class ReconnectError(ValueError):
    """An interval that cannot be used; the sentence names the variable."""


def interval_from(environment: Mapping[str, str]) -> float:
    """The interval of an environment, seconds; 0 when unset or empty: never. Raises ReconnectError."""
    text = environment.get(VARIABLE, "")
    if not text:
        return 0.0
    try:
        interval = durations.parse(text)
    except durations.DurationError as error:
        raise ReconnectError(f"{VARIABLE}: {error}") from None
    if interval < SHORTEST:
        shortest = durations.format_seconds(SHORTEST)
        raise ReconnectError(f"{VARIABLE}: {text!r} is shorter than {shortest}: write it like 1h or 30m")
    return interval


class ReconnectSchedule(Generic[K]):
    """Who is to be advised, and when. Keys are tunnels."""

    def __init__(self, interval: float) -> None:
        """`interval` in seconds; 0 is never."""
        self.interval = interval
        self._due: dict[K, float] = {}

    def add_tunnel(self, tunnel: K, now: float, chance: float) -> None:
        """A tunnel stands."""
        if self.interval > 0:
            self._due[tunnel] = self._next(now, chance)

    def remove_tunnel(self, tunnel: K) -> None:
        """A tunnel is gone."""
        self._due.pop(tunnel, None)

    def due(self, now: float, chance: Callable[[], float]) -> tuple[K, ...]:
        """The tunnels to advise now, the longest due first; those that stay are advised again an interval later."""
        due_places = sorted((at, place) for place, at in enumerate(self._due.values()) if at <= now)
        tunnels = tuple(self._due)
        ready = tuple(tunnels[place] for _, place in due_places)
        for tunnel in ready:
            self._due[tunnel] = self._next(now, chance())
        return ready

    def _next(self, now: float, chance: float) -> float:
        return now + self.interval * (1 + _JITTER * chance)
