"""How long texts may be that a program says of itself: nodes refuse longer ones, and the console cuts them. Pure.

Every text of an agent is kept by the backend, by the console's record and by its pages: one agent must not fill them.
"""

from __future__ import annotations

#: Characters of an id, which is a UUID; what is much longer is no id.
LONGEST_ID = 128
#: Characters of a name for people. A host name of DNS has 253 at most.
LONGEST_NAME = 256
#: Characters of every other text: versions, modes, revisions, keys and values of labels.
LONGEST_WORD = 256
#: Labels of one agent.
MOST_LABELS = 64
#: Bytes of a heartbeat as a whole: it lists every proxy that the agent has a tunnel to, 38 bytes each.
LONGEST_HEARTBEAT = 262_144


def refusal(field: str, text: str, longest: int = LONGEST_WORD) -> str:
    """Return why a text cannot be taken; empty when it can."""
    if len(text) > longest:
        return f"{field} has more than {longest} characters"
    if not text.isprintable():
        return f"{field} has characters that cannot be printed"
    return ""


def cut(text: str, longest: int = LONGEST_NAME) -> str:
    """Return the beginning of a text, marked where it was cut."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
