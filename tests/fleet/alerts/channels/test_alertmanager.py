"""Against a real prometheus-alertmanager from Debian where there is one (`make peers`)."""

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
from tests.fakes.errands import send_request
from tests.fakes.receivers import Receiver, receiving
from tests.fakes.waiting import eventually_sync


def test_alert_keeps_its_labels_through_its_life() -> None:
    """Firing, worse and resolved are one alert; its end is in the past when it is over."""
    firing, worse, over = (
        alertmanager.alert_of(send_request(kind))
        for kind in (NotificationKind.FIRING, NotificationKind.WORSE, NotificationKind.RESOLVED)
    )
    assert firing["labels"] == worse["labels"] == over["labels"]
    assert firing["labels"]["severity"] == "critical"
    assert firing["endsAt"] > over["endsAt"]
    assert over["annotations"]["peak"] == "207"
    assert firing["generatorURL"] == "https://console.example.com/incidents/7/"


def test_alert_that_nobody_posts_again_ends_within_minutes() -> None:
    """A console that is dead holds no alert for hours."""
    firing = send_request()
    end = datetime.fromisoformat(alertmanager.alert_of(firing)["endsAt"]).timestamp()
    assert 2 * repost.INTERVAL < end - firing.at <= 300


def test_earlier_severity_ends_as_the_next_begins() -> None:
    """The severity is a label, so an incident that grows worse is another alert under the same identity."""
    (ended,) = alertmanager.ended_alerts_of(
        send_request(NotificationKind.WORSE, earlier_severities=frozenset({"warning", "critical"}))
    )
    current = alertmanager.alert_of(send_request(NotificationKind.WORSE))
    assert ended["labels"] == current["labels"] | {"severity": "warning"}
    assert ended["endsAt"] < current["endsAt"]
    (ended,) = alertmanager.ended_alerts_of(
        send_request(NotificationKind.RESOLVED, earlier_severities=frozenset({"warning"}))
    )
    assert ended["endsAt"] == alertmanager.alert_of(send_request(NotificationKind.RESOLVED))["endsAt"]
    assert alertmanager.ended_alerts_of(send_request()) == []


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[str, Receiver]]:
    """An Alertmanager that passes everything on to a webhook."""
    with receiving() as receiver, Alertmanager(tmp_path, receiver.url) as running:
        yield running.url, receiver


@pytest.mark.slow
def test_real_alertmanager_takes_and_resolves_it(manager: tuple[str, Receiver]) -> None:
    """It fires once, shows up in the API, and is resolved once."""
    url, receiver = manager
    # Times of today: Alertmanager resolves what ended long ago before it is told of it.
    firing, over = send_request(NotificationKind.FIRING), send_request(NotificationKind.RESOLVED)
    for one, shown in ((firing, "firing"), (over, "resolved")):
        incident = {**one.incident, "opened_at": _stamp(-60), "resolved_at": None}
        if shown == "resolved":
            incident["resolved_at"] = _stamp(0)
        payload = {**one.payload, "incident": incident}
        alertmanager.send(type(one)(payload, one.key, time.time(), {"url": url}, {}, allow_private=True))
        eventually_sync(lambda shown=shown: any(body["status"] == shown for body in receiver.bodies))  # type: ignore[misc]
    told = [body["status"] for body in receiver.bodies]
    assert told == ["firing", "resolved"]
    assert receiver.bodies[0]["alerts"][0]["annotations"]["summary"].startswith("CRIT default: 207 agents")


def _stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def test_payload_is_what_the_api_wants() -> None:
    """Strings only in labels and annotations: Alertmanager answers 400 otherwise."""
    alert = json.loads(json.dumps(alertmanager.alert_of(send_request())))
    for part in ("labels", "annotations"):
        assert all(isinstance(value, str) and value for value in alert[part].values())
