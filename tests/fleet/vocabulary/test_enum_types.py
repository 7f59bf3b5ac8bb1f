"""Base classes of enumerations."""

from __future__ import annotations

import pytest

from fleet.alerts.rules import RuleKind
from fleet.models.access import Permission
from fleet.vocabulary.enum_types import LabelledEnum, NumberedEnum
from fleet.vocabulary.incidents import Severity
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import State


@pytest.mark.parametrize("enum_type", [State, InstanceState, Severity])
def test_numbered_member_equals_its_number_and_has_a_look(enum_type: type[NumberedEnum]) -> None:
    """The record stores numbers; pages use the looks."""
    for member in enum_type:
        assert enum_type(member.look.number) is member
        assert member == member.look.number
        assert member.slug == member.name.lower()


@pytest.mark.parametrize("enum_type", [RuleKind, Permission])
def test_labelled_member_equals_its_slug_and_has_a_label(enum_type: type[LabelledEnum]) -> None:
    """Rows and URLs have the slugs, pages the labels."""
    for member in enum_type:
        assert enum_type(member.value) is member
        assert member == str(member) == member.value
        assert member.label != member.value
