"""Slack messages: a card as Block Kit blocks. Pure. https://docs.slack.dev/reference/block-kit

Texts of the fleet are `plain_text` without emoji, in which Slack formats nothing, with `&`, `<` and `>` escaped as in
every text object. So a name cannot mention a channel, be bold, or become a link.
"""

from __future__ import annotations

from typing import Any

from fleet.alerts.channels.cards import Card, CardButton, truncate

Block = dict[str, Any]

#: Limits of Block Kit, characters after escaping.
_MAX_HEADER_LENGTH = 150
_MAX_SECTION_LENGTH = 3000
_MAX_BUTTON_LENGTH = 75
#: Limits of our own. From about 13,000 characters on, Slack refuses all blocks together (`msg_blocks_too_long`).
_MAX_TEXT_LENGTH = 1500
_MAX_FIELD_LENGTH = 500
_MAX_FOOTER_LENGTH = 500
_MAX_BODY_LENGTH = 8000
#: Longest fallback text. Slack truncates texts of more than 4000 characters.
_MAX_FALLBACK_LENGTH = 3000
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def blocks_of(card: Card) -> list[Block]:
    """Return the blocks of a card."""
    blocks: list[Block] = [{"type": "header", "text": _plain_text(card.title, _MAX_HEADER_LENGTH)}]
    blocks += [text_block(card.headline)] if card.headline else []
    blocks += [text_block(text, _MAX_SECTION_LENGTH) for text in _split_lines(card.body)]
    if card.facts:
        # Two columns: each label beside its value.
        fields = [
            field
            for label, fact in card.facts
            for field in (
                {"type": "mrkdwn", "text": f"*{label}*"},
                _plain_text(fact, _MAX_FIELD_LENGTH),
            )
        ]
        blocks.append({"type": "section", "fields": fields})
    if card.agents:
        blocks.append(text_block(card.agents))
    if card.footer:
        blocks.append({"type": "context", "elements": [_plain_text(card.footer, _MAX_FOOTER_LENGTH)]})
    if card.buttons:
        blocks.append({"type": "actions", "elements": [_button_of(button) for button in card.buttons]})
    return blocks


def text_block(text: str, max_length: int = _MAX_TEXT_LENGTH) -> Block:
    """Return a block with a plain text."""
    return {"type": "section", "text": _plain_text(text, max_length)}


def fallback_of(text: str) -> str:
    """Return the text that Slack shows in notifications and reads to people who cannot see the blocks."""
    return escape(text, _MAX_FALLBACK_LENGTH)


def escape(text: str, max_length: int) -> str:
    """Return a text with Slack's control characters escaped, cut so that the result has at most `max_length`."""
    escaped_text = text.translate(_ESCAPES)
    length = max_length
    while len(escaped_text) > max_length:
        length -= max(1, (len(escaped_text) - max_length) // 5)
        escaped_text = truncate(text, length).translate(_ESCAPES)
    return escaped_text


def _plain_text(text: str, max_length: int) -> Block:
    return {"type": "plain_text", "text": escape(text, max_length), "emoji": False}


def _button_of(button: CardButton) -> Block:
    element = {
        "type": "button",
        "text": _plain_text(button.label, _MAX_BUTTON_LENGTH),
        "url": button.url,
        "action_id": button.id,
    }
    return element | ({"style": "primary"} if button.is_primary else {})


def _split_lines(text: str) -> list[str]:
    """Return the lines of a text in parts that fit a block after escaping; too many lines end with an ellipsis."""
    parts: list[str] = []
    part_length, total_length = 0, 0
    for line in text.splitlines():
        line_length = len(line.translate(_ESCAPES)) + 1
        total_length += line_length
        if total_length > _MAX_BODY_LENGTH:
            return [*parts, "…"]
        if parts and part_length + line_length <= _MAX_SECTION_LENGTH:
            parts[-1] += f"\n{line}"
            part_length += line_length
        else:
            parts.append(line)
            part_length = line_length
    return parts
