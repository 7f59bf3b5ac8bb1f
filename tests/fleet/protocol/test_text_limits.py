"""Length limits and printable characters of names."""

from __future__ import annotations

import pytest

from fleet.protocol import text_limits


@pytest.mark.parametrize("text", ["", "agent-1", "Bücher-Straße 7", "エージェント", "a" * 256])
def test_valid_text_is_accepted(text: str) -> None:
    """Any script is accepted, up to the limit."""
    assert text_limits.refusal_of("name", text) == ""
    assert text_limits.cut(text) == text


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a" * 257, "name is longer than 256 characters"),
        ("agent\n1", "name contains unprintable characters"),
        ("agent\x1b[2J", "name contains unprintable characters"),
        ("agent-\u202e1", "name contains unprintable characters"),
    ],
)
def test_long_or_unprintable_text_is_refused(text: str, error: str) -> None:
    """The error names the field. Control and right-to-left characters are refused."""
    assert text_limits.refusal_of("name", text) == error


def test_cut_text_ends_with_an_ellipsis() -> None:
    """Cut text has exactly the maximum length."""
    shortened = text_limits.cut("x" * 4_000_000)
    assert (len(shortened), shortened[-2:]) == (text_limits.LONGEST_NAME, "x…")
