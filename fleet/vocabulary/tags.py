"""Words that pages show as tags, each declared with the tone of its tag. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from fleet.vocabulary.looks import LabelledEnum
from fleet.vocabulary.verdicts import State


def _tone_css(state: State) -> str:
    return f"--edge: var(--{state.slug}); --ground: var(--wash-{state.look.wash})"


class Tone(StrEnum):
    """How a tag looks: custom properties for css/changes.css."""

    GOOD = _tone_css(State.HEALTHY)
    BUSY = _tone_css(State.WORKING)
    BAD = _tone_css(State.AT_RISK)
    DASHED = "--dash: dashed"
    QUIET = "--dash: dashed; --weight: 400; --word: var(--ink-2)"


class TagEnum(LabelledEnum):
    """Words that are declared with a tone, and with a name in the UI where that is another: `OK = "ok", Tone.GOOD`."""

    tone: Tone

    def __new__(cls, slug: str, tone: Tone = Tone.QUIET, label: str = "") -> Self:
        """Make a member that is its slug, and has its tone and its label."""
        member = str.__new__(cls, slug)
        member._value_, member.tone, member.label = slug, tone, label or slug
        return member
