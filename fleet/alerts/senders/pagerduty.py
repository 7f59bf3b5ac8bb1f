"""PagerDuty Events API v2: trigger, acknowledge and resolve, held together by the incident's id."""

from __future__ import annotations

import json
from typing import Any

from fleet.alerts.senders import Errand, SendError
from fleet.alerts.senders.http import post

#: Where events go; the EU has an address of its own.
EVENTS = "https://events.pagerduty.com/v2/enqueue"
_ACTIONS = {"acknowledged": "acknowledge", "resolved": "resolve"}


def send(errand: Errand) -> None:
    """POST one event; a test is triggered and resolved. Raises SendError."""
    _post(errand, event(errand))
    if errand.kind == "test":
        _post(errand, event(errand, "resolve"))


def event(errand: Errand, action: str = "") -> dict[str, Any]:
    """The event as the schema wants it; `action` other than what the message is about."""
    incident = errand.incident
    action = action or _ACTIONS.get(errand.kind, "trigger")
    head = {
        "routing_key": errand.secrets.get("routing_key", ""),
        "event_action": action,
        "dedup_key": str(incident["id"])[:255],
    }
    if action != "trigger":
        return head
    return head | {
        "client": "Refloat",
        "payload": {
            "summary": str(errand.payload["subject"])[:1024],
            "source": f"refloat/{incident['cluster']}",
            "severity": incident["severity"],
            "timestamp": errand.payload["at"],
            "component": incident["cause"]["name"],
            "group": incident["cluster"],
            "class": incident["cause"]["kind"],
            "custom_details": {"text": errand.payload["text"], "affected": incident["affected"]},
        },
        "links": [{"href": href, "text": word} for word, href in errand.payload["links"].items()],
    }


def _post(errand: Errand, body: dict[str, Any]) -> None:
    if not body["routing_key"]:
        raise SendError("there is no routing key", permanent=True)
    url = str(errand.config.get("url") or EVENTS)
    headers = {"Content-Type": "application/json", "User-Agent": "Refloat"}
    post(url, json.dumps(body).encode(), headers, allow_private=errand.allow_private)
