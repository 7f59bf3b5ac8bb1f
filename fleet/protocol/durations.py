"""Go durations: `1m30s`, `500ms`, `10m0s`. https://pkg.go.dev/time#ParseDuration

Seconds as floats everywhere else; integer nanoseconds where Teleport's formats say so.
"""

from __future__ import annotations

import re
from decimal import Decimal

NANOSECONDS = 1_000_000_000
#: A century: what is longer is a mistake of who says it, and leads to dates that do not exist.
LONGEST_MS = 3_155_760_000_000

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": NANOSECONDS,
    "m": 60 * NANOSECONDS,
    "h": 3600 * NANOSECONDS,
}
#: One way to read a number: two would be tried for every digit of a long one, which takes the square of them.
_TERM = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_LARGEST = (1 << 63) - 1
#: Characters; the longest that Go writes has 22.
_LONGEST = 256
_QUOTE_LENGTH = 64


class DurationError(ValueError):
    """A duration that does not parse; the sentence shows it and an example."""

    def __init__(self, text: str) -> None:
        quote = text if len(text) <= _QUOTE_LENGTH else f"{text[:_QUOTE_LENGTH]}…"
        super().__init__(f"{quote!r} is not a duration: write it like 30s, 1m30s or 500ms")


def from_milliseconds(milliseconds: int) -> float:
    """Return seconds of what another program says; no more than a century, whatever it says."""
    return min(milliseconds, LONGEST_MS) / 1000


def parse(text: str) -> float:
    """Read a Go duration as seconds. Raises DurationError."""
    return parse_nanoseconds(text) / NANOSECONDS


def parse_nanoseconds(text: str) -> int:
    """Read a Go duration as nanoseconds. Raises DurationError, also beyond 64 bits as Go does."""
    if len(text) > _LONGEST:
        raise DurationError(text)
    body, sign = text, 1
    if body[:1] in {"+", "-"}:
        sign = -1 if body[0] == "-" else 1
        body = body[1:]
    if body == "0":
        return 0
    position, total = 0, 0
    while position < len(body):
        term = _TERM.match(body, position)
        if term is None:
            raise DurationError(text)
        # Decimal: 0.1s is a whole number of nanoseconds only without binary rounding.
        total += int(Decimal(term[1]) * _UNITS[term[2]])
        position = term.end()
    if not body or total > _LARGEST:
        raise DurationError(text)
    return sign * total


def format_seconds(seconds: float) -> str:
    """Write seconds as Go's Duration.String does: `1m0s`, `1.5s`, `500ms`, `0s`."""
    nanoseconds = to_nanoseconds(seconds)
    if nanoseconds == 0:
        return "0s"
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest < NANOSECONDS:
        for unit, size in (("ms", 1_000_000), ("µs", 1_000), ("ns", 1)):
            if rest >= size:
                return f"{sign}{_decimal(rest, size)}{unit}"
    minutes, below = divmod(rest, 60 * NANOSECONDS)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(below, NANOSECONDS)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else f"{sign}{text}"


def to_nanoseconds(seconds: float) -> int:
    """Seconds as whole nanoseconds, the unit of Go's JSON and of Teleport's protos."""
    return round(seconds * NANOSECONDS)


def from_nanoseconds(nanoseconds: int) -> float:
    """Whole nanoseconds as seconds."""
    return nanoseconds / NANOSECONDS


def _decimal(nanoseconds: int, unit: int) -> str:
    whole, fraction = divmod(nanoseconds, unit)
    if not fraction:
        return str(whole)
    return f"{whole}.{fraction:0{len(str(unit)) - 1}d}".rstrip("0")
