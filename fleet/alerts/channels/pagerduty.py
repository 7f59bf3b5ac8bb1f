"""PagerDuty Events API v2: trigger, acknowledge and resolve events with the incident id as the deduplication key.

Limits of the API: summary 1024 characters, key 255 characters, event 512 KB. Larger events get status 400.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from fleet.alerts.channels import Receipt, SendError, SendRequest, response_receipt_of
from fleet.alerts.channels.http import check_channel_url, post
from fleet.alerts.channels.kind import (
    ADDRESS_INPUT,
    SECRET_INPUT,
    ChannelField,
    ChannelKind,
    normalized_origin_of,
)

#: Default URL for events; the EU region has its own URL.
_DEFAULT_EVENTS_URL = "https://events.pagerduty.com/v2/enqueue"
_MAX_SUMMARY_LENGTH = 1024
_MAX_KEY_LENGTH = 255
#: Maximum length of the text, characters: even with six bytes of JSON per character the event stays below 512 KB.
_MAX_TEXT_LENGTH = 60_000
_ACTION_OF_KIND = {"acknowledged": "acknowledge", "resolved": "resolve"}


def send(request: SendRequest) -> Receipt | None:
    """POST one event; a test notification triggers and resolves an alert. Raises SendError."""
    response_text = _post_event(request, event_of(request))
    if request.kind == "test":
        response_text = _post_event(request, event_of(request, "resolve"))
    return response_receipt_of(response_text)


def event_of(request: SendRequest, action: str = "") -> dict[str, Any]:
    """Return the event. `action` overrides the action that follows from the kind of notification."""
    incident = request.incident
    action = action or _ACTION_OF_KIND.get(request.kind, "trigger")
    event_head = {
        "routing_key": request.secrets.get("routing_key", ""),
        "event_action": action,
        "dedup_key": _dedup_key(str(incident["id"])),
    }
    if action != "trigger":
        return event_head
    links = request.payload["links"]
    event: dict[str, Any] = event_head | {
        "client": "Refloat",
        "payload": {
            "summary": _truncate(request.payload["subject"], _MAX_SUMMARY_LENGTH),
            "source": f"refloat/{incident['cluster']}",
            "severity": incident["severity"],
            "timestamp": request.payload["at"],
            "component": incident["cause"]["name"],
            "group": incident["cluster"],
            "class": incident["cause"]["kind"],
            "custom_details": _custom_details_of(request),
        },
        "links": [{"href": href, "text": label} for label, href in links.items()],
    }
    if "Incident" in links:
        event["client_url"] = links["Incident"]
    return event


def _custom_details_of(request: SendRequest) -> dict[str, Any]:
    """Return the custom details: fields for event orchestration rules, and the text of the notification."""
    incident = request.incident
    return {
        "text": _truncate(request.payload["text"], _MAX_TEXT_LENGTH),
        "affected_count": incident["affected_count"],
        "peak_count": incident["peak_count"],
        "rules": incident["rules"],
        "opened_at": incident["opened_at"],
        "recovers_at": incident["recovers_at"],
    }


def _truncate(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def _dedup_key(incident: str) -> str:
    """Return the incident id as deduplication key; a long id is cut and ends with a hash, which keeps it unique."""
    if len(incident) <= _MAX_KEY_LENGTH:
        return incident
    digest = hashlib.sha256(incident.encode()).hexdigest()[:16]
    return f"{incident[: _MAX_KEY_LENGTH - len(digest) - 1]}/{digest}"


def _post_event(request: SendRequest, body: dict[str, Any]) -> str:
    if not body["routing_key"]:
        raise SendError("the channel has no routing key", permanent=True)
    url = str(request.config.get("url") or _DEFAULT_EVENTS_URL)
    headers = {"Content-Type": "application/json", "User-Agent": "Refloat"}
    return post(url, json.dumps(body).encode(), headers, allow_private=request.allow_private)


KIND = ChannelKind(
    slug="pagerduty",
    label="PagerDuty",
    summary="Triggers, acknowledges and resolves one alert per incident.",
    default_destination="events.pagerduty.com",
    setup_url="https://support.pagerduty.com/main/docs/services-and-integrations",
    fields=(
        ChannelField(
            SECRET_INPUT,
            "routing_key",
            "32 characters, from an Events API v2 integration of the service",
            is_required=True,
            is_secret=True,
            label="Integration key",
        ),
        ChannelField(
            ADDRESS_INPUT,
            "url",
            "empty: https://events.pagerduty.com. In the EU region https://events.eu.pagerduty.com/v2/enqueue",
            label="Events API address",
            is_advanced=True,
            check=check_channel_url,
        ),
    ),
    send=send,
    origin_of=lambda field_values: normalized_origin_of(field_values, _DEFAULT_EVENTS_URL),
    keeps_alerts=True,
    accepts_acknowledgements=True,
)
