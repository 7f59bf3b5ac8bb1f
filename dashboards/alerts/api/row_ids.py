"""Numbers of rows in paths of the API."""

from __future__ import annotations


def row_id_or_zero(number: int) -> int:
    """Return a number that fits a database key; 0 for any other."""
    return number if 0 < number < 1 << 62 else 0
