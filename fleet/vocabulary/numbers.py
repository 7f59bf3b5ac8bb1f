"""Numbers that an operator sets, each declared once, as a field of a record. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from functools import partial
from typing import Any

#: Least and most, label and unit.
Range = tuple[int, int, str, str]


def number(default: int, least: int, most: int, label: str, unit: str = "") -> Any:
    """Declare a field of a record."""
    return field(default=default, metadata={"range": (least, most, label, unit)})


def ranges(record: type) -> Mapping[str, Range]:
    """Return the ranges of the numbers of a record, by field."""
    return {one.name: one.metadata["range"] for one in fields(record) if "range" in one.metadata}


def read(
    given: Mapping[str, object], record: type, **readers: Callable[[str], int]
) -> tuple[dict[str, int], dict[str, str]]:
    """Return numbers as somebody wrote them, and problems, by field. `readers`: of fields without a range."""
    for name, (least, most, _, _) in ranges(record).items():
        readers[name] = partial(_whole, least, most)
    values, problems = {}, {}
    for name, text in given.items():
        try:
            values[name] = readers[name](str(text).strip())
        except KeyError:
            problems[name] = "there is no such field"
        except ValueError as error:
            problems[name] = str(error)
    return values, problems


def _whole(least: int, most: int, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or not least <= int(text) <= most:
        raise ValueError(f"write a whole number from {least} to {most}")
    return int(text)
