"""The part of a retried call that both interceptors share."""

from __future__ import annotations

import threading

import grpc
import pytest

from fleet.protocol.retry.budget import BudgetSettings
from fleet.protocol.retry.policy import PREVIOUS_ATTEMPTS, PUSHBACK, Finish, RetryAfter, RetryPolicy
from fleet.transport.retry.retried_call import RetriedCall, SharedBudget

POLICY = RetryPolicy(attempts=5, backoff=1.0)


def create_call(method: str | bytes = "/a.B/Get", *, budget: SharedBudget | None = None) -> RetriedCall:
    return RetriedCall({"/a.B/Get": POLICY}.__getitem__, budget, method, 60.0, lambda: 10.0, lambda: 0.0)


@pytest.mark.parametrize("method", ["/a.B/Get", b"/a.B/Get"])
def test_policy_is_chosen_by_method(method: str | bytes) -> None:
    """The method may be text or bytes."""
    assert create_call(method).start() == 60.0


def test_metadata_of_retries() -> None:
    """It has the number of previous attempts; the first attempt has none, and the caller's metadata stays."""
    retried_call = create_call()
    retried_call.start()
    assert retried_call.metadata(None) == []
    retried_call.start()
    retried_call.start()
    assert retried_call.metadata([("a", "b")]) == [("a", "b"), (PREVIOUS_ATTEMPTS, "2")]


def test_wait_starts_at_the_end_of_the_attempt() -> None:
    """The result is a time of the clock."""
    retried_call = create_call()
    retried_call.start()

    assert retried_call.judge(grpc.StatusCode.UNAVAILABLE, None, None) == (RetryAfter(1.0), 11.0)


def test_pushback_is_read_from_trailers() -> None:
    retried_call = create_call()
    retried_call.start()

    verdict, _ = retried_call.judge(grpc.StatusCode.UNAVAILABLE, "", [("other", b"1"), (PUSHBACK, "-1")])
    assert verdict == Finish()


def test_spent_budget_ends_a_call() -> None:
    """The result of the last attempt is final."""
    budget = SharedBudget(BudgetSettings(percent=0, min_retries=1))
    retried_call = create_call(budget=budget)
    retried_call.start()

    assert isinstance(retried_call.judge(grpc.StatusCode.UNAVAILABLE, "", None)[0], RetryAfter)
    assert retried_call.judge(grpc.StatusCode.UNAVAILABLE, "", None)[0] == Finish()


def test_budget_counts_first_attempts() -> None:
    budget = SharedBudget(BudgetSettings(percent=50, min_retries=0))
    for _ in range(3):
        create_call(budget=budget)

    assert [budget.allow(10.0) for _ in range(4)] == [True, True, True, False]


def test_budget_is_thread_safe() -> None:
    """No retry is allowed twice."""
    budget = SharedBudget(BudgetSettings(percent=0, min_retries=100))
    decisions: list[bool] = []
    threads = [
        threading.Thread(target=lambda: decisions.extend(budget.allow(0.0) for _ in range(50)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(decisions) == 100
