"""PagerDuty Events API v2: trigger, acknowledge and resolve events with the incident id as the deduplication key.

Limits of the API: summary 1024 characters, key 255 characters, event 512 KB. Larger events get status 400.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from fleet.alerts.channels import SendError, SendRequest
from fleet.alerts.channels.http import check_address, post
from fleet.alerts.channels.kind import ADDRESS, SECRET, ChannelKind, Field, url_origin

#: Default URL for events; the EU region has its own URL.
_EVENTS = "https://events.pagerduty.com/v2/enqueue"
_LONGEST_SUMMARY = 1024
_LONGEST_KEY = 255
#: Maximum length of the text, characters: even with six bytes of JSON per character the event stays below 512 KB.
_LONGEST_TEXT = 60_000
_ACTIONS = {"acknowledged": "acknowledge", "resolved": "resolve"}


def send(request: SendRequest) -> None:
    """POST one event; a test notification triggers and resolves an alert. Raises SendError."""
    _post(request, event_of(request))
    if request.kind == "test":
        _post(request, event_of(request, "resolve"))


def event_of(request: SendRequest, action: str = "") -> dict[str, Any]:
    """Return the event. `action` overrides the action that follows from the kind of notification."""
    incident = request.incident
    action = action or _ACTIONS.get(request.kind, "trigger")
    head = {
        "routing_key": request.secrets.get("routing_key", ""),
        "event_action": action,
        "dedup_key": _dedup_key(str(incident["id"])),
    }
    if action != "trigger":
        return head
    links = request.payload["links"]
    document: dict[str, Any] = head | {
        "client": "Refloat",
        "payload": {
            "summary": _truncate(request.payload["subject"], _LONGEST_SUMMARY),
            "source": f"refloat/{incident['cluster']}",
            "severity": incident["severity"],
            "timestamp": request.payload["at"],
            "component": incident["cause"]["name"],
            "group": incident["cluster"],
            "class": incident["cause"]["kind"],
            "custom_details": _details_of(request),
        },
        "links": [{"href": href, "text": label} for label, href in links.items()],
    }
    if "Incident" in links:
        document["client_url"] = links["Incident"]
    return document


def _details_of(request: SendRequest) -> dict[str, Any]:
    """Return the custom details: fields for event orchestration rules, and the text of the notification."""
    incident = request.incident
    return {
        "text": _truncate(request.payload["text"], _LONGEST_TEXT),
        "affected_count": incident["affected_count"],
        "peak_count": incident["peak_count"],
        "rules": incident["rules"],
        "opened_at": incident["opened_at"],
        "recovers_at": incident["recovers_at"],
    }


def _truncate(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _dedup_key(incident: str) -> str:
    """Return the incident id as deduplication key; a long id is cut and ends with a hash, which keeps it unique."""
    if len(incident) <= _LONGEST_KEY:
        return incident
    digest = hashlib.sha256(incident.encode()).hexdigest()[:16]
    return f"{incident[: _LONGEST_KEY - len(digest) - 1]}/{digest}"


def _post(request: SendRequest, body: dict[str, Any]) -> None:
    if not body["routing_key"]:
        raise SendError("the channel has no routing key", permanent=True)
    url = str(request.config.get("url") or _EVENTS)
    headers = {"Content-Type": "application/json", "User-Agent": "Refloat"}
    post(url, json.dumps(body).encode(), headers, allow_private=request.allow_private)


KIND = ChannelKind(
    slug="pagerduty",
    fields=(
        Field(ADDRESS, "url", "Events API URL (empty: default)", check=check_address),
        Field(SECRET, "routing_key", "routing key", is_required=True, is_secret=True),
    ),
    send=send,
    origin=lambda field_values: url_origin(field_values, _EVENTS),
    takes_acknowledgements=True,
)
