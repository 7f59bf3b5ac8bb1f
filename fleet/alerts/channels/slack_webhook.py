"""Incoming webhooks of Slack: one message for each notification. docs/reference/alerts.md, "Slack".

https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
"""

from __future__ import annotations

import json

from fleet.alerts.channels import SendError, SendRequest
from fleet.alerts.channels.cards import card_of, to_line
from fleet.alerts.channels.http import check_channel_url, post_for_response
from fleet.alerts.channels.kind import ADDRESS_INPUT, ChannelField, ChannelKind, normalized_origin_of
from fleet.alerts.channels.slack_blocks import blocks_of, fallback_of
from fleet.alerts.channels.slack_errors import error_of_response, error_of_text


def send(request: SendRequest) -> None:
    """POST one message. Raises SendError."""
    message = {
        "text": fallback_of(to_line(request.payload["subject"])),
        "blocks": blocks_of(card_of(request, names_event=True)),
        "unfurl_links": False,
        "unfurl_media": False,
    }
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "Refloat"}
    response = post_for_response(
        request.secrets.get("url", ""),
        json.dumps(message, ensure_ascii=False).encode(),
        headers,
        allow_private=request.allow_private,
    )
    text = response.body.decode("utf-8", "replace").strip()
    if response.status == 200 and text == "ok":
        return
    if response.status == 429:
        raise error_of_response({"error": "ratelimited"}, response.retry_after_seconds)
    raise error_of_text(text, response.retry_after_seconds) or SendError(
        f"the response (status {response.status}) is not one of a Slack webhook. Check the address of this channel",
        retry_after_seconds=response.retry_after_seconds,
    )


KIND = ChannelKind(
    slug="slack-webhook",
    label="Slack (incoming webhook)",
    summary="One message for each notification. Simpler to set up, without updates and threads.",
    setup_url="https://api.slack.com/messaging/webhooks",
    fields=(
        ChannelField(
            ADDRESS_INPUT,
            "url",
            "begins with https://hooks.slack.com/services/",
            is_required=True,
            is_secret=True,
            shows_origin=True,
            label="Webhook URL",
            check=check_channel_url,
        ),
    ),
    send=send,
    origin_of=normalized_origin_of,
    is_read_by_people=True,
)
