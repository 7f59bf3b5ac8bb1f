"""Retry budget: retries are a share of all requests."""

from __future__ import annotations

import pytest

from fleet.protocol.retry.budget import BudgetSettings, RetryBudget


def count_allowed(budget: RetryBudget, request_count: int, now: float) -> int:
    return sum(budget.take_retry(now) for _ in range(request_count))


def test_minimum_rate_is_allowed() -> None:
    """Ten retries per second are allowed, however few calls there are."""
    budget = RetryBudget()
    budget.record_first_try(0.0)

    assert count_allowed(budget, 50, 0.0) == 10
    assert count_allowed(budget, 50, 0.5) == 0
    assert count_allowed(budget, 50, 1.0) == 10


def test_share_of_all_requests_is_allowed() -> None:
    """Retries may be a fifth of all requests, retries included: 250 with 1000 calls."""
    budget = RetryBudget()
    for _ in range(1000):
        budget.record_first_try(0.0)

    assert count_allowed(budget, 1000, 0.0) == 250


def test_calls_expire_after_the_interval() -> None:
    budget = RetryBudget(BudgetSettings(percent=50, min_retries=0))
    for second in range(10):
        budget.record_first_try(float(second))
    assert count_allowed(budget, 100, 9.0) == 10
    assert count_allowed(budget, 100, 18.5) == 1 - 1
    budget.record_first_try(30.0)

    assert count_allowed(budget, 100, 30.0) == 1


def test_zero_budget_allows_no_retry() -> None:
    budget = RetryBudget(BudgetSettings(percent=0, min_retries=0))
    budget.record_first_try(0.0)

    assert count_allowed(budget, 5, 0.0) == 0


def test_memory_does_not_grow_with_calls() -> None:
    """The interval is counted in a bounded number of parts."""
    budget = RetryBudget()
    for call in range(100_000):
        budget.record_first_try(call / 10_000)

    assert len(budget._first_tries._parts) <= 51
    assert budget._first_tries.total(10.0) >= 97_000


@pytest.mark.parametrize(
    "invalid",
    [{"percent": 101}, {"percent": -1}, {"interval": 0.5}, {"interval": 3601.0}, {"min_retries": -1},
     {"min_retries_interval": 0.0}],
)  # fmt: skip
def test_settings_out_of_range_are_refused(invalid: dict[str, float]) -> None:
    """The error names the setting."""
    with pytest.raises(ValueError, match=f"^{next(iter(invalid))}: "):
        BudgetSettings(**invalid)  # type: ignore[arg-type]
