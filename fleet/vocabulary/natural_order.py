"""Natural sort order of names and versions. No I/O."""

from __future__ import annotations

import re

_NUMBER = re.compile("([0-9]+)")


def natural_sort_key(name: str) -> tuple[str, int, str, str]:
    """Return a sort key for natural order: agent-2 before agent-10."""
    stem = name.rstrip("0123456789")
    # The number with more digits is larger; int() rejects numbers with thousands of digits.
    digits = name[len(stem) :].lstrip("0")
    return stem, len(digits), digits, name


def version_sort_key(version: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that compares every number as one: 18.9.1 before 18.10.0."""
    texts = _NUMBER.split(version)
    # Texts and numbers alternate. The number with more digits is larger.
    numbers = (text.lstrip("0") if index % 2 else text for index, text in enumerate(texts))
    return tuple((len(text) if index % 2 else 0, text) for index, text in enumerate(numbers))
