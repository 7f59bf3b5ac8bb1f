"""Rounding of expected loads."""

from __future__ import annotations

from fleet.changes.load_forecast import round_shares


def test_whole_numbers_keep_the_sum() -> None:
    """The largest remainders are rounded up; of equal ones, the first by name."""
    assert round_shares({"a": 1.2, "b": 2.7, "c": 0.1}) == {"a": 1, "b": 3, "c": 0}
    assert round_shares({"b": 0.5, "a": 0.5}) == {"a": 1, "b": 0}
    assert round_shares({}) == {}
