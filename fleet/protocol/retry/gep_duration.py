"""Durations of the Gateway API: `1h30m`, `100ms`, `0s`. https://gateway-api.sigs.k8s.io/geps/gep-2257/

A subset of Go's: one to four whole numbers of up to five digits with h, m, s or ms; no sign, no fraction. For Go's and
Teleport's durations see durations.py. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

# `[0-9]`, because `\d` matches digits of every script; with fullmatch, because `$` allows a newline at the end.
_WHOLE = re.compile(r"([0-9]{1,5}(h|ms|m|s)){1,4}")
# `ms` comes before `m`: otherwise 500ms reads as 500 minutes and a stray s.
_PART = re.compile(r"([0-9]{1,5})(h|ms|m|s)")
_UNIT_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
#: The longest duration with each unit once, 99999h59m59s999ms, in milliseconds.
LONGEST_MS = 100_000 * _UNIT_MILLISECONDS["h"] - 1


class GepDurationError(ValueError):
    """A text that is not a Gateway API duration, or a length of time that cannot be written as one."""


@dataclass(frozen=True, slots=True)
class GepDuration:
    """A duration with its original text: GEP-2257 forbids rewriting it."""

    text: str
    milliseconds: int

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the duration of a text. Raises GepDurationError."""
        return cls(text, parse(text))

    @classmethod
    def of(cls, milliseconds: int) -> Self:
        """Return the duration of so many milliseconds, in the canonical form. Raises GepDurationError."""
        return cls(format_milliseconds(milliseconds), milliseconds)

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return self.milliseconds / 1000


def parse(text: str) -> int:
    """Return a duration in milliseconds. Raises GepDurationError."""
    if _WHOLE.fullmatch(text) is None:
        raise GepDurationError(
            f"{text!r} is not a duration. Use one to four whole numbers with h, m, s or ms, such as 1h30m or 100ms"
        )
    return sum(int(number) * _UNIT_MILLISECONDS[unit] for number, unit in _PART.findall(text))


def format_milliseconds(milliseconds: int) -> str:
    """Return milliseconds in the canonical form: largest units first, zero as `0s`. Raises GepDurationError."""
    if not 0 <= milliseconds <= LONGEST_MS:
        raise GepDurationError(f"{milliseconds} ms is out of range. Use 0s to 99999h59m59s999ms")
    parts, rest = [], milliseconds
    for unit, size in _UNIT_MILLISECONDS.items():
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"
