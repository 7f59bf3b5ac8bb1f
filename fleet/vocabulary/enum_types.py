"""Base classes of enumerations with numbers, labels, colours and symbols. No I/O."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, Self


class Stroke(NamedTuple):
    """A path of a symbol: to stroke, or to fill when `width` is 0."""

    path: str
    width: float = 0
    dashes: str = ""
    #: CSS class: `knock` cuts the path out of the paths below, `round` rounds its corners.
    style: str = ""


class NumberedEnum(IntEnum):
    """Values declared by a look with a number: `OK = InstanceLook(1, ...)`. `InstanceState(1)` returns it."""

    look: Any

    def __new__(cls, look: Any) -> Self:
        """Return a member that equals its number, with its look."""
        member = int.__new__(cls, look.number)
        member._value_, member.look = look.number, look
        return member

    @property
    def slug(self) -> str:
        """Return the name in the API, in URLs and in CSS: `at_risk`."""
        return self.name.lower()


class LabelledEnum(StrEnum):
    """Values with a slug and a label: `BLIND = "blind", "Refloat receives no monitoring data"`."""

    _value_: str
    label: str

    def __new__(cls, slug: str, label: str = "") -> Self:
        """Return a member that equals its slug, with its label."""
        member = str.__new__(cls, slug)
        member._value_, member.label = slug, label
        return member
