"""Health checking and picking rules for the benchmark `picking`: ours, and those of Envoy, YARP and Consul."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from typing_extensions import override

from fleet.protocol.destination.health import Destination, Health, HealthSettings, ProbeOutcome
from fleet.protocol.destination.picker import DEFAULTS, Candidate, Picker, PickerSettings

#: Only probes count: the other rules have passive checks off by default.
_PROBES_ONLY = HealthSettings(failure_rate=None, unhealthy_rate=None)


class Rule(ABC):
    """Observes every probe and returns the share of the requests that each destination gets."""

    def __init__(self, count: int) -> None:
        self.count = count

    @abstractmethod
    def observe(self, outcomes: Sequence[ProbeOutcome], now: float) -> None:
        """Observe the outcomes of one probe of every destination."""

    @abstractmethod
    def shares(self, now: float) -> list[float]:
        """Return each destination's share of all requests; what is missing to 1 is refused."""

    def _split_evenly(self, numbers: Sequence[int], total: float = 1.0) -> list[float]:
        """Return equal shares of `total` for these destinations, 0 for the others."""
        share = total / len(numbers) if numbers else 0.0
        recipients = set(numbers)
        return [share if number in recipients else 0.0 for number in range(self.count)]


class RefloatRule(Rule):
    """`fleet.protocol`'s destination health and picker."""

    def __init__(self, count: int, settings: PickerSettings = DEFAULTS) -> None:
        super().__init__(count)
        self._settings = settings
        self._destinations = [Destination(0.0, _PROBES_ONLY) for _ in range(count)]
        self._succeeded: list[float | None] = [None] * count

    @override
    def observe(self, outcomes: Sequence[ProbeOutcome], now: float) -> None:
        for number, outcome in enumerate(outcomes):
            self._destinations[number].record_probe(outcome, now)
            if outcome is not ProbeOutcome.FAILURE:
                self._succeeded[number] = now

    @override
    def shares(self, now: float) -> list[float]:
        candidates = [
            Candidate(str(number), candidate.verdict(now).health, succeeded_at=self._succeeded[number])
            for number, candidate in enumerate(self._destinations)
        ]
        shares = Picker(candidates, now, self._settings).shares
        return [shares.get(candidate.name, 0.0) for candidate in candidates]


class Envoy(Rule):
    """One priority, health checks with 3 failures to unhealthy and 2 successes back, panic below 50 %."""

    _FAILURES, _SUCCESSES, _PANIC = 3, 2, 50

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._health = [Health.UNKNOWN] * count
        self._contradictions = [0] * count

    @override
    def observe(self, outcomes: Sequence[ProbeOutcome], now: float) -> None:
        for number, outcome in enumerate(outcomes):
            verdict = _HEALTH_OF[outcome]
            is_up = self._health[number] in {Health.HEALTHY, Health.DEGRADED}
            if self._health[number] is not Health.UNKNOWN and is_up == (outcome is ProbeOutcome.FAILURE):
                self._contradictions[number] += 1
                if self._contradictions[number] < (self._FAILURES if is_up else self._SUCCESSES):
                    continue
            self._health[number], self._contradictions[number] = verdict, 0

    @override
    def shares(self, now: float) -> list[float]:
        healthy, degraded_ones = (
            [number for number, health in enumerate(self._health) if health is kind]
            for kind in (Health.HEALTHY, Health.DEGRADED)
        )
        percents = [100 * len(numbers) // self.count for numbers in (healthy, degraded_ones)]
        if envoy_panics(*percents, threshold=self._PANIC):
            return self._split_evenly(range(self.count))
        loads = envoy_shares(*percents)
        return [
            a + b
            for a, b in zip(
                self._split_evenly(healthy, loads[0] / 100),
                self._split_evenly(degraded_ones, loads[1] / 100),
                strict=True,
            )
        ]


_HEALTH_OF = {
    ProbeOutcome.SUCCESS: Health.HEALTHY,
    ProbeOutcome.DEGRADED: Health.DEGRADED,
    ProbeOutcome.FAILURE: Health.UNHEALTHY,
}


def _availability(percent: int) -> int:
    return min(100, percent * 140 // 100)


def envoy_shares(healthy_percent: int, degraded_percent: int) -> tuple[int, int]:
    """Envoy's integer arithmetic for one priority; percent, in and out."""
    available = [_availability(healthy_percent), _availability(degraded_percent)]
    total = min(100, sum(available))
    if total == 0:
        return 0, 0
    first = min(100, available[0] * 100 // total)
    second = min(100 - first, available[1] * 100 // total)
    remainder = 100 - first - second
    return (first + remainder, second) if first else (first, second + remainder)


def envoy_panics(healthy_percent: int, degraded_percent: int, threshold: int) -> bool:
    """Only when the availability of all priorities is below 100 %, and too few are usable."""
    return (
        _availability(healthy_percent) + _availability(degraded_percent) < 100
        and healthy_percent + degraded_percent < threshold
    )


class Yarp(Rule):
    """ConsecutiveFailures with its threshold of 2, and HealthyOrPanic; a 2xx response is always a success."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._failures = [0] * count

    @override
    def observe(self, outcomes: Sequence[ProbeOutcome], now: float) -> None:
        for number, outcome in enumerate(outcomes):
            self._failures[number] = self._failures[number] + 1 if outcome is ProbeOutcome.FAILURE else 0

    @override
    def shares(self, now: float) -> list[float]:
        available = [number for number, failures in enumerate(self._failures) if failures < 2]
        return self._split_evenly(available or range(self.count))


class Consul(Rule):
    """The last check decides: passing and warning destinations get requests, critical ones do not."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._critical = [False] * count

    @override
    def observe(self, outcomes: Sequence[ProbeOutcome], now: float) -> None:
        self._critical = [outcome is ProbeOutcome.FAILURE for outcome in outcomes]

    @override
    def shares(self, now: float) -> list[float]:
        return self._split_evenly([number for number, critical in enumerate(self._critical) if not critical])
