"""Microsoft Teams: an Adaptive Card for each notification, to a webhook of Workflows (Power Automate).

docs/reference/alerts.md, "Microsoft Teams". https://learn.microsoft.com/connectors/teams and
https://adaptivecards.io/explorer. Workflows replaced the webhooks of Office 365 connectors.
"""

from __future__ import annotations

import json
import re
from typing import Any

from fleet.alerts.channels import SendError, SendRequest
from fleet.alerts.channels.cards import Card, card_of
from fleet.alerts.channels.http import check_channel_url, post_for_response
from fleet.alerts.channels.kind import ADDRESS_INPUT, ChannelField, ChannelKind, normalized_origin_of

#: Maximum size of a message. docs.microsoft.com, "Limits and specifications for Microsoft Teams".
_MAX_MESSAGE_BYTES = 28_000
#: Characters that have a meaning in the Markdown of Adaptive Cards; `{` begins {{DATE()}}.
_MARKDOWN = re.compile(r"([\\*_\[\]()`~<>#{}|!])")
#: Beginning of an item of a list.
_LIST_MARKER = re.compile(r"^(\s*)([-+]|\d+[.)])(?=\s|$)")
_COLOUR_OF_TONE = {"critical": "Attention", "warning": "Warning", "resolved": "Good"}
_NEW_ADDRESS = "Copy the address of the workflow again in Teams, and enter it at this channel"


def send(request: SendRequest) -> None:
    """POST one card. Raises SendError."""
    # Without the charset, webhooks count two bytes for each character.
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "Refloat"}
    body = json.dumps(message_of(card_of(request, names_event=True)), ensure_ascii=False).encode()
    assert len(body) <= _MAX_MESSAGE_BYTES, "the limits of cards.py keep a message shorter"
    response = post_for_response(
        request.secrets.get("url", ""), body, headers, allow_private=request.allow_private
    )
    text = response.excerpt
    # Webhooks of connectors answer 200 when they failed to deliver.
    if response.is_success and not text.startswith("Webhook message delivery failed"):
        return
    raise SendError(
        f"{_describe_failure(response.status, text)} (status {response.status})",
        permanent=response.status in (400, 413) and "NotEnabled" not in text,
        retry_after_seconds=response.retry_after_seconds,
    )


def message_of(card: Card) -> dict[str, Any]:
    """Return the message with the Adaptive Card of a card."""
    body: list[dict[str, Any]] = [
        _text_block(
            card.title, size="Large", weight="Bolder", color=_COLOUR_OF_TONE.get(card.tone, "Default")
        )
    ]
    body += [_text_block(text) for text in (card.headline, *card.body.splitlines()) if text]
    if card.facts:
        facts = [{"title": label, "value": escape_markdown(fact)} for label, fact in card.facts]
        body.append({"type": "FactSet", "facts": facts})
    if card.agents:
        body.append(_text_block(card.agents))
    if card.footer:
        body.append(_text_block(card.footer, size="Small", isSubtle=True))
    content: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": body,
    }
    if card.buttons:
        content["actions"] = [
            {"type": "Action.OpenUrl", "title": button.label, "url": button.url} for button in card.buttons
        ]
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": content,
    }
    return {"type": "message", "attachments": [attachment]}


def escape_markdown(text: str) -> str:
    """Return a line of text so that Adaptive Cards show it literally."""
    escaped_text = _MARKDOWN.sub(r"\\\1", text)
    return _LIST_MARKER.sub(lambda match: f"{match[1]}{match[2][:-1]}\\{match[2][-1]}", escaped_text)


def _text_block(text: str, **properties: Any) -> dict[str, Any]:
    return {"type": "TextBlock", "text": escape_markdown(text), "wrap": True, **properties}


def _describe_failure(status: int, text: str) -> str:
    """Return what failed and how to fix it. `text`: beginning of the response, of which only known codes are used."""
    if "NotEnabled" in text:
        return "the workflow is turned off. Turn it on in Power Automate"
    return {
        400: "the workflow rejected the card. Report this as a bug of Refloat",
        401: f"the workflow does not accept the address. {_NEW_ADDRESS}",
        403: f"the workflow does not accept the address. {_NEW_ADDRESS}",
        404: "the workflow was not found. Create a new one in Teams, and enter its address at this channel",
        410: "the workflow was deleted. Create a new one in Teams, and enter its address at this channel",
        413: "the card is too large for Teams",
        429: "the workflow limits the rate of requests",
    }.get(status, "Teams did not accept the card")


KIND = ChannelKind(
    slug="teams",
    label="Microsoft Teams",
    summary="A card for each notification, by a workflow of the channel.",
    setup_url="https://support.microsoft.com/office/create-incoming-webhooks-with-workflows-for-microsoft-teams"
    "-8ae491c7-0394-4861-ba59-055e33f75498",
    fields=(
        ChannelField(
            ADDRESS_INPUT,
            "url",
            "of the workflow “Post to a channel when a webhook request is received”",
            is_required=True,
            is_secret=True,
            shows_origin=True,
            label="Workflow URL",
            check=check_channel_url,
        ),
    ),
    send=send,
    origin_of=normalized_origin_of,
    is_read_by_people=True,
)
