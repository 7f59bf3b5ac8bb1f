"""A budget of retries (GEP-3388): however many calls fail, retries stay a share of all that is sent. Pure.

https://gateway-api.sigs.k8s.io/geps/gep-3388/. Without one a service that fails altogether is sent every request
several times, just when it can bear it least.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

#: The interval is counted in so many parts, so that memory does not grow with the calls.
_PARTS = 50


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """`retryConstraint` with its defaults. Seconds."""

    #: How much of all that is sent within the interval, first tries and retries, may be retries.
    percent: int = 20
    interval: float = 10.0
    #: So many retries within so long are let through in any case.
    min_retries: int = 10
    min_retries_interval: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what the GEP refuses. Raises ValueError."""
        if not 0 <= self.percent <= 100:
            raise ValueError(f"percent: {self.percent} is not from 0 to 100")
        if self.min_retries < 0:
            raise ValueError(f"min_retries: {self.min_retries} is negative")
        for name in ("interval", "min_retries_interval"):
            if not 1 <= getattr(self, name) <= 3600:
                raise ValueError(f"{name}: {getattr(self, name)} is not from 1 s to 1 h")


class RetryBudget:
    """What was sent of late; `now` is of a clock that never jumps."""

    def __init__(self, settings: BudgetSettings | None = None) -> None:
        self._settings = settings or BudgetSettings()
        self._firsts = _Count(self._settings.interval)
        self._retries = _Count(self._settings.interval)
        self._recent = _Count(self._settings.min_retries_interval)

    def first(self, now: float) -> None:
        """Count a first try."""
        self._firsts.add(now)

    def allow(self, now: float) -> bool:
        """Whether a retry may be sent; it is counted if so."""
        retries = self._retries.total(now) + 1
        share = retries * 100 <= self._settings.percent * (self._firsts.total(now) + retries)
        if not share and self._recent.total(now) >= self._settings.min_retries:
            return False
        self._retries.add(now)
        self._recent.add(now)
        return True


class _Count:
    """How many there were within the last so many seconds, to a fiftieth of that."""

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
