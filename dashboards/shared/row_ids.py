"""Ids of rows as forms and queries name them."""

from __future__ import annotations

#: A key of the database has 63 bits: 19 digits.
_MOST_DIGITS = 18


def row_id(text: str) -> int:
    """Return the id that `text` names; 0, which no row has, for anything else, however long."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0
