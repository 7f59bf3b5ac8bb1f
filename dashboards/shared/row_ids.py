"""Ids of database rows in forms and queries."""

from __future__ import annotations

#: A database key has 63 bits, that is up to 19 digits.
_MAX_DIGITS = 18


def parse_row_id(text: str) -> int:
    """Return the id in `text`; 0, which no row has, if it is no id."""
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else 0
