"""How well a text matches what is typed into the palette. Pure.

An exact match comes first, then a prefix, the start of a word, any part, and last a text that only has all words of the
query. Upper and lower case are equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class MatchRank(IntEnum):
    """How a text matches a query; a smaller number is a better match."""

    EXACT = 0
    PREFIX = 1
    WORD_START = 2
    PART = 3
    ALL_WORDS = 4


def normalize(text: str) -> str:
    """Return a text in the form in which texts and queries are compared: case folded, with single spaces."""
    return " ".join(text.casefold().split())


def rank_match(text: str, query: str) -> MatchRank | None:
    """Return how `text` matches `query`, both normalized; None if it does not match. An empty query is a prefix."""
    position = text.find(query)
    if position < 0:
        terms = query.split()
        has_all_words = len(terms) > 1 and all(term in text for term in terms)
        return MatchRank.ALL_WORDS if has_all_words else None
    if position == 0:
        return MatchRank.EXACT if text == query else MatchRank.PREFIX
    while position > 0:
        if not text[position - 1].isalnum():
            return MatchRank.WORD_START
        position = text.find(query, position + 1)
    return MatchRank.PART


def rank_best(texts: Iterable[str], query: str) -> MatchRank | None:
    """Return the best rank of several normalized texts for the same object; None if none matches."""
    ranks = [rank for text in texts if (rank := rank_match(text, query)) is not None]
    return min(ranks, default=None)
