"""A retry budget (GEP-3388): however many calls fail, retries stay below a share of all requests. Pure.

https://gateway-api.sigs.k8s.io/geps/gep-3388/. Without a budget, a service that fails completely receives every request
several times, just when it has the least capacity.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

#: The interval is counted in so many parts, so that memory does not grow with the number of calls.
_PARTS = 50


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """Settings of `retryConstraint` with the GEP's defaults. Seconds."""

    #: Maximum share, in percent, of retries among all requests within the interval, first attempts included.
    percent: int = 20
    interval: float = 10.0
    #: Number of retries within `min_retries_interval` that are always allowed.
    min_retries: int = 10
    min_retries_interval: float = 1.0

    def __post_init__(self) -> None:
        """Raise ValueError for values that the GEP does not allow."""
        if not 0 <= self.percent <= 100:
            raise ValueError(f"percent: {self.percent} is out of range. Use 0 to 100")
        if self.min_retries < 0:
            raise ValueError(f"min_retries: {self.min_retries} is negative. Use 0 or more")
        for name in ("interval", "min_retries_interval"):
            if not 1 <= getattr(self, name) <= 3600:
                raise ValueError(f"{name}: {getattr(self, name)} is out of range. Use 1 s to 1 h")


class RetryBudget:
    """Counts of recent requests and retries; `now` is of a monotonic clock."""

    def __init__(self, settings: BudgetSettings | None = None) -> None:
        self._settings = settings or BudgetSettings()
        self._first_tries = _WindowCount(self._settings.interval)
        self._retries = _WindowCount(self._settings.interval)
        self._recent_retries = _WindowCount(self._settings.min_retries_interval)

    def record_first_try(self, now: float) -> None:
        """Count a first attempt."""
        self._first_tries.add(now)

    def take_retry(self, now: float) -> bool:
        """Return whether a retry is allowed, and count it if so."""
        retries = self._retries.total(now) + 1
        is_within_share = retries * 100 <= self._settings.percent * (self._first_tries.total(now) + retries)
        if not is_within_share and self._recent_retries.total(now) >= self._settings.min_retries:
            return False
        self._retries.add(now)
        self._recent_retries.add(now)
        return True


class _WindowCount:
    """Count of events within the last `interval` seconds, with a resolution of a fiftieth of it."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._part = interval / _PARTS
        self._parts: deque[tuple[float, int]] = deque()
        self._total = 0

    def add(self, now: float) -> None:
        self._forget(now)
        if self._parts and now - self._parts[-1][0] < self._part:
            started_at, count = self._parts.pop()
            self._parts.append((started_at, count + 1))
        else:
            self._parts.append((now, 1))
        self._total += 1

    def total(self, now: float) -> int:
        self._forget(now)
        return self._total

    def _forget(self, now: float) -> None:
        while self._parts and now - self._parts[0][0] >= self._interval:
            self._total -= self._parts.popleft()[1]
