"""What both interceptors need of a call: its policy, its tries, its budget. docs/retries.md"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import grpc

from fleet.protocol.retry.budget import RetryBudget, BudgetSettings
from fleet.protocol.retry.policy import PREVIOUS_ATTEMPTS, PUSHBACK, RetryAfter, Finish, RetryPolicy, Tries, RetryDecision

#: One policy for every method, or whatever knows one for `/service/method`, like GRPCRoute.policy_for.
Policies = RetryPolicy | Callable[[str], RetryPolicy]


class SharedBudget:
    """A budget that many interceptors and threads may share."""

    def __init__(self, settings: BudgetSettings | None = None) -> None:
        self._budget = RetryBudget(settings)
        self._lock = threading.Lock()

    def first(self, now: float) -> None:
        """Count a first try."""
        with self._lock:
            self._budget.first(now)

    def allow(self, now: float) -> bool:
        """Whether a retry may be sent; it is counted if so."""
        with self._lock:
            return self._budget.allow(now)


class RetriedCall:
    """One call and its tries."""

    def __init__(
        self,
        policies: Policies,
        budget: SharedBudget | None,
        details: Any,
        clock: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        """Begin a call, with grpc's details of it."""
        # aio has the method in bytes, blocking calls in text.
        method = details.method.decode() if isinstance(details.method, bytes) else details.method
        policy = policies if isinstance(policies, RetryPolicy) else policies(method)
        now = clock()
        self._tries = Tries(policy, now, details.timeout)
        self._budget = budget
        self._clock = clock
        self._chance = chance
        if budget is not None:
            budget.first(now)

    def start(self) -> float | None:
        """Begin a try; its timeout in seconds."""
        return self._tries.start(self._clock())

    @property
    def is_retry(self) -> bool:
        """Whether the try that began is not the first."""
        return self._tries.try_count > 1

    def metadata(self, own: Iterable[tuple[str, str | bytes]] | None) -> list[tuple[str, str | bytes]]:
        """The caller's metadata, and for a retry how many tries were before it (A6)."""
        pairs = list(own or ())
        before = self._tries.try_count - 1
        return [*pairs, (PREVIOUS_ATTEMPTS, str(before))] if before > 0 else pairs

    def judge(
        self, code: grpc.StatusCode, details: str | None, trailers: Iterable[tuple[str, str | bytes]] | None
    ) -> tuple[RetryDecision, float]:
        """What follows a try that ended so, and not before when, by the clock."""
        now = self._clock()
        pushback = next((str(value) for key, value in trailers or () if key == PUSHBACK), None)
        verdict = self._tries.judge(now, self._chance(), code.name, details or "", pushback)
        if not isinstance(verdict, RetryAfter):
            return verdict, now
        if self._budget is not None and not self._budget.allow(now):
            return Finish(), now
        return verdict, now + verdict.wait
