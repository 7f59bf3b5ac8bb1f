"""Probe schedule of one destination, with jitter, and faster while the next probes can change its health.

After HAProxy's `inter`, `fastinter` and `downinter` (https://docs.haproxy.org/2.8/configuration.html, section 5.2).
Pure: times and chances, numbers in [0, 1), are arguments. docs/reference/destination-health.md, "Probing".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fleet.protocol.destination.health import ActiveHealth, Health, ProbeOutcome


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """Probe intervals, seconds, from the start of one probe to the start of the next."""

    #: While the health is settled.
    interval: float = 5.0
    #: While the next few probes can change the health.
    fast_interval: float = 1.0
    #: While Unhealthy; None: `interval`.
    down_interval: float | None = None
    #: A probe that takes longer fails. If it exceeds the interval, the next probe follows at once.
    timeout: float = 1.0
    #: Share by which each wait is shorter or longer at random: otherwise destinations added at the same time, or failed
    #: at the same time, would be probed at the same time forever.
    jitter: float = 0.1

    def __post_init__(self) -> None:
        waits = (self.interval, self.fast_interval, self.effective_down_interval, self.timeout)
        if not all(math.isfinite(wait) and wait > 0 for wait in waits):
            raise ValueError("the intervals and the timeout of probes must be above 0 and finite")
        if not (self.fast_interval <= self.interval and self.fast_interval <= self.effective_down_interval):
            raise ValueError("fast_interval must not exceed interval or down_interval")
        if not 0 <= self.jitter < 1:
            raise ValueError("the jitter of probes must be at least 0 and below 1")

    @property
    def effective_down_interval(self) -> float:
        """Seconds between probes while Unhealthy."""
        return self.interval if self.down_interval is None else self.down_interval


DEFAULTS = ProbeSettings()


def can_health_change_soon(active: ActiveHealth) -> bool:
    """Return whether the next few probes can change the health.

    They can while it is Unknown; while a failed probe of a Healthy destination is still in the window; and while it
    is Degraded, unless the last probe said degraded: a row of those changes nothing. A single success ends Unhealthy
    at any time: `down_interval` sets how soon it is seen.
    """
    match active.signal.health:
        case Health.UNKNOWN:
            return True
        case Health.HEALTHY:
            return ProbeOutcome.FAILURE in active.recent_outcomes
        case Health.DEGRADED:
            return not active.recent_outcomes or active.recent_outcomes[-1] is not ProbeOutcome.DEGRADED
        case Health.UNHEALTHY:
            return False


def current_interval(active: ActiveHealth, settings: ProbeSettings = DEFAULTS) -> float:
    """Return the current interval in seconds, without jitter."""
    if can_health_change_soon(active):
        return settings.fast_interval
    return settings.effective_down_interval if active.signal.health is Health.UNHEALTHY else settings.interval


def first_probe_at(now: float, chance: float, settings: ProbeSettings = DEFAULTS) -> float:
    """Return when to probe a new destination: soon, but not all new ones at once."""
    return now + chance * settings.fast_interval


def next_probe_at(
    active: ActiveHealth,
    started_at: float,
    ended_at: float,
    chance: float,
    settings: ProbeSettings = DEFAULTS,
) -> float:
    """Return when to probe after a probe that began at `started_at`; never before it ended."""
    return max(started_at + _add_jitter(current_interval(active, settings), chance, settings), ended_at)


def earlier_probe_at(
    due_at: float, active: ActiveHealth, started_at: float, chance: float, settings: ProbeSettings = DEFAULTS
) -> float:
    """Return an earlier probe time than `due_at` after another observation, such as a failed request.

    That is the fast interval after `started_at`, the start of the last probe, and never later than `due_at`. An
    Unhealthy destination keeps its schedule: failing requests to it show nothing new.
    """
    if active.signal.health is Health.UNHEALTHY:
        return due_at
    return min(due_at, started_at + _add_jitter(settings.fast_interval, chance, settings))


def _add_jitter(wait: float, chance: float, settings: ProbeSettings) -> float:
    return wait * (1 + settings.jitter * (2 * chance - 1))
