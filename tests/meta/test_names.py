"""Identifiers are names, docstrings say more than they do, and a class name occurs once."""

from __future__ import annotations

import pytest

from tests.meta import names


@pytest.mark.parametrize(
    "source",
    [
        "def told(): ...",
        "class Wanted: ...",
        "def send(who): ...",
        "found = 1",
        "class Node:\n    def start(self):\n        self._asked = 1",
        "import json as what",
        "for one in (): ...",
        "try: ...\nexcept OSError as gone: ...",
        "match 1:\n    case kept: ...",
    ],
)
def test_non_names_are_found(source: str) -> None:
    """Wherever Python binds them, in any case and with underscores."""
    assert [*names.non_names(source)]


def test_words_within_names_are_allowed() -> None:
    assert not [*names.non_names("is_closed = True\ndef find_known_agents(found_count): ...")]


def test_the_tree_has_no_non_names() -> None:
    assert names.findings() == []


def test_docstrings_do_not_repeat_names() -> None:
    assert names.short_docstrings() == []


def test_class_names_are_unique() -> None:
    assert names.shared_class_names() == []
