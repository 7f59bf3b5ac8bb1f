"""Numeric settings of operators, each declared once as a field of a record. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from functools import partial
from typing import Any

#: Smallest and largest value, label and unit.
Range = tuple[int, int, str, str]


def number_field(default: int, least: int, most: int, label: str, unit: str = "") -> Any:
    """Return a dataclass field with a default, a range, a label and a unit."""
    return field(default=default, metadata={"range": (least, most, label, unit)})


def ranges_of(record: type) -> Mapping[str, Range]:
    """Return the ranges of a record's numeric settings, by field."""
    return {
        record_field.name: record_field.metadata["range"]
        for record_field in fields(record)
        if "range" in record_field.metadata
    }


def parse_numbers(
    raw_values: Mapping[str, object], record: type, **readers: Callable[[str], int]
) -> tuple[dict[str, int], dict[str, str]]:
    """Parse settings and return values and problems, both by field. `readers` parse fields without a range."""
    for name, (least, most, _, _) in ranges_of(record).items():
        readers[name] = partial(_parse_whole_number, least, most)
    numbers, problems = {}, {}
    for name, text in raw_values.items():
        try:
            numbers[name] = readers[name](str(text).strip())
        except KeyError:
            problems[name] = "unknown setting"
        except ValueError as error:
            problems[name] = str(error)
    return numbers, problems


def _parse_whole_number(least: int, most: int, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or not least <= int(text) <= most:
        raise ValueError(f"enter a whole number from {least:,} to {most:,}")
    return int(text)
