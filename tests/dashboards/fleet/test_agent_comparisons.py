from __future__ import annotations

import pytest

from dashboards.fleet.agent_comparisons import ComparisonError, NumberComparison, parse_age, parse_generation


@pytest.mark.parametrize(
    ("text", "comparison"),
    [
        (">5m", NumberComparison(">", 300)),
        ("<1h", NumberComparison("<", 3600)),
        (">=2d", NumberComparison(">=", 172_800)),
        ("<=1h30m", NumberComparison("<=", 5400)),
    ],
)
def test_ages(text: str, comparison: NumberComparison) -> None:
    assert parse_age(text) == comparison


@pytest.mark.parametrize("text", ["", "5m", ">", "> ", ">5", ">x", "=5m", "><5m", ">" + "9" * 300 + "h"])
def test_other_ages_are_explained(text: str) -> None:
    """A time alone is no comparison: nothing lasts exactly as long."""
    with pytest.raises(ComparisonError, match=r"age:>5m or age:<1h\.$"):
        parse_age(text)


@pytest.mark.parametrize(
    ("text", "numbers"), [("3", [3]), (">3", [4]), ("<3", [2]), (">=3", [3, 4]), ("<=3", [2, 3])]
)
def test_generations(text: str, numbers: list[int]) -> None:
    comparison = parse_generation(text)
    assert [number for number in (2, 3, 4) if comparison.accepts(number)] == numbers


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "=3", "٣", "9" * 19])
def test_other_generations_are_explained(text: str) -> None:
    with pytest.raises(ComparisonError, match=r"generation:<3\.$"):
        parse_generation(text)
