"""Types of `manage.py` flags."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from fleet.management import arguments


def test_integer_parser_accepts_its_range() -> None:
    """Both limits belong to the range, and the maximum is optional."""
    assert [arguments.make_integer_parser(0, 3)(text) for text in ("0", "3", " 2 ")] == [0, 3, 2]
    assert arguments.make_integer_parser(1)("1000000") == 1_000_000


@pytest.mark.parametrize(
    ("text", "maximum", "message"),
    [
        ("-1", 50, "-1 is out of range: use 1 to 50"),
        ("51", 50, "51 is out of range: use 1 to 50"),
        ("0", None, "0 is out of range: use at least 1"),
        ("1.5", 50, "'1.5' is not a whole number: use 1 to 50"),
        ("", None, "'' is not a whole number: use at least 1"),
    ],
)
def test_integer_parser_refuses_other_values(text: str, maximum: int | None, message: str) -> None:
    """The message has the allowed range."""
    with pytest.raises(ArgumentTypeError) as caught:
        arguments.make_integer_parser(1, maximum)(text)
    assert str(caught.value) == message


def test_announce_ttl_is_kept_as_text_or_refused() -> None:
    """A TTL that is too short for heartbeats is refused."""
    assert arguments.validate_announce_ttl("1m30s") == "1m30s"
    with pytest.raises(ArgumentTypeError, match="'1ns' is too short: use at least 100ms"):
        arguments.validate_announce_ttl("1ns")
    with pytest.raises(ArgumentTypeError, match="'10' is not a duration"):
        arguments.validate_announce_ttl("10")
