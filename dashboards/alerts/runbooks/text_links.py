"""A custom text as paragraphs, lines and links. Pure: templates escape every part."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: A web address; other schemes, such as javascript, never become links.
_ADDRESS = re.compile(r"https?://[^\s<>\"'.,;:!?)][^\s<>\"']*", re.IGNORECASE)
#: Characters that end a sentence or close a bracket around an address, and do not belong to the address.
_TRAILING = ".,;:!?"
_BRACKETS = {")": "(", "]": "["}


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part of a line; `url` empty: it is no link."""

    text: str
    url: str = ""


def split_paragraphs(text: str) -> list[list[list[TextPart]]]:
    """Return the paragraphs of a text, each as its lines, each as parts with and without a link."""
    paragraphs = re.split(r"\n\s*\n", text)
    return [
        [split_links(line) for line in paragraph.split("\n")] for paragraph in paragraphs if paragraph.strip()
    ]


def split_links(line: str) -> list[TextPart]:
    """Return the parts of a line: web addresses become links."""
    parts, end = list[TextPart](), 0
    for match in _ADDRESS.finditer(line):
        address = _strip_punctuation(match[0])
        if match.start() > end:
            parts.append(TextPart(line[end : match.start()]))
        parts.append(TextPart(address, address))
        end = match.start() + len(address)
    return [*parts, TextPart(line[end:])] if end < len(line) else parts


def _strip_punctuation(address: str) -> str:
    while address[-1] in _TRAILING or (
        address[-1] in _BRACKETS and address.count(address[-1]) > address.count(_BRACKETS[address[-1]])
    ):
        address = address[:-1]
    return address
