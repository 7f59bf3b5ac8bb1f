"""Values that pages show as tags, with the tone of each tag. No I/O."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from fleet.vocabulary.enum_types import LabelledEnum
from fleet.vocabulary.verdicts import State


def _tone_css(state: State) -> str:
    return f"--edge: var(--{state.slug}); --ground: var(--wash-{state.look.wash})"


class Tone(StrEnum):
    """Tone of a tag: CSS custom properties for css/changes.css."""

    GOOD = _tone_css(State.HEALTHY)
    BUSY = _tone_css(State.WORKING)
    BAD = _tone_css(State.AT_RISK)
    DASHED = "--dash: dashed"
    QUIET = "--dash: dashed; --weight: 400; --word: var(--ink-2)"


class TagEnum(LabelledEnum):
    """Values with a slug, a tone and a label; the label defaults to the slug: `FAILED = "failed", Tone.BAD`."""

    tone: Tone

    def __new__(cls, slug: str, tone: Tone = Tone.QUIET, label: str = "") -> Self:
        """Return a member that equals its slug, with its tone and its label."""
        member = str.__new__(cls, slug)
        member._value_, member.tone, member.label = slug, tone, label or slug
        return member
