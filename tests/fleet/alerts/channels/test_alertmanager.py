"""The Alertmanager channel, with a real prometheus-alertmanager from Debian if it is installed (`make peers`)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from fleet.alerts import repost
from fleet.alerts.channels import alertmanager
from fleet.vocabulary.incidents import NotificationKind
from tests.fakes.alertmanager import Alertmanager
from tests.fakes.receivers import Receiver, run_receiver
from tests.fakes.send_requests import make_send_request
from tests.fakes.waiting import eventually_sync


def test_alert_keeps_its_labels_through_its_life() -> None:
    """Firing, worse and resolved are one alert; a resolved alert has an end in the past."""
    firing, worse, resolved_alert = (
        alertmanager.alert_of(make_send_request(kind))
        for kind in (NotificationKind.FIRING, NotificationKind.WORSE, NotificationKind.RESOLVED)
    )
    assert firing["labels"] == worse["labels"] == resolved_alert["labels"]
    assert firing["labels"]["severity"] == "critical"
    assert firing["endsAt"] > resolved_alert["endsAt"]
    assert resolved_alert["annotations"]["peak_count"] == "207"
    assert firing["generatorURL"] == "https://console.example.com/incidents/7/"


def test_alert_without_repost_ends_within_minutes() -> None:
    """A console that has stopped does not keep alerts firing for hours."""
    firing = make_send_request()
    end = datetime.fromisoformat(alertmanager.alert_of(firing)["endsAt"]).timestamp()
    assert 2 * repost.REPOST_INTERVAL_SECONDS < end - firing.at <= 300


def test_alert_of_the_earlier_severity_ends_when_the_severity_changes() -> None:
    """The severity is a label, so an incident whose severity rises becomes another alert with the same identity."""
    (ended_alert,) = alertmanager.ended_alerts_of(
        make_send_request(NotificationKind.WORSE, earlier_severities=frozenset({"warning", "critical"}))
    )
    current = alertmanager.alert_of(make_send_request(NotificationKind.WORSE))
    assert ended_alert["labels"] == current["labels"] | {"severity": "warning"}
    assert ended_alert["endsAt"] < current["endsAt"]
    (ended_alert,) = alertmanager.ended_alerts_of(
        make_send_request(NotificationKind.RESOLVED, earlier_severities=frozenset({"warning"}))
    )
    assert (
        ended_alert["endsAt"] == alertmanager.alert_of(make_send_request(NotificationKind.RESOLVED))["endsAt"]
    )
    assert alertmanager.ended_alerts_of(make_send_request()) == []


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[str, Receiver]]:
    """Run an Alertmanager that forwards its alerts to a webhook."""
    with run_receiver() as receiver, Alertmanager(tmp_path, receiver.url) as alertmanager_process:
        yield alertmanager_process.url, receiver


@pytest.mark.slow
def test_real_alertmanager_accepts_and_resolves_an_alert(manager: tuple[str, Receiver]) -> None:
    """The alert fires once and is resolved once."""
    url, receiver = manager
    # Current times: Alertmanager resolves alerts that ended long ago at once.
    firing, resolved_alert = (
        make_send_request(NotificationKind.FIRING),
        make_send_request(NotificationKind.RESOLVED),
    )
    for request, status in ((firing, "firing"), (resolved_alert, "resolved")):
        incident = {**request.incident, "opened_at": _stamp(-60), "resolved_at": None}
        if status == "resolved":
            incident["resolved_at"] = _stamp(0)
        payload = {**request.payload, "incident": incident}
        alertmanager.send(
            type(request)(payload, request.key, time.time(), {"url": url}, {}, allow_private=True)
        )
        eventually_sync(lambda status=status: any(body["status"] == status for body in receiver.bodies))  # type: ignore[misc]
    statuses = [body["status"] for body in receiver.bodies]
    assert statuses == ["firing", "resolved"]
    assert receiver.bodies[0]["alerts"][0]["annotations"]["summary"].startswith("CRIT default: 207 agents")


def _stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def test_payload_is_valid_for_the_api() -> None:
    """Labels and annotations are strings: Alertmanager responds with 400 otherwise."""
    alert = json.loads(json.dumps(alertmanager.alert_of(make_send_request())))
    for part in ("labels", "annotations"):
        assert all(isinstance(value, str) and value for value in alert[part].values())
