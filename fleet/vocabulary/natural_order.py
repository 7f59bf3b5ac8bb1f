"""Natural sort order of names. No I/O."""

from __future__ import annotations


def natural_sort_key(name: str) -> tuple[str, int, str, str]:
    """Return a sort key for natural order: agent-2 before agent-10."""
    stem = name.rstrip("0123456789")
    # The number with more digits is larger; int() rejects numbers with thousands of digits.
    digits = name[len(stem) :].lstrip("0")
    return stem, len(digits), digits, name
