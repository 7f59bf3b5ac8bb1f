"""Shared part of both interceptors: policy, attempts and budget of a call. docs/reference/retries.md"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import grpc

from fleet.protocol.retry.budget import BudgetSettings, RetryBudget
from fleet.protocol.retry.policy import (
    PREVIOUS_ATTEMPTS,
    PUSHBACK,
    Finish,
    RetryAfter,
    RetryDecision,
    RetryPolicy,
    RetryState,
)

#: One policy for every method, or a function that returns one for `/service/method`, such as GRPCRoute.policy_for.
Policies = RetryPolicy | Callable[[str], RetryPolicy]


class SharedBudget:
    """A retry budget that several interceptors and threads can share."""

    def __init__(self, settings: BudgetSettings | None = None) -> None:
        self._budget = RetryBudget(settings)
        self._lock = threading.Lock()

    def first(self, now: float) -> None:
        """Count a first attempt."""
        with self._lock:
            self._budget.record_first_try(now)

    def allow(self, now: float) -> bool:
        """Return whether a retry is allowed, and count it if so."""
        with self._lock:
            return self._budget.take_retry(now)


class RetriedCall:
    """One call and its attempts."""

    def __init__(
        self,
        policies: Policies,
        budget: SharedBudget | None,
        method: str | bytes,
        timeout: float | None,
        clock: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        """Begin a call of `/service/method`, which is bytes in grpc.aio, with the caller's timeout."""
        name = method.decode() if isinstance(method, bytes) else method
        policy = policies if isinstance(policies, RetryPolicy) else policies(name)
        now = clock()
        self._retry_state = RetryState(policy, now, timeout)
        self._budget = budget
        self._clock = clock
        self._chance = chance
        if budget is not None:
            budget.first(now)

    def start(self) -> float | None:
        """Begin an attempt; return its timeout in seconds."""
        return self._retry_state.start_try(self._clock())

    @property
    def is_retry(self) -> bool:
        """Return whether the current attempt is a retry."""
        return self._retry_state.try_count > 1

    def metadata(
        self, caller_metadata: Iterable[tuple[str, str | bytes]] | None
    ) -> list[tuple[str, str | bytes]]:
        """Return the caller's metadata; for a retry with the number of earlier attempts (gRFC A6)."""
        pairs = list(caller_metadata or ())
        previous_count = self._retry_state.try_count - 1
        return [*pairs, (PREVIOUS_ATTEMPTS, str(previous_count))] if previous_count > 0 else pairs

    def judge(
        self, code: grpc.StatusCode, details: str | None, trailers: Iterable[tuple[str, str | bytes]] | None
    ) -> tuple[RetryDecision, float]:
        """Return the decision on an attempt that ended, and when a retry may start (by the clock)."""
        now = self._clock()
        pushback = next((str(value) for key, value in trailers or () if key == PUSHBACK), None)
        decision = self._retry_state.decide(now, self._chance(), code.name, details or "", pushback)
        if not isinstance(decision, RetryAfter):
            return decision, now
        if self._budget is not None and not self._budget.allow(now):
            return Finish(), now
        return decision, now + decision.wait
