"""PagerDuty's Events API v2, as strict as PagerDuty, with the alerts that result.

https://developer.pagerduty.com/docs/events-api-v2/trigger-events
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from tests.fakes.post_server import PostAnswer, PostedRequest, serve_posts

ROUTING_KEY = "R" * 32
_MAX_EVENT_BYTES = 512 * 1024
_EVENT_KEYS = {
    *("routing_key", "event_action", "dedup_key", "payload", "links", "images", "client", "client_url"),
}
_PAYLOAD_KEYS = {
    *("summary", "source", "severity", "timestamp", "component", "group", "class", "custom_details"),
}


class InvalidEventError(ValueError):
    """PagerDuty answers 400; the message says why."""


@dataclass
class PagerDutyAlert:
    """An alert of a service."""

    summary: str
    severity: str
    status: str = "triggered"
    trigger_count: int = 1


@dataclass
class PagerDutyService:
    """A service that takes events with `ROUTING_KEY`."""

    url: str = ""
    #: All alerts by deduplication key, oldest first.
    alerts: dict[str, list[PagerDutyAlert]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    #: Answers to the next requests, instead of PagerDuty's own.
    answers: list[PostAnswer] = field(default_factory=list)
    broken_rules: list[str] = field(default_factory=list)

    def answer(self, request: PostedRequest) -> PostAnswer:
        """Answer an event as PagerDuty does: 202 if it is valid."""
        if self.answers:
            return self.answers.pop(0)
        try:
            event = _checked_event_of(request)
        except ValueError as error:
            self.broken_rules.append(str(error))
            document = {
                "status": "invalid event",
                "message": "Event object is invalid",
                "errors": [str(error)],
            }
            return PostAnswer(400, json.dumps(document).encode())
        self.events.append(event)
        self._apply(event)
        document = {"status": "success", "message": "Event processed", "dedup_key": event["dedup_key"]}
        return PostAnswer(202, json.dumps(document).encode())

    def _apply(self, event: Mapping[str, Any]) -> None:
        alerts = self.alerts.setdefault(event["dedup_key"], [])
        open_alert = alerts[-1] if alerts and alerts[-1].status != "resolved" else None
        if event["event_action"] == "trigger":
            summary, severity = event["payload"]["summary"], event["payload"]["severity"]
            if open_alert is None:
                alerts.append(PagerDutyAlert(summary, severity))
            else:
                open_alert.trigger_count += 1
                open_alert.severity = severity
        elif open_alert is not None:
            # Without an open alert, PagerDuty drops the event.
            open_alert.status = {"acknowledge": "acknowledged", "resolve": "resolved"}[event["event_action"]]


@contextmanager
def run_pagerduty() -> Iterator[PagerDutyService]:
    """Run a service on a free port."""
    service = PagerDutyService()
    with serve_posts(service.answer) as base_url:
        service.url = f"{base_url}/v2/enqueue"
        yield service
    assert not service.broken_rules, service.broken_rules


def _checked_event_of(request: PostedRequest) -> dict[str, Any]:
    """Return the event of a request. Raises InvalidEventError, ValueError."""
    _require(request.path == "/v2/enqueue", "the path is /v2/enqueue")
    _require(request.media_type == "application/json", "the content type is JSON")
    _require(len(request.body) <= _MAX_EVENT_BYTES, "at most 512 KB")
    event: Any = json.loads(request.body.decode())
    _require(isinstance(event, dict), "an object")
    _require(not set(event) - _EVENT_KEYS, f"unknown keys {sorted(set(event) - _EVENT_KEYS)}")
    _require(event.get("routing_key") == ROUTING_KEY, "the routing key of the service")
    action = event.get("event_action")
    _require(action in ("trigger", "acknowledge", "resolve"), "event_action")
    dedup_key = event.get("dedup_key")
    _require(isinstance(dedup_key, str) and 0 < len(dedup_key) <= 255, "dedup_key of 1 to 255 characters")
    if action != "trigger":
        _require("payload" not in event, "no payload")
        return dict(event)
    _check_payload(event.get("payload"))
    if "client_url" in event:
        _require(_is_address(event["client_url"]), "client_url is an address")
    for link in event.get("links", []):
        _require(set(link) <= {"href", "text"} and _is_address(link.get("href", "")), "a link has an address")
    for image in event.get("images", []):
        _require(set(image) <= {"src", "href", "alt"}, "keys of an image")
        _require(image.get("src", "").startswith("https://"), "an image is served over HTTPS")
    return dict(event)


def _check_payload(payload: Any) -> None:
    _require(isinstance(payload, dict) and {"summary", "source", "severity"} <= set(payload), "payload")
    _require(not set(payload) - _PAYLOAD_KEYS, f"unknown keys {sorted(set(payload) - _PAYLOAD_KEYS)}")
    _require(isinstance(payload["summary"], str) and 0 < len(payload["summary"]) <= 1024, "summary of 1024")
    _require(isinstance(payload["source"], str) and bool(payload["source"]), "source")
    _require(payload["severity"] in ("critical", "error", "warning", "info"), "severity")
    if "timestamp" in payload:
        _require(datetime.fromisoformat(payload["timestamp"]).tzinfo is not None, "timestamp in ISO 8601")
    _require(isinstance(payload.get("custom_details", {}), dict), "custom_details is an object")


def _is_address(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _require(is_valid: bool, rule: str) -> None:
    if not is_valid:
        raise InvalidEventError(rule)
