"""Slack's Web API: one message for each incident, updated in place, and a thread as its timeline.

docs/reference/alerts.md, "Slack". https://docs.slack.dev/reference/methods/chat.postMessage and chat.update.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from fleet.alerts.channels import Receipt, SendError, SendRequest
from fleet.alerts.channels.cards import card_of, to_line
from fleet.alerts.channels.http import check_channel_url, post_for_response
from fleet.alerts.channels.kind import (
    ADDRESS_INPUT,
    SECRET_INPUT,
    ChannelField,
    ChannelInput,
    ChannelKind,
    normalized_origin_of,
)
from fleet.alerts.channels.slack_blocks import blocks_of, fallback_of, text_block
from fleet.alerts.channels.slack_errors import (
    MISSING_MESSAGE_CODES,
    NO_THREAD_CODES,
    SlackError,
    error_of_response,
)

#: Default base URL of the API; GovSlack has its own.
_DEFAULT_API_URL = "https://slack.com/api"
#: Kinds whose entry in the thread is also shown in the Slack channel, because somebody should act on them. `firing` is
#: one if the message already exists because a silence was about to end.
_BROADCAST_KINDS = frozenset({"firing", "worse", "escalated", "repeat", "silence-ends"})
_TOKEN = re.compile(r"(xoxe\.)?xoxb-[A-Za-z0-9-]+")
_SLACK_CHANNEL = re.compile(r"#[^\s#,@]{1,80}|[CGD][A-Z0-9]{6,20}")


def send(request: SendRequest) -> Receipt:
    """Post the message of an incident, or update it and add an entry to its thread. Raises SendError."""
    receipt = request.earlier_receipt
    if receipt is None or receipt.get("target") != request.config["channel"]:
        return _post_message(request)
    if not request.is_outdated:
        try:
            _call(
                request, "chat.update", _message_of(request) | _address_of(receipt, "ts") | {"parse": "none"}
            )
        except SlackError as error:
            if error.code not in MISSING_MESSAGE_CODES:
                raise
            return _post_message(request)
    try:
        _call(request, "chat.postMessage", _thread_entry_of(request) | _address_of(receipt, "thread_ts"))
    except SlackError as error:
        if error.code == "thread_not_found":
            return _post_message(request)
        if error.code not in NO_THREAD_CODES:
            raise
        # Without threads, the message is only updated, unless somebody should act now.
        if request.kind in _BROADCAST_KINDS:
            return _post_message(request)
    return receipt


def _post_message(request: SendRequest) -> Receipt:
    response = _call(
        request,
        "chat.postMessage",
        _message_of(request)
        | {"channel": request.config["channel"], "unfurl_links": False, "unfurl_media": False},
    )
    return {
        # The id: `chat.update` accepts no names of channels.
        "channel": response["channel"],
        "ts": response["ts"],
        # A message in another Slack channel is not updated.
        "target": request.config["channel"],
    }


def _message_of(request: SendRequest) -> dict[str, Any]:
    return {
        "text": fallback_of(to_line(request.payload["subject"])),
        "blocks": blocks_of(card_of(request, names_event=False)),
    }


def _thread_entry_of(request: SendRequest) -> dict[str, Any]:
    text = _describe_event(request)
    return {
        "text": fallback_of(text),
        "blocks": [text_block(text)],
        "reply_broadcast": request.kind in _BROADCAST_KINDS,
        "unfurl_links": False,
        "unfurl_media": False,
    }


def _describe_event(request: SendRequest) -> str:
    """Return the entry of a notification in the thread, one sentence."""
    incident = request.incident
    silence = str(incident.get("silence", ""))
    sentence = {
        "acknowledged": f"{incident.get('acknowledged_by') or 'Somebody'} acknowledged the incident.",
        "unacknowledged": "The acknowledgement was removed.",
        "silenced": f"{silence[:1].upper()}{silence[1:]}",
        "unsilenced": "The silence ended.",
        "recovering": "The incident is recovering: no alert rule matches any more.",
        "recurred": f"The incident fires again: {incident['summary']}.",
        "severity": f"The severity is now {incident['severity']}: {incident['summary']}.",
    }.get(request.kind)
    return to_line(sentence or request.payload["subject"])


def _address_of(receipt: Receipt, key: str) -> dict[str, str]:
    return {"channel": receipt["channel"], key: receipt["ts"]}


def _call(request: SendRequest, method: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Call a method of the API and return its response. Raises SendError."""
    api_url = str(request.config.get("url") or _DEFAULT_API_URL).rstrip("/")
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "Authorization": f"Bearer {request.secrets.get('token', '')}",
        "User-Agent": "Refloat",
    }
    body = json.dumps(arguments, ensure_ascii=False).encode()
    response = post_for_response(f"{api_url}/{method}", body, headers, allow_private=request.allow_private)
    document = _parse_object(response.body)
    if document.get("ok") is True and isinstance(document.get("ts"), str):
        return document
    if response.status == 429:
        raise error_of_response({"error": "ratelimited"}, response.retry_after_seconds)
    if document.get("ok") is False:
        raise error_of_response(document, response.retry_after_seconds)
    raise SendError(
        f"the response (status {response.status}) is not one of Slack's API. Check the Slack API URL of this channel",
        retry_after_seconds=response.retry_after_seconds,
    )


def _parse_object(body: bytes) -> Mapping[str, Any]:
    """Return the JSON object in a response; an empty one if it is something else."""
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def check_token(text: str) -> None:
    """Require a bot token. Raises SendError."""
    if not _TOKEN.fullmatch(text):
        raise SendError("a bot token begins with xoxb-", permanent=True)


def check_slack_channel(text: str) -> None:
    """Require the id or name of a Slack channel. Raises SendError."""
    if not _SLACK_CHANNEL.fullmatch(text):
        raise SendError("enter the id of a Slack channel (C0123456789), or its name with #", permanent=True)


KIND = ChannelKind(
    slug="slack",
    label="Slack",
    summary="One message per incident that follows it, with its timeline in the thread.",
    setup_url="https://api.slack.com/apps",
    default_destination="slack.com",
    fields=(
        ChannelField(
            ChannelInput("slack_channel", "Slack channel"),
            "channel",
            "#name or id of a Slack channel",
            is_required=True,
            check=check_slack_channel,
        ),
        ChannelField(
            SECRET_INPUT,
            "token",
            "begins with xoxb-. The app needs the scope chat:write, and must be invited to the channel",
            is_required=True,
            is_secret=True,
            label="Bot token",
            check=check_token,
        ),
        ChannelField(
            ADDRESS_INPUT,
            "url",
            f"empty: {_DEFAULT_API_URL}. GovSlack: https://slack-gov.com/api",
            label="Slack API address",
            is_advanced=True,
            check=check_channel_url,
        ),
    ),
    send=send,
    origin_of=lambda field_values: normalized_origin_of(field_values, _DEFAULT_API_URL),
    is_read_by_people=True,
    accepts_acknowledgements=True,
    updates_in_place=True,
)
