"""Comparisons in filters of agents: `>5m` and `<1h` of ages, `3`, `>3` and `<3` of generations. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleet.protocol.durations import DurationError, parse_readable

_OPERATORS = ("<=", ">=", "<", ">")
#: Maximum digits of a generation.
_MAX_DIGITS = 18


class ComparisonError(ValueError):
    """A text that is not a comparison; the message says what would be, as a sentence."""


@dataclass(frozen=True, slots=True)
class NumberComparison:
    """A comparison with a number: `operator` is one of <, <=, >, >= and =."""

    operator: str
    number: float

    def accepts(self, number: float) -> bool:
        """Return whether a number meets the comparison."""
        return bool(self.mask(np.array([number]))[0])

    def mask(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Return which numbers meet the comparison."""
        compare = {
            "<": np.less,
            "<=": np.less_equal,
            ">": np.greater,
            ">=": np.greater_equal,
            "=": np.equal,
        }[self.operator]
        mask: npt.NDArray[np.bool_] = compare(numbers, self.number)
        return mask


def parse_age(text: str) -> NumberComparison:
    """Return a comparison of a time in the present state, seconds: `>5m`, `<1h`, `>=2d`. Raises ComparisonError."""
    operator, duration = _split(text)
    try:
        if not operator:
            raise DurationError(text)
        return NumberComparison(operator, parse_readable(duration))
    except DurationError:
        raise ComparisonError(
            f"Invalid age {text!r}. Compare the time in the present state: age:>5m or age:<1h."
        ) from None


def parse_generation(text: str) -> NumberComparison:
    """Return a comparison of a generation: `3`, `>3`, `<=3`. Raises ComparisonError."""
    operator, digits = _split(text)
    if not digits.isascii() or not digits.isdecimal() or len(digits) > _MAX_DIGITS:
        raise ComparisonError(
            f"Invalid generation {text!r}. Enter a number, or compare: generation:3, generation:<3."
        )
    return NumberComparison(operator or "=", int(digits))


def _split(text: str) -> tuple[str, str]:
    operator = next((operator for operator in _OPERATORS if text.startswith(operator)), "")
    return operator, text[len(operator) :]
