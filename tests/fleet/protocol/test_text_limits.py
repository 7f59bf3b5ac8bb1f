"""Texts of bounded length."""

from __future__ import annotations

import pytest

from fleet.protocol import text_limits


@pytest.mark.parametrize("text", ["", "agent-1", "Bücher-Straße 7", "エージェント", "a" * 256])
def test_text_of_people_is_taken(text: str) -> None:
    """In any script, up to the limit."""
    assert text_limits.refusal("name", text) == ""
    assert text_limits.cut(text) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a" * 257, "name is longer than 256 characters"),
        ("agent\n1", "name contains unprintable characters"),
        ("agent\x1b[2J", "name contains unprintable characters"),
        ("agent-\u202e1", "name contains unprintable characters"),
    ],
)
def test_text_that_cannot_be_shown_is_refused(text: str, why: str) -> None:
    """The field is named: too long, or with characters that act on a terminal or turn a line around."""
    assert text_limits.refusal("name", text) == why


def test_cut_text_says_so() -> None:
    """It has the length that is allowed, and an ellipsis at its end."""
    shown = text_limits.cut("x" * 4_000_000)
    assert (len(shown), shown[-2:]) == (text_limits.LONGEST_NAME, "x…")
