"""What a declaration of a word has beside the word: number, colours, symbol. Pure."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, Self


class Stroke(NamedTuple):
    """A part of a symbol: a path to stroke, or to fill where it has no width."""

    path: str
    width: float = 0
    dashes: str = ""
    #: A CSS class: `knock` cuts it out of what is beneath it, `round` rounds its corners.
    style: str = ""


class NumberedEnum(IntEnum):
    """Words that are declared by a look with a number: `OK = InstanceLook(1, ...)`. `InstanceState(1)` finds it."""

    look: Any

    def __new__(cls, look: Any) -> Self:
        """Make a member that is its number, and has its look."""
        member = int.__new__(cls, look.number)
        member._value_, member.look = look.number, look
        return member

    @property
    def slug(self) -> str:
        """Its name in the API, in URLs and in CSS: `at_risk`."""
        return self.name.lower()


class LabelledEnum(StrEnum):
    """Words that are declared with their name in the UI: `BLIND = "blind", "The console itself cannot see"`."""

    _value_: str
    label: str

    def __new__(cls, slug: str, label: str = "") -> Self:
        """Make a member that is its slug, and has its label."""
        member = str.__new__(cls, slug)
        member._value_, member.label = slug, label
        return member
