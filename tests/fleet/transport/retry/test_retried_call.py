"""What both interceptors need of a call."""

from __future__ import annotations

import threading
from collections import namedtuple

import grpc
import pytest

from fleet.protocol.retry.budget import BudgetSettings
from fleet.protocol.retry.policy import PREVIOUS_ATTEMPTS, PUSHBACK, Finish, RetryAfter, RetryPolicy
from fleet.transport.retry.retried_call import RetriedCall, SharedBudget

Details = namedtuple("Details", "method timeout")
POLICY = RetryPolicy(attempts=5, backoff=1.0)


def call(method: str | bytes = "/a.B/Get", *, budget: SharedBudget | None = None) -> RetriedCall:
    return RetriedCall(
        {"/a.B/Get": POLICY}.__getitem__, budget, Details(method, 60.0), lambda: 10.0, lambda: 0.0
    )


@pytest.mark.parametrize("method", ["/a.B/Get", b"/a.B/Get"])
def test_policy_is_asked_for_by_method(method: str | bytes) -> None:
    """As text, whatever grpc has it in."""
    assert call(method).start() == 60.0


def test_metadata_of_retries() -> None:
    """They say how many tries were before; the first says nothing, and nothing of the caller's is lost."""
    calling = call()
    calling.start()
    assert calling.metadata(None) == []
    calling.start()
    calling.start()
    assert calling.metadata([("a", "b")]) == [("a", "b"), (PREVIOUS_ATTEMPTS, "2")]


def test_wait_is_counted_from_the_end_of_the_try() -> None:
    """It is given as a time of the clock."""
    calling = call()
    calling.start()

    assert calling.judge(grpc.StatusCode.UNAVAILABLE, None, None) == (RetryAfter(1.0), 11.0)


def test_pushback_is_read_from_trailers() -> None:
    """Among others."""
    calling = call()
    calling.start()

    verdict, _ = calling.judge(grpc.StatusCode.UNAVAILABLE, "", [("other", b"1"), (PUSHBACK, "-1")])
    assert verdict == Finish()


def test_spent_budget_ends_a_call() -> None:
    """With what its last try gave."""
    budget = SharedBudget(BudgetSettings(percent=0, min_retries=1))
    calling = call(budget=budget)
    calling.start()

    assert isinstance(calling.judge(grpc.StatusCode.UNAVAILABLE, "", None)[0], RetryAfter)
    assert calling.judge(grpc.StatusCode.UNAVAILABLE, "", None)[0] == Finish()


def test_budget_counts_first_tries() -> None:
    """Of each call, when it begins."""
    budget = SharedBudget(BudgetSettings(percent=50, min_retries=0))
    for _ in range(3):
        call(budget=budget)

    assert [budget.allow(10.0) for _ in range(4)] == [True, True, True, False]


def test_budget_of_many_threads() -> None:
    """Nothing is allowed twice."""
    budget = SharedBudget(BudgetSettings(percent=0, min_retries=100))
    allowed: list[bool] = []
    threads = [
        threading.Thread(target=lambda: allowed.extend(budget.allow(0.0) for _ in range(50)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(allowed) == 100
