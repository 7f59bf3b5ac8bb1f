"""Retries stay a share of all that is sent."""

from __future__ import annotations

import pytest

from fleet.protocol.retry.budget import BudgetSettings, RetryBudget


def allowed(budget: RetryBudget, asked: int, now: float) -> int:
    return sum(budget.allow(now) for _ in range(asked))


def test_quiet_service() -> None:
    """Ten retries a second pass, however few calls there are."""
    budget = RetryBudget()
    budget.first(0.0)

    assert allowed(budget, 50, 0.0) == 10
    assert allowed(budget, 50, 0.5) == 0
    assert allowed(budget, 50, 1.0) == 10


def test_busy_service() -> None:
    """A fifth of all that is sent, first tries and retries together: 250 beside 1000."""
    budget = RetryBudget()
    for _ in range(1000):
        budget.first(0.0)

    assert allowed(budget, 1000, 0.0) == 250


def test_calls_are_forgotten() -> None:
    """After the interval they count no longer."""
    budget = RetryBudget(BudgetSettings(percent=50, min_retries=0))
    for second in range(10):
        budget.first(float(second))
    assert allowed(budget, 100, 9.0) == 10
    assert allowed(budget, 100, 18.5) == 1 - 1
    budget.first(30.0)

    assert allowed(budget, 100, 30.0) == 1


def test_nothing_is_allowed() -> None:
    """No percent and no minimum is no retry at all."""
    budget = RetryBudget(BudgetSettings(percent=0, min_retries=0))
    budget.first(0.0)

    assert allowed(budget, 5, 0.0) == 0


def test_memory_does_not_grow_with_calls() -> None:
    """An interval is kept in parts."""
    budget = RetryBudget()
    for call in range(100_000):
        budget.first(call / 10_000)

    assert len(budget._firsts._parts) <= 51
    assert budget._firsts.total(10.0) >= 97_000


@pytest.mark.parametrize(
    "wrong",
    [{"percent": 101}, {"percent": -1}, {"interval": 0.5}, {"interval": 3601.0}, {"min_retries": -1},
     {"min_retries_interval": 0.0}],
)  # fmt: skip
def test_settings_out_of_range(wrong: dict[str, float]) -> None:
    """Refused by the name of what is wrong."""
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))}: "):
        BudgetSettings(**wrong)  # type: ignore[arg-type]
