"""Lists of names in sentences."""

from __future__ import annotations

import pytest

from fleet.vocabulary.name_lists import join_names


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["ops"], "ops"),
        (["ops", "pager"], "ops and pager"),
        (["ops", "pager", "chief"], "ops, pager and chief"),
    ],
)
def test_names_are_joined_as_in_a_sentence(names: list[str], text: str) -> None:
    """The last one follows an *and*."""
    assert join_names(names) == text
