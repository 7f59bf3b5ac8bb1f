"""Names in the order in which people count. Pure."""

from __future__ import annotations


def natural_sort_key(name: str) -> tuple[str, int, str, str]:
    """Order names as people count: agent-2 before agent-10."""
    stem = name.rstrip("0123456789")
    # Of two numbers the one with more digits is larger; int() refuses thousands of them.
    digits = name[len(stem) :].lstrip("0")
    return stem, len(digits), digits, name
