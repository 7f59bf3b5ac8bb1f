"""A webhook of Teams Workflows that refuses what Teams refuses, with the cards as people see them.

https://learn.microsoft.com/connectors/teams, https://adaptivecards.io/explorer, and for Markdown
https://learn.microsoft.com/microsoftteams/platform/task-modules-and-cards/cards/cards-format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.fakes.post_server import PostAnswer, PostedRequest, serve_posts
from tests.fakes.strict_elements import ElementKeys, find_element_problem

WORKFLOW_PATH = "/workflows/1/triggers/manual/paths/invoke?sig=secret"
_MAX_MESSAGE_BYTES = 28 * 1024
#: Required and optional keys of each element.
_KEYS: ElementKeys = {
    "AdaptiveCard": ({"type", "version", "body"}, {"$schema", "actions", "msteams", "fallbackText"}),
    "TextBlock": ({"type", "text"}, {"wrap", "size", "weight", "color", "isSubtle", "spacing"}),
    "FactSet": ({"type", "facts"}, {"spacing"}),
    "Action.OpenUrl": ({"type", "url"}, {"title", "style"}),
}
_ENUMS = {
    "size": {"Small", "Default", "Medium", "Large", "ExtraLarge"},
    "weight": {"Lighter", "Default", "Bolder"},
    "color": {"Default", "Dark", "Light", "Accent", "Good", "Warning", "Attention"},
}
_DATE = re.compile(r"\{\{(DATE|TIME)\(.*?\)\}\}")
_INLINE = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])|(?P<link>\[[^\]]*\]\([^)]*\))|(?P<auto><https?://[^>]*>)"
    r"|(?P<style>(\*{1,2}|_{1,2}|`+|~~)(?=\S).+?(?<=\S)\5)|(?P<other>.)",
    re.DOTALL,
)
_LIST = re.compile(r"^\s*([-+*]|\d+[.)])\s")


class InvalidCardError(ValueError):
    """Teams does not show the card; the message says why."""


@dataclass(frozen=True, slots=True)
class CardView:
    """A card as people see it; what Markdown formats is marked with ⟦ ⟧."""

    texts: tuple[str, ...]
    facts: dict[str, str]
    buttons: dict[str, str]


@dataclass
class TeamsWorkflow:
    """The workflow that posts cards to a Teams channel."""

    url: str = ""
    is_turned_off: bool = False
    is_deleted: bool = False
    cards: list[CardView] = field(default_factory=list)
    #: Answers to the next requests, instead of the workflow's own.
    answers: list[PostAnswer] = field(default_factory=list)
    broken_rules: list[str] = field(default_factory=list)
    request_count: int = 0

    def answer(self, request: PostedRequest) -> PostAnswer:
        """Answer a request as Workflows does: 202 without a body."""
        self.request_count += 1
        if self.answers:
            return self.answers.pop(0)
        if self.is_deleted or not request.path.startswith("/workflows/"):
            return PostAnswer(404, b'{"error":{"code":"WorkflowNotFound"}}')
        if request.path != WORKFLOW_PATH:
            return PostAnswer(401, b'{"error":{"code":"DirectApiAuthorizationRequired"}}')
        if self.is_turned_off:
            return PostAnswer(400, b'{"error":{"code":"WorkflowTriggerIsNotEnabled"}}')
        if len(request.body) > _MAX_MESSAGE_BYTES:
            self.broken_rules.append(f"at most 28 KB, not {len(request.body)} bytes")
            return PostAnswer(413, b'{"error":{"code":"RequestEntityTooLarge"}}')
        try:
            _require(request.media_type == "application/json", "the content type is JSON")
            _require("charset=utf-8" in request.headers["content-type"].lower(), "the charset is UTF-8")
            self.cards.append(_view_of(_card_of(json.loads(request.body.decode()))))
        except (InvalidCardError, ValueError) as error:
            self.broken_rules.append(str(error))
            return PostAnswer(400, b'{"error":{"code":"TriggerInputSchemaMismatch"}}')
        return PostAnswer(202)


@contextmanager
def run_teams() -> Iterator[TeamsWorkflow]:
    """Run a workflow on a free port."""
    workflow = TeamsWorkflow()
    with serve_posts(workflow.answer) as base_url:
        workflow.url = f"{base_url}{WORKFLOW_PATH}"
        yield workflow
    assert not workflow.broken_rules, workflow.broken_rules


def render_markdown(text: str) -> str:
    """Return a text as Adaptive Cards show it; what they format is marked with ⟦ ⟧."""
    text = _DATE.sub("⟦date⟧", text)
    if _LIST.match(text):
        text = f"⟦item⟧{text}"
    parts: list[str] = []
    for match in _INLINE.finditer(text):
        if match["escaped"] is not None:
            parts.append(match["escaped"])
        elif match["other"] is not None:
            parts.append(match["other"])
        else:
            parts.append(f"⟦{match[0]}⟧")
    return "".join(parts)


def _card_of(message: Any) -> Mapping[str, Any]:
    _require(isinstance(message, dict) and set(message) == {"type", "attachments"}, "type and attachments")
    _require(message["type"] == "message", "type is message")
    _require(isinstance(message["attachments"], list) and len(message["attachments"]) == 1, "one attachment")
    attachment = message["attachments"][0]
    _require(set(attachment) == {"contentType", "contentUrl", "content"}, "keys of the attachment")
    _require(attachment["contentType"] == "application/vnd.microsoft.card.adaptive", "contentType")
    _require(attachment["contentUrl"] is None, "contentUrl is null")
    card: Mapping[str, Any] = attachment["content"]
    _check_keys(card, {"AdaptiveCard"})
    _require(card["version"] in ("1.0", "1.1", "1.2", "1.3", "1.4", "1.5"), "a version that Teams supports")
    _require(isinstance(card["body"], list) and bool(card["body"]), "a body")
    return card


def _view_of(card: Mapping[str, Any]) -> CardView:
    texts: list[str] = []
    facts: dict[str, str] = {}
    for element in card["body"]:
        _check_keys(element, {"TextBlock", "FactSet"})
        if element["type"] == "TextBlock":
            _require(isinstance(element["text"], str) and bool(element["text"]), "a TextBlock has a text")
            for key, members in _ENUMS.items():
                _require(element.get(key, "Default") in members, f"{key} is one of {sorted(members)}")
            texts.append(render_markdown(element["text"]))
        else:
            _require(bool(element["facts"]), "a FactSet has facts")
            for fact in element["facts"]:
                _require(set(fact) == {"title", "value"}, "a fact has a title and a value")
                facts[render_markdown(fact["title"])] = render_markdown(fact["value"])
    buttons: dict[str, str] = {}
    _require(len(card.get("actions", [])) <= 6, "at most 6 actions")
    for action in card.get("actions", []):
        _check_keys(action, {"Action.OpenUrl"})
        _require(urlsplit(action["url"]).scheme in ("http", "https"), "a button opens an address")
        buttons[action["title"]] = action["url"]
    return CardView(tuple(texts), facts, buttons)


def _check_keys(element: Any, kinds: set[str]) -> None:
    problem = find_element_problem(element, kinds, _KEYS)
    _require(not problem, problem)


def _require(is_valid: bool, rule: str) -> None:
    if not is_valid:
        raise InvalidCardError(rule)
