from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fleet.alerts.channels import SendError, SendRequest, pagerduty
from fleet.vocabulary.incidents import Cause, CauseKind, NotificationKind
from tests.fakes.pagerduty_events import ROUTING_KEY, PagerDutyService, run_pagerduty
from tests.fakes.post_server import PostAnswer
from tests.fakes.receivers import run_receiver
from tests.fakes.send_requests import make_send_request

_REQUIRED = {"routing_key", "event_action", "dedup_key"}
_OPTIONAL = {"payload", "links", "images", "client", "client_url"}
_PAYLOAD = {"summary", "source", "severity"}
_PAYLOAD_OPTIONAL = {"timestamp", "component", "group", "class", "custom_details"}


def _assert_valid_event(event: dict[str, Any]) -> None:
    """Assert that the Events API v2 accepts the event."""
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


def _send_events(kind: NotificationKind) -> list[dict[str, Any]]:
    with run_receiver() as receiver:
        pagerduty.send(
            make_send_request(kind, config={"url": receiver.url}, secrets={"routing_key": "R" * 32})
        )
    for event in receiver.bodies:
        _assert_valid_event(event)
    return receiver.bodies


def test_events_of_an_incident_share_its_dedup_key() -> None:
    """Trigger, acknowledge and resolve."""
    events = [
        event
        for kind in (
            NotificationKind.FIRING,
            NotificationKind.WORSE,
            NotificationKind.ACKNOWLEDGED,
            NotificationKind.RESOLVED,
        )
        for event in _send_events(kind)
    ]
    assert [event["event_action"] for event in events] == ["trigger", "trigger", "acknowledge", "resolve"]
    assert {event["dedup_key"] for event in events} == {"default/proxy/proxy-id-1/1"}


def test_test_notification_is_triggered_and_resolved() -> None:
    """Nobody has to resolve the test in PagerDuty."""
    assert [event["event_action"] for event in _send_events(NotificationKind.TEST)] == ["trigger", "resolve"]


def test_missing_routing_key_is_a_permanent_error() -> None:
    with pytest.raises(SendError) as error_info:
        pagerduty.send(make_send_request())
    assert error_info.value.permanent


def test_event_links_to_its_incident() -> None:
    """With a link to the console and named details for PagerDuty's own rules."""
    event = pagerduty.event_of(make_send_request())
    assert event["client_url"] == "https://console.example.com/incidents/7/"
    assert [link["text"] for link in event["links"]] == ["Incident", "Agents", "Runbook"]
    details = event["payload"]["custom_details"]
    assert (details["affected_count"], details["recovers_at"]) == (207, None)


def test_event_has_no_client_url_without_a_console_url() -> None:
    """PagerDuty refuses an empty one."""
    request = make_send_request(secrets={"routing_key": "R" * 32})
    event = pagerduty.event_of(replace(request, payload={**request.payload, "links": {}}))
    _assert_valid_event(event)
    assert "client_url" not in event


def test_long_texts_are_truncated() -> None:
    """PagerDuty would refuse them; two truncated dedup keys still differ."""
    request = make_send_request(secrets={"routing_key": "R" * 32})
    texts = {"subject": "é" * 3000, "text": "é" * 1_000_000}
    events = [
        pagerduty.event_of(
            replace(
                request,
                payload={
                    **request.payload,
                    **texts,
                    "incident": {**request.incident, "id": f"{'x' * 300}/{n}"},
                },
            )
        )
        for n in (1, 2)
    ]
    for event in events:
        _assert_valid_event(event)
    assert events[0]["payload"]["summary"].endswith("…")
    assert events[0]["dedup_key"] != events[1]["dedup_key"]


def test_life_of_an_incident_is_one_alert() -> None:
    """Triggered, more severe, acknowledged and resolved; a test leaves no open alert."""
    with run_pagerduty() as service:
        for kind in (
            NotificationKind.FIRING,
            NotificationKind.WORSE,
            NotificationKind.REPEAT,
            NotificationKind.ESCALATED,
            NotificationKind.UPDATE,
            NotificationKind.FLAPPING,
            NotificationKind.ACKNOWLEDGED,
        ):
            pagerduty.send(_request_to(service, kind))
        (alerts,) = service.alerts.values()
        assert [(alert.status, alert.severity, alert.trigger_count) for alert in alerts] == [
            ("acknowledged", "critical", 6)
        ]
        pagerduty.send(_request_to(service, NotificationKind.RESOLVED))
        assert [alert.status for alert in alerts] == ["resolved"]
        pagerduty.send(_request_to(service, NotificationKind.TEST))
        assert [alert.status for alert in alerts] == ["resolved", "resolved"]


@pytest.mark.parametrize("count", [0, 100_000])
@pytest.mark.parametrize("name", ["𝄞" * 255, "<!channel> *x*", "\x00\x1b"])
def test_names_and_numbers_of_any_size_are_accepted(name: str, count: int) -> None:
    with run_pagerduty() as service:
        fields = {
            "cause": Cause(CauseKind.PROXY, name[:100], name),
            "summary": f"{name * 10} is not responding.",
            "affected_count": count,
            "agent_names": (name,) * 10,
        }
        pagerduty.send(_request_to(service, NotificationKind.FIRING, incident_fields=fields))
        pagerduty.send(_request_to(service, NotificationKind.RESOLVED, incident_fields=fields))
        (alerts,) = service.alerts.values()
        assert [alert.status for alert in alerts] == ["resolved"]


def test_rate_limit_carries_the_time_to_wait() -> None:
    with run_pagerduty() as service:
        service.answers.append(PostAnswer(429, b"", {"Retry-After": "120"}))
        with pytest.raises(SendError) as error_info:
            pagerduty.send(_request_to(service, NotificationKind.FIRING))
        assert error_info.value.retry_after_seconds == 120.0


def _request_to(service: PagerDutyService, kind: NotificationKind, **fields: Any) -> SendRequest:
    return make_send_request(
        kind, config={"url": service.url}, secrets={"routing_key": ROUTING_KEY}, **fields
    )
