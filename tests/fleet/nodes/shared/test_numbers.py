"""Flags with numbers."""

from __future__ import annotations

import click
import pytest

from fleet.nodes.shared.numbers import FiniteRange


def test_number_at_the_edge_of_its_range_is_accepted() -> None:
    """The minimum belongs to the range."""
    assert FiniteRange(min=1).convert("1", None, None) == 1.0


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "0.9", "x"])
def test_number_outside_of_its_range_is_refused(text: str) -> None:
    """NaN and infinity are refused, although no comparison detects them."""
    with pytest.raises(click.BadParameter):
        FiniteRange(min=1).convert(text, None, None)
