"""Maximum lengths of texts that clients send: instances refuse longer ones, and the console cuts them. Pure.

The backend, the console's database and its pages store every text of an agent: one agent must not fill them.
"""

from __future__ import annotations

#: Characters of an id; a UUID has 36.
LONGEST_ID = 128
#: Characters of a display name; a DNS host name has at most 253.
LONGEST_NAME = 256
#: Characters of every other text: versions, modes, revisions, keys and values of labels.
LONGEST_TEXT = 256
#: Number of labels of one agent.
MOST_LABELS = 64
#: Bytes of a whole heartbeat: it lists every proxy with a tunnel of the agent, 38 bytes each.
LONGEST_HEARTBEAT = 262_144


def refusal_of(field: str, text: str, longest: int = LONGEST_TEXT) -> str:
    """Return why a text is refused; empty when it is accepted."""
    if len(text) > longest:
        return f"{field} is longer than {longest} characters"
    if not text.isprintable():
        return f"{field} contains unprintable characters"
    return ""


def cut(text: str, longest: int = LONGEST_NAME) -> str:
    """Return a text cut to `longest` characters, with an ellipsis if it was longer."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
