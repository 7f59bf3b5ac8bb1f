"""Numeric settings of operators, each declared once as a field of a record. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from functools import partial
from typing import Any

from fleet.protocol import durations

#: The unit of durations.
SECONDS_UNIT = "seconds"

#: Smallest and largest value, label and unit.
SettingRange = tuple[int, int, str, str]


class TypedDuration(str):
    """A duration that a person typed with its unit, for a setting in seconds."""

    __slots__ = ()


def number_field(default: int, least: int, most: int, label: str, unit: str = "") -> Any:
    """Return a dataclass field with a default, a range, a label and a unit."""
    return field(default=default, metadata={"range": (least, most, label, unit)})


def ranges_of(settings_type: type) -> Mapping[str, SettingRange]:
    """Return the ranges of a record's numeric settings, by field."""
    return {
        setting_field.name: setting_field.metadata["range"]
        for setting_field in fields(settings_type)
        if "range" in setting_field.metadata
    }


def parse_numbers(
    raw_values: Mapping[str, object], settings_type: type, **parsers: Callable[[str], int]
) -> tuple[dict[str, int], dict[str, str]]:
    """Parse settings and return values and problems, both by field. `parsers` parse fields without a range."""
    ranges = ranges_of(settings_type)
    for name, (least, most, _, _) in ranges.items():
        parsers[name] = partial(_parse_whole_number, least, most)
    numbers, problems = {}, {}
    for name, raw_value in raw_values.items():
        try:
            parser = parsers[name]
            if isinstance(raw_value, TypedDuration):
                parser = partial(_parse_duration, *ranges[name][:2])
            numbers[name] = parser(str(raw_value).strip())
        except KeyError:
            problems[name] = f"unknown setting; use {', '.join(parsers)}"
        except ValueError as error:
            problems[name] = str(error)
    return numbers, problems


def _parse_duration(least: int, most: int, text: str) -> int:
    seconds = durations.parse_readable(text)
    if not (least <= seconds <= most and seconds.is_integer()):
        lowest, highest = durations.format_exact(least), durations.format_exact(most)
        raise ValueError(f"enter whole seconds, from {lowest} to {highest}")
    return int(seconds)


def _parse_whole_number(least: int, most: int, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or not least <= int(text) <= most:
        raise ValueError(f"enter a whole number from {least:,} to {most:,}")
    return int(text)
