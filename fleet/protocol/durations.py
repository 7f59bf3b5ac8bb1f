"""Go durations such as `1m30s`, `500ms` and `10m0s`: parsing and formatting; and durations for people. https://pkg.go.dev/time#ParseDuration

Durations are float seconds everywhere else, and integer nanoseconds where Teleport's formats use them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal

NANOSECONDS_PER_SECOND = 1_000_000_000
#: A century: a longer duration is a mistake of its sender and leads to dates that do not exist.
LONGEST_MS = 3_155_760_000_000

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": NANOSECONDS_PER_SECOND,
    "m": 60 * NANOSECONDS_PER_SECOND,
    "h": 3600 * NANOSECONDS_PER_SECOND,
}
_READABLE_UNITS = _UNITS | {"min": _UNITS["m"], "d": 24 * _UNITS["h"]}
#: Unambiguous: a pattern with two ways to read each digit takes quadratic time on a long number.
_TERM = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_READABLE_TERM = re.compile(r" ?(\d+(?:\.\d*)?|\.\d+) ?(ns|us|µs|μs|ms|min|s|m|h|d)", re.ASCII)
_MAX_NANOSECONDS = (1 << 63) - 1
#: 13 days. For shorter durations, float seconds times a billion are wrong by less than half a nanosecond.
_MAX_PRECISE_NANOSECONDS = 1 << 50
#: Maximum length, characters; the longest text that Go writes has 22.
_MAX_TEXT_LENGTH = 256
_QUOTE_LENGTH = 64


class DurationError(ValueError):
    """A text that is not a duration; the message quotes it and shows examples."""

    def __init__(self, text: str, hint: str = "Use a form like 30s, 1m30s or 500ms") -> None:
        quote = text if len(text) <= _QUOTE_LENGTH else f"{text[:_QUOTE_LENGTH]}…"
        super().__init__(f"{quote!r} is not a duration. {hint}")


def from_milliseconds(milliseconds: int) -> float:
    """Return another program's milliseconds as seconds, at most a century."""
    return min(milliseconds, LONGEST_MS) / 1000


def parse(text: str) -> float:
    """Return a Go duration as seconds. Raises DurationError."""
    return parse_nanoseconds(text) / NANOSECONDS_PER_SECOND


def parse_nanoseconds(text: str) -> int:
    """Return a Go duration as nanoseconds. Raises DurationError, also beyond 64 bits, as Go does."""
    nanoseconds = _sum_terms(text, _TERM, _UNITS)
    if nanoseconds is None:
        raise DurationError(text)
    return nanoseconds


def parse_readable(text: str) -> float:
    """Return a duration that a person typed as seconds: `24 h`, `1 h 30 min`, `2 d`, `1h30m`. Raises DurationError."""
    nanoseconds = _sum_terms(text.strip(), _READABLE_TERM, _READABLE_UNITS)
    if nanoseconds is None:
        raise DurationError(text, "Enter a number with its unit: 24 h, 10 min, 90 s or 1 h 30 min")
    return nanoseconds / NANOSECONDS_PER_SECOND


def _sum_terms(text: str, pattern: re.Pattern[str], units: Mapping[str, int]) -> int | None:
    """Return the sum of the terms of a duration as nanoseconds; None for any other text, and beyond 64 bits."""
    if len(text) > _MAX_TEXT_LENGTH:
        return None
    body, sign = text, 1
    if body[:1] in {"+", "-"}:
        sign = -1 if body[0] == "-" else 1
        body = body[1:]
    if body == "0":
        return 0
    position, total = 0, 0
    while position < len(body):
        term = pattern.match(body, position)
        if term is None:
            return None
        # Decimal: with binary rounding, 0.1s would not be a whole number of nanoseconds.
        total += int(Decimal(term[1]) * units[term[2]])
        position = term.end()
    return sign * total if body and total <= _MAX_NANOSECONDS else None


def format_seconds(seconds: float) -> str:
    """Return seconds in the form of Go's Duration.String: `1m0s`, `1.5s`, `500ms`, `0s`."""
    nanoseconds = to_nanoseconds(seconds)
    if nanoseconds == 0:
        return "0s"
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest < NANOSECONDS_PER_SECOND:
        for unit, size in (("ms", 1_000_000), ("µs", 1_000), ("ns", 1)):
            if rest >= size:
                return f"{sign}{_format_decimal(rest, size)}{unit}"
    minutes, below = divmod(rest, 60 * NANOSECONDS_PER_SECOND)
    hours, minutes = divmod(minutes, 60)
    text = f"{_format_decimal(below, NANOSECONDS_PER_SECOND)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else f"{sign}{text}"


# Cached: an evaluation of alerts formats the same few times of rules for each open incident.
@functools.lru_cache(maxsize=256)
def format_readable(seconds: float) -> str:
    """Return seconds for people, in its two largest units: `500 ms`, `1.5 s`, `10 min`, `1 h 30 min`, `24 h`, `2 d`."""
    if abs(seconds) < 60:
        return f"{seconds:.4g} s" if abs(seconds) >= 1 or seconds == 0 else f"{seconds * 1000:.4g} ms"
    rest, parts = round(seconds), []
    if rest == 86_400:
        return "24 h"  # as in forms
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        parts.append(f"{count} {unit}" if count else "")
    first = next(position for position, part in enumerate(parts) if part)
    return " ".join(part for part in parts[first : first + 2] if part)


def format_exact(seconds: float) -> str:
    """Return seconds for a form field, in all units up to hours: `24 h`, `1 h 30 min`, `90.5 s` as `1 min 30.5 s`."""
    nanoseconds = to_nanoseconds(seconds)
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if 0 < rest < NANOSECONDS_PER_SECOND:
        return f"{sign}{_format_decimal(rest, 1_000_000)} ms"
    minutes, below = divmod(rest, 60 * NANOSECONDS_PER_SECOND)
    hours, minutes = divmod(minutes, 60)
    parts = ((str(hours), "h"), (str(minutes), "min"), (_format_decimal(below, NANOSECONDS_PER_SECOND), "s"))
    return sign + (" ".join(f"{count} {unit}" for count, unit in parts if count != "0") or "0 s")


def to_nanoseconds(seconds: float) -> int:
    """Return seconds as whole nanoseconds, the unit of Go's JSON and of Teleport's protos; within 64 bits."""
    product = seconds * NANOSECONDS_PER_SECOND
    if abs(product) <= _MAX_PRECISE_NANOSECONDS:
        return round(product)
    nanoseconds = round(Decimal(repr(seconds)) * NANOSECONDS_PER_SECOND)
    # The longest duration of Go, as seconds, is rounded up: without the limit its text could not be parsed.
    return min(max(nanoseconds, -_MAX_NANOSECONDS), _MAX_NANOSECONDS)


def from_nanoseconds(nanoseconds: int) -> float:
    """Return whole nanoseconds as seconds."""
    return nanoseconds / NANOSECONDS_PER_SECOND


def _format_decimal(nanoseconds: int, unit: int) -> str:
    whole, fraction = divmod(nanoseconds, unit)
    if not fraction:
        return str(whole)
    return f"{whole}.{fraction:0{len(str(unit)) - 1}d}".rstrip("0")


def format_clock_time(at: float) -> str:
    """Return seconds since the epoch as a time of day in UTC: `22:10:05 UTC`."""
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC"
