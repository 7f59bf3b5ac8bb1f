"""What words are declared with."""

from __future__ import annotations

import pytest

from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.looks import Numbered
from fleet.vocabulary.verdicts import State


@pytest.mark.parametrize("words", [State, InstanceState])
def test_member_is_its_number_and_has_its_look(words: type[Numbered]) -> None:
    """The record has the numbers, pages the looks."""
    for member in words:
        assert words(member.look.number) is member
        assert member == member.look.number
        assert member.slug == member.name.lower()
