"""How texts match queries."""

from __future__ import annotations

import pytest

from dashboards.palette.ranking import MatchRank, normalize, rank_best, rank_match


@pytest.mark.parametrize(
    ("text", "query", "rank"),
    [
        ("proxy-1", "proxy-1", MatchRank.EXACT),
        ("proxy-10", "proxy-1", MatchRank.PREFIX),
        ("my proxy-1", "proxy-1", MatchRank.WORD_START),
        ("xoslo db.oslo", "oslo", MatchRank.WORD_START),
        ("myproxy-1", "proxy-1", MatchRank.PART),
        ("take out of service proxy-1", "proxy-1 out", MatchRank.ALL_WORDS),
        ("proxy-1", "proxy-2", None),
        ("proxy-1", "proxy-1 out", None),
        ("proxy-1", "", MatchRank.PREFIX),
    ],
)
def test_ranks(text: str, query: str, rank: MatchRank | None) -> None:
    """Exact, prefix, start of a word, part, all words, none."""
    assert rank_match(text, query) == rank


def test_best_of_several_texts() -> None:
    """A name or an id may match."""
    assert rank_best(("long-name", "id-1"), "id-1") is MatchRank.EXACT
    assert rank_best(("long-name", "id-1"), "other") is None


def test_normalized_texts_ignore_case_and_spaces() -> None:
    """Also of letters beyond ASCII."""
    assert normalize("  Straße\tÉCOLE ") == "strasse école"
