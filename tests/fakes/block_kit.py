"""Slack's Block Kit as far as Refloat uses it: refuses what Slack refuses, and renders what people see.

https://docs.slack.dev/reference/block-kit. The size of all blocks is not documented: Slack answers
`msg_blocks_too_long` from about 13,200 characters on (github.com/slackapi/bolt-js/issues/2509).
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tests.fakes.strict_elements import ElementKeys, find_element_problem

_MAX_BLOCKS = 50
_MAX_BLOCKS_LENGTH = 13_000
#: Required and optional keys of each block and element.
_KEYS: ElementKeys = {
    "header": ({"type", "text"}, {"block_id", "level"}),
    "section": ({"type"}, {"text", "fields", "accessory", "block_id", "expand"}),
    "context": ({"type", "elements"}, {"block_id"}),
    "actions": ({"type", "elements"}, {"block_id"}),
    "divider": ({"type"}, {"block_id"}),
    "button": (
        {"type", "text", "action_id"},
        {"url", "value", "style", "confirm", "accessibility_label"},
    ),
    "plain_text": ({"type", "text"}, {"emoji"}),
    "mrkdwn": ({"type", "text"}, {"verbatim"}),
}
_MARKUP = re.compile(r"<([^<>]+)>")
_STYLE = re.compile(r"(?<!\w)([*_~`])(?=\S)(.+?)(?<=\S)\1(?!\w)")
_EMOJI = re.compile(r":[a-z0-9_+-]+:")


class InvalidBlocksError(ValueError):
    """Slack answers `invalid_blocks`; the message says why."""


class BlocksTooLongError(ValueError):
    """Slack answers `msg_blocks_too_long`."""


def check_blocks(blocks: Any) -> None:
    """Raise InvalidBlocksError or BlocksTooLongError unless Slack accepts the blocks."""
    _require(isinstance(blocks, list) and 0 < len(blocks) <= _MAX_BLOCKS, "1 to 50 blocks")
    for block in blocks:
        _check_keys(block, {"header", "section", "context", "actions", "divider"})
        _check_block(block)
    block_ids = [block["block_id"] for block in blocks if "block_id" in block]
    _require(len(set(block_ids)) == len(block_ids), "block_id is unique")
    action_ids = [
        element["action_id"]
        for block in blocks
        if block["type"] == "actions"
        for element in block["elements"]
    ]
    _require(len(set(action_ids)) == len(action_ids), "action_id is unique")
    if len(json.dumps(blocks, ensure_ascii=False)) > _MAX_BLOCKS_LENGTH:
        raise BlocksTooLongError


def render_text(text_object: Mapping[str, Any]) -> str:
    """Return a text as Slack shows it: what is formatted, linked or mentioned is marked with ⟦ ⟧."""
    text = str(text_object["text"])
    if text_object["type"] == "mrkdwn":
        text = _STYLE.sub(r"⟦\2⟧", text)
    elif text_object.get("emoji", True):
        text = _EMOJI.sub("⟦emoji⟧", text)
    # Pessimistic: Slack parses control characters of every text object.
    text = _MARKUP.sub(lambda match: f"⟦{match[1].rpartition('|')[2]}⟧", text)
    return html.unescape(text)


def _check_block(block: Mapping[str, Any]) -> None:
    kind = block["type"]
    if kind == "header":
        _check_text(block["text"], 150, {"plain_text"})
    elif kind == "section":
        _require("text" in block or "fields" in block, "a section has a text or fields")
        if "text" in block:
            _check_text(block["text"], 3000)
        fields = block.get("fields", [{"type": "plain_text", "text": "x"}])
        _require(isinstance(fields, list) and 0 < len(fields) <= 10, "1 to 10 fields")
        for field in fields:
            _check_text(field, 2000)
    elif kind == "context":
        _require(isinstance(block["elements"], list) and 0 < len(block["elements"]) <= 10, "1 to 10 elements")
        for element in block["elements"]:
            _check_text(element, 3000)
    elif kind == "actions":
        _require(isinstance(block["elements"], list) and 0 < len(block["elements"]) <= 25, "1 to 25 elements")
        for element in block["elements"]:
            _check_button(element)


def _check_button(element: Any) -> None:
    _check_keys(element, {"button"})
    _check_text(element["text"], 75, {"plain_text"})
    _require(0 < len(element["action_id"]) <= 255, "action_id has 1 to 255 characters")
    _require(element.get("style", "primary") in ("primary", "danger"), "style is primary or danger")
    _require(len(element.get("value", "")) <= 2000, "value has at most 2000 characters")
    if "url" in element:
        parts = urlsplit(element["url"])
        _require(len(element["url"]) <= 3000, "url has at most 3000 characters")
        _require(parts.scheme in ("http", "https") and bool(parts.hostname), "url is an address")
        _require(not re.search(r"\s", element["url"]), "url has no blanks")


def _check_text(text_object: Any, max_length: int, kinds: set[str] | None = None) -> None:
    _check_keys(text_object, kinds or {"plain_text", "mrkdwn"})
    text = text_object["text"]
    _require(isinstance(text, str) and 0 < len(text) <= max_length, f"text has 1 to {max_length} characters")
    _require(isinstance(text_object.get("emoji", True), bool), "emoji is a boolean")


def _check_keys(element: Any, kinds: set[str]) -> None:
    problem = find_element_problem(element, kinds, _KEYS)
    _require(not problem, problem)


def _require(is_valid: bool, rule: str) -> None:
    if not is_valid:
        raise InvalidBlocksError(rule)
