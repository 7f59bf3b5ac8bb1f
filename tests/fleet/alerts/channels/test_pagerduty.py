from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fleet.alerts.channels import SendError, pagerduty
from fleet.vocabulary.incidents import NotificationKind
from tests.fakes.errands import send_request
from tests.fakes.receivers import receiving

_REQUIRED = {"routing_key", "event_action", "dedup_key"}
_OPTIONAL = {"payload", "links", "images", "client", "client_url"}
_PAYLOAD = {"summary", "source", "severity"}
_PAYLOAD_OPTIONAL = {"timestamp", "component", "group", "class", "custom_details"}


def _check(event: dict[str, Any]) -> None:
    """What the Events API v2 wants of an event; it answers 400 otherwise."""
    assert set(event) >= _REQUIRED
    assert set(event) <= _REQUIRED | _OPTIONAL
    assert len(event["routing_key"]) == 32
    assert event["event_action"] in {"trigger", "acknowledge", "resolve"}
    assert 0 < len(event["dedup_key"]) <= 255
    if event["event_action"] == "trigger":
        payload = event["payload"]
        assert set(payload) >= _PAYLOAD
        assert set(payload) <= _PAYLOAD | _PAYLOAD_OPTIONAL
        assert 0 < len(payload["summary"]) <= 1024
        assert payload["severity"] in {"critical", "error", "warning", "info"}
        assert len(json.dumps(event)) < 512_000
        assert event.get("client_url", "https://").startswith("https://")
        assert all(set(link) == {"href", "text"} for link in event.get("links", []))
    else:
        assert "payload" not in event


def _sent(kind: NotificationKind) -> list[dict[str, Any]]:
    with receiving() as receiver:
        pagerduty.send(send_request(kind, config={"url": receiver.url}, secrets={"routing_key": "R" * 32}))
    for event in receiver.bodies:
        _check(event)
    return receiver.bodies


def test_life_of_an_incident_is_held_together_by_its_id() -> None:
    """Trigger, acknowledge and resolve with one dedup_key."""
    events = [
        event
        for kind in (
            NotificationKind.FIRING,
            NotificationKind.WORSE,
            NotificationKind.ACKNOWLEDGED,
            NotificationKind.RESOLVED,
        )
        for event in _sent(kind)
    ]
    assert [event["event_action"] for event in events] == ["trigger", "trigger", "acknowledge", "resolve"]
    assert {event["dedup_key"] for event in events} == {"default/proxy/proxy-id-1/1"}


def test_test_is_triggered_and_resolved() -> None:
    """Nobody has to close it."""
    assert [event["event_action"] for event in _sent(NotificationKind.TEST)] == ["trigger", "resolve"]


def test_without_a_routing_key_nothing_is_sent() -> None:
    """It never would be taken."""
    with pytest.raises(SendError) as caught:
        pagerduty.send(send_request())
    assert caught.value.permanent


def test_event_leads_to_its_incident() -> None:
    """The name of the client in PagerDuty is a link, and what rules over there ask for has names."""
    event = pagerduty.event_of(send_request())
    assert event["client_url"] == "https://console.example.com/incidents/7/"
    assert [link["text"] for link in event["links"]] == ["Incident", "Agents", "Runbook"]
    details = event["payload"]["custom_details"]
    assert (details["affected"], details["heals_at"]) == (207, None)


def test_console_without_an_address_is_no_client_url() -> None:
    """An empty one would be refused."""
    errand_ = send_request(secrets={"routing_key": "R" * 32})
    event = pagerduty.event_of(replace(errand_, payload={**errand_.payload, "links": {}}))
    _check(event)
    assert "client_url" not in event


def test_what_is_too_long_is_cut() -> None:
    """It would be refused for ever; of two keys that are cut each stays its own."""
    sent = send_request(secrets={"routing_key": "R" * 32})
    long = {"subject": "é" * 3000, "text": "é" * 1_000_000}
    events = [
        pagerduty.event_of(
            replace(
                sent,
                payload={**sent.payload, **long, "incident": {**sent.incident, "id": f"{'x' * 300}/{n}"}},
            )
        )
        for n in (1, 2)
    ]
    for event in events:
        _check(event)
    assert events[0]["payload"]["summary"].endswith("…")
    assert events[0]["dedup_key"] != events[1]["dedup_key"]
