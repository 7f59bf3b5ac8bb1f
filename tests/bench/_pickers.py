"""Ways to know and choose destinations, for the bench `picking`: ours, and three others by their documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from typing_extensions import override

from fleet.protocol.destination.health import Destination, Health, HealthSettings, ProbeOutcome
from fleet.protocol.destination.picker import DEFAULTS, Candidate, Picker, Settings

#: Only probes count: none of the others has its passive checks on unless told to.
_PROBES_ONLY = HealthSettings(failure_rate=None, unhealthy_rate=None)


class Rule(ABC):
    """Hears of every probe, and says what share of the requests each destination gets."""

    def __init__(self, count: int) -> None:
        self.count = count

    @abstractmethod
    def probed(self, outcomes: Sequence[ProbeOutcome], now: float) -> None:
        """Every destination was probed."""

    @abstractmethod
    def shares(self, now: float) -> list[float]:
        """Shares of all requests; less than 1 together: the rest is refused."""

    def _alike(self, chosen: Sequence[int], whole: float = 1.0) -> list[float]:
        """All to the chosen ones, all alike."""
        each = whole / len(chosen) if chosen else 0.0
        among = set(chosen)
        return [each if number in among else 0.0 for number in range(self.count)]


class Ours(Rule):
    """`fleet.protocol`'s destination health and picker."""

    def __init__(self, count: int, settings: Settings = DEFAULTS) -> None:
        super().__init__(count)
        self._settings = settings
        self._destinations = [Destination(0.0, _PROBES_ONLY) for _ in range(count)]
        self._succeeded: list[float | None] = [None] * count

    @override
    def probed(self, outcomes: Sequence[ProbeOutcome], now: float) -> None:
        for number, outcome in enumerate(outcomes):
            self._destinations[number].record_probe(outcome, now)
            if outcome is not ProbeOutcome.FAILURE:
                self._succeeded[number] = now

    @override
    def shares(self, now: float) -> list[float]:
        known = [
            Candidate(str(number), one.verdict(now).health, succeeded_at=self._succeeded[number])
            for number, one in enumerate(self._destinations)
        ]
        shares = Picker(known, now, self._settings).shares
        return [shares.get(one.name, 0.0) for one in known]


class Envoy(Rule):
    """One priority, health checks with 3 failures to unhealthy and 2 successes back, panic below 50 %."""

    _FAILURES, _SUCCESSES, _PANIC = 3, 2, 50

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._health = [Health.UNKNOWN] * count
        self._against = [0] * count

    @override
    def probed(self, outcomes: Sequence[ProbeOutcome], now: float) -> None:
        for number, outcome in enumerate(outcomes):
            said = _SAID[outcome]
            up = self._health[number] in {Health.HEALTHY, Health.DEGRADED}
            if self._health[number] is not Health.UNKNOWN and up == (outcome is ProbeOutcome.FAILURE):
                self._against[number] += 1
                if self._against[number] < (self._FAILURES if up else self._SUCCESSES):
                    continue
            self._health[number], self._against[number] = said, 0

    @override
    def shares(self, now: float) -> list[float]:
        healthy, degraded = (
            [number for number, health in enumerate(self._health) if health is kind]
            for kind in (Health.HEALTHY, Health.DEGRADED)
        )
        percents = [100 * len(some) // self.count for some in (healthy, degraded)]
        if envoy_panics(*percents, threshold=self._PANIC):
            return self._alike(range(self.count))
        loads = envoy_shares(*percents)
        return [
            a + b
            for a, b in zip(
                self._alike(healthy, loads[0] / 100), self._alike(degraded, loads[1] / 100), strict=True
            )
        ]


_SAID = {
    ProbeOutcome.SUCCESS: Health.HEALTHY,
    ProbeOutcome.DEGRADED: Health.DEGRADED,
    ProbeOutcome.FAILURE: Health.UNHEALTHY,
}


def _availability(percent: int) -> int:
    return min(100, percent * 140 // 100)


def envoy_shares(healthy: int, degraded: int) -> tuple[int, int]:
    """Envoy's integer arithmetic for one priority; percent, in and out."""
    able = [_availability(healthy), _availability(degraded)]
    total = min(100, sum(able))
    if total == 0:
        return 0, 0
    first = min(100, able[0] * 100 // total)
    second = min(100 - first, able[1] * 100 // total)
    left = 100 - first - second
    return (first + left, second) if first else (first, second + left)


def envoy_panics(healthy: int, degraded: int, threshold: int) -> bool:
    """Only when the availability of all priorities is below 100 %, and too few are usable."""
    return _availability(healthy) + _availability(degraded) < 100 and healthy + degraded < threshold


class Yarp(Rule):
    """ConsecutiveFailures with its threshold of 2, and HealthyOrPanic; a 2xx answer is a success whatever it says."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._failures = [0] * count

    @override
    def probed(self, outcomes: Sequence[ProbeOutcome], now: float) -> None:
        for number, outcome in enumerate(outcomes):
            self._failures[number] = self._failures[number] + 1 if outcome is ProbeOutcome.FAILURE else 0

    @override
    def shares(self, now: float) -> list[float]:
        available = [number for number, failures in enumerate(self._failures) if failures < 2]
        return self._alike(available or range(self.count))


class Consul(Rule):
    """The last check decides; passing and warning are served alike, critical never."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._critical = [False] * count

    @override
    def probed(self, outcomes: Sequence[ProbeOutcome], now: float) -> None:
        self._critical = [outcome is ProbeOutcome.FAILURE for outcome in outcomes]

    @override
    def shares(self, now: float) -> list[float]:
        return self._alike([number for number, critical in enumerate(self._critical) if not critical])
