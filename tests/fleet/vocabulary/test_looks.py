"""What words are declared with."""

from __future__ import annotations

import pytest

from fleet.alerts.rules import RuleKind
from fleet.models.access import Permission
from fleet.vocabulary.incidents import Severity
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.looks import LabelledEnum, NumberedEnum
from fleet.vocabulary.verdicts import State


@pytest.mark.parametrize("words", [State, InstanceState, Severity])
def test_member_is_its_number_and_has_its_look(words: type[NumberedEnum]) -> None:
    """The record has the numbers, pages the looks."""
    for member in words:
        assert words(member.look.number) is member
        assert member == member.look.number
        assert member.slug == member.name.lower()


@pytest.mark.parametrize("words", [RuleKind, Permission])
def test_member_is_its_slug_and_has_its_label(words: type[LabelledEnum]) -> None:
    """Rows and URLs have the slugs, pages the labels."""
    for member in words:
        assert words(member.value) is member
        assert member == str(member) == member.value
        assert member.label != member.value
