"""When a destination is probed next: each by itself, jittered, and faster while the next few probes may decide.

After HAProxy's `inter`, `fastinter` and `downinter` (https://docs.haproxy.org/2.8/configuration.html, section 5.2).
Pure: times and chances, numbers in [0, 1), are arguments. docs/destination-health.md, "Probing".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fleet.protocol.destination.health import ActiveHealth, Health, ProbeOutcome


@dataclass(frozen=True, slots=True)
class Settings:
    """How often a destination is probed. Seconds, from the start of one probe to the start of the next."""

    #: While nothing is in question.
    interval: float = 5.0
    #: While a few more probes may decide.
    fast_interval: float = 1.0
    #: While it is Unhealthy; None: `interval`.
    down_interval: float | None = None
    #: A probe that takes longer has failed; it may take longer than the interval: the next one then follows at once.
    timeout: float = 1.0
    #: Each wait is shorter or longer by up to this share: else destinations that were added together, or all failed
    #: together, are probed together for ever.
    jitter: float = 0.1

    def __post_init__(self) -> None:
        waits = (self.interval, self.fast_interval, self.down, self.timeout)
        if not all(math.isfinite(wait) and wait > 0 for wait in waits):
            raise ValueError("intervals and the timeout of probes are above 0")
        if not (self.fast_interval <= self.interval and self.fast_interval <= self.down):
            raise ValueError("the fast interval of probes is the shortest of their intervals")
        if not 0 <= self.jitter < 1:
            raise ValueError("the jitter of probes is a share, from 0 to below 1")

    @property
    def down(self) -> float:
        """The interval while Unhealthy."""
        return self.interval if self.down_interval is None else self.down_interval


DEFAULTS = Settings()


def is_open(active: ActiveHealth) -> bool:
    """Tell whether the next few probes may decide.

    Nothing is concluded yet; or a probe of a Healthy one failed, and that is not forgotten; or it is Degraded and did
    not just say so itself: a row of such answers leads nowhere. One success brings an Unhealthy one back, whenever it
    comes: that is what `down_interval` is for.
    """
    match active.signal.health:
        case Health.UNKNOWN:
            return True
        case Health.HEALTHY:
            return ProbeOutcome.FAILURE in active.recent
        case Health.DEGRADED:
            return not active.recent or active.recent[-1] is not ProbeOutcome.DEGRADED
        case Health.UNHEALTHY:
            return False


def interval(active: ActiveHealth, settings: Settings = DEFAULTS) -> float:
    """The interval now, before the jitter."""
    if is_open(active):
        return settings.fast_interval
    return settings.down if active.signal.health is Health.UNHEALTHY else settings.interval


def first_at(now: float, chance: float, settings: Settings = DEFAULTS) -> float:
    """When to probe one that is new: soon, but not all that are new at once."""
    return now + chance * settings.fast_interval


def next_at(
    active: ActiveHealth, started_at: float, ended_at: float, chance: float, settings: Settings = DEFAULTS
) -> float:
    """When to probe next, after the probe that began and ended then; never before that one ended."""
    return max(started_at + _add_jitter(interval(active, settings), chance, settings), ended_at)


def sooner_at(
    due_at: float, active: ActiveHealth, started_at: float, chance: float, settings: Settings = DEFAULTS
) -> float:
    """When to probe instead of at `due_at`, now that something else was seen of it, such as a failed request.

    As soon as an open streak would have it, never later than planned; `started_at` is when the last probe began. One
    that is Unhealthy stays on its plan: requests that fail there are nothing new.
    """
    if active.signal.health is Health.UNHEALTHY:
        return due_at
    return min(due_at, started_at + _add_jitter(settings.fast_interval, chance, settings))


def _add_jitter(wait: float, chance: float, settings: Settings) -> float:
    return wait * (1 + settings.jitter * (2 * chance - 1))
