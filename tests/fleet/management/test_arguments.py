"""Flags of `manage.py` that are refused while they are read."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from fleet.management import arguments


def test_whole_numbers() -> None:
    """Both ends belong to what may be said; without a most there is none."""
    assert [arguments.make_integer_parser(0, 3)(text) for text in ("0", "3", " 2 ")] == [0, 3, 2]
    assert arguments.make_integer_parser(1)("1000000") == 1_000_000


@pytest.mark.parametrize(
    ("text", "most", "says"),
    [
        ("-1", 50, "-1 is out of range: use 1 to 50"),
        ("51", 50, "51 is out of range: use 1 to 50"),
        ("0", None, "0 is out of range: use at least 1"),
        ("1.5", 50, "'1.5' is not a whole number: use 1 to 50"),
        ("", None, "'' is not a whole number: use at least 1"),
    ],
)
def test_numbers_that_cannot_be(text: str, most: int | None, says: str) -> None:
    """The sentence says what may be said."""
    with pytest.raises(ArgumentTypeError) as caught:
        arguments.make_integer_parser(1, most)(text)
    assert str(caught.value) == says


def test_announce_ttl() -> None:
    """Kept as it was written, but what no heartbeat could keep."""
    assert arguments.announce_ttl("1m30s") == "1m30s"
    with pytest.raises(ArgumentTypeError, match="'1ns' is too short: use at least 100ms"):
        arguments.announce_ttl("1ns")
    with pytest.raises(ArgumentTypeError, match="'10' is not a duration"):
        arguments.announce_ttl("10")
