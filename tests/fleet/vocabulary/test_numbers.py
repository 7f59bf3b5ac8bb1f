"""Numbers that an operator sets."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fleet.vocabulary.numbers import number_field, parse_numbers, ranges_of


@dataclass(frozen=True)
class Settings:
    """One number with a range, one field without."""

    rate: int = number_field(5, 1, 10, "Rate", "seconds")
    start: int = 0


def test_range_of_a_number_is_its_field() -> None:
    """Its default is that of the field."""
    assert ranges_of(Settings) == {"rate": (1, 10, "Rate", "seconds")}
    assert Settings() == Settings(rate=5, start=0)


@pytest.mark.parametrize(("text", "value"), [("1", 1), (" 10 ", 10), (7, 7)])
def test_number_in_its_range_is_read(text: object, value: int) -> None:
    """Both ends belong to it."""
    assert parse_numbers({"rate": text}, Settings) == ({"rate": value}, {})


@pytest.mark.parametrize("text", ["0", "11", "", "1.5", "-1", "²", None, "9" * 10])
def test_other_texts_are_problems(text: object) -> None:
    """The problem has the range."""
    assert parse_numbers({"rate": text}, Settings) == ({}, {"rate": "enter a whole number from 1 to 10"})


def test_reader_of_a_field_without_a_range() -> None:
    """Its error is the problem; a field without a reader is unknown."""

    def length(text: str) -> int:
        if not text:
            raise ValueError("write something")
        return len(text)

    assert parse_numbers({"start": "abc", "rate": "2"}, Settings, start=length) == (
        {"start": 3, "rate": 2},
        {},
    )
    assert parse_numbers({"start": ""}, Settings, start=length) == ({}, {"start": "write something"})
    assert parse_numbers({"start": "abc"}, Settings) == ({}, {"start": "unknown setting; use rate"})
