"""Flags that take numbers."""

from __future__ import annotations

import click
import pytest

from fleet.nodes.shared.numbers import Number


def test_number_in_its_range() -> None:
    """Read as it is, from the edge on."""
    assert Number(min=1).convert("1", None, None) == 1.0


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "0.9", "x"])
def test_what_is_no_number_of_the_range(text: str) -> None:
    """Refused: neither comparison would have caught the first two."""
    with pytest.raises(click.BadParameter):
        Number(min=1).convert(text, None, None)
