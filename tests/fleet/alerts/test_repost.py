"""The alerts that are reposted to Alertmanager every minute, partly with a real Alertmanager."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fleet import lease
from fleet.alerts import notifications, store
from fleet.alerts.channels import SendError, SendRequest, alertmanager
from fleet.alerts.outbox import Outbox
from fleet.alerts.repost import Reposter
from fleet.models import Cluster
from fleet.models.alerting import Channel, Delivery
from fleet.models.incidents import Incident
from fleet.vocabulary.incidents import Notification, NotificationKind
from tests.fakes.alertmanager import Alertmanager
from tests.fakes.receivers import Receiver, run_receiver

pytestmark = pytest.mark.django_db


class RepostScenario:
    """A cluster with an Alertmanager channel whose alerts this process evaluates."""

    def __init__(self, url: str) -> None:
        self.now = time.time()
        self.cluster, _ = Cluster.objects.get_or_create(id="default", defaults={"name": "Default"})
        lease.take("default", lease.ALERTS, "me", datetime.now(UTC) + timedelta(hours=1))
        self.channel = Channel.objects.create(
            name="am", kind="alertmanager", config={"url": url}, allow_private=True
        )
        self.reposter = Reposter("me", lambda: self.now)

    def add_incident(self, name: str, **fields: Any) -> Incident:
        """Add a firing incident."""
        return Incident.objects.create(
            cluster=self.cluster, key=f"proxy/{name}", cause_kind="proxy", cause_id=name, cause_name=name,
            generation=1, opened_at=self.now - 60, affected_count=3, peak_count=7,
            summary=f"{name} does not answer.", **{"state": "firing", "severity": 2, "notification_count": 1} | fields,
        )  # fmt: skip

    def add_delivery(
        self, row: Incident, kind: NotificationKind = NotificationKind.FIRING, *, is_sent: bool = True
    ) -> Delivery:
        """Add a delivery about an incident."""
        notification = Notification(kind, store.incident_of(row), self.now, row.notification_count)
        links = notifications.NotificationLinks(
            "https://console.example.com", "https://wiki.example.com/proxy", row.pk
        )
        return Delivery.objects.create(
            channel=self.channel, incident=row, key=f"{notification.key}/{kind.value}", kind=kind.value,
            payload=notifications.payload_of(notification, links), created_at=self.now, next_attempt_at=self.now,
            sent_at=self.now if is_sent else None,
        )  # fmt: skip


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Run a receiver that responds with 200 by default."""
    with run_receiver() as running_receiver:
        yield running_receiver


@pytest.fixture
def scenario(receiver: Receiver) -> RepostScenario:
    """Return a scenario whose channel posts to the receiver."""
    return RepostScenario(receiver.url)


def posted_causes(receiver: Receiver) -> list[str]:
    """Return the names of the posted causes in order."""
    return [alert["labels"]["cause"] for body in receiver.bodies for alert in body]


def test_acknowledged_silenced_and_inhibited_incidents_are_reposted(
    scenario: RepostScenario, receiver: Receiver
) -> None:
    """Such an incident is still open, and Alertmanager must not lose it."""
    fields_by_name: dict[str, dict[str, Any]] = {
        "loud": {},
        "acknowledged": {"acknowledged_at": 1.0, "acknowledged_by": "ada"},
        "silenced": {"silenced_by": "upgrade (ada)"},
        "explained": {"inhibited_by": "backend/default"},
        "recovering": {"state": "recovering"},
    }
    for name, columns in fields_by_name.items():
        scenario.add_delivery(scenario.add_incident(name, **columns))
    assert scenario.reposter.repost_open_alerts() == 5
    assert posted_causes(receiver) == list(fields_by_name)


def test_resolved_or_unsent_incidents_are_not_reposted(scenario: RepostScenario, receiver: Receiver) -> None:
    """Neither incidents of another process, nor incidents of a disabled channel."""
    scenario.add_delivery(scenario.add_incident("over", state="resolved", resolved_at=scenario.now))
    scenario.add_delivery(scenario.add_incident("unsent"), is_sent=False)
    scenario.add_incident("without-a-message")
    assert scenario.reposter.repost_open_alerts() == 0
    scenario.add_delivery(scenario.add_incident("open"))
    assert Reposter("another", lambda: scenario.now).repost_open_alerts() == 0
    Channel.objects.update(enabled=False)
    assert scenario.reposter.repost_open_alerts() == 0
    assert receiver.requests == []


def test_nothing_is_reposted_to_a_channel_of_another_cluster(
    scenario: RepostScenario, receiver: Receiver
) -> None:
    """Even if it was notified of the incident before."""
    scenario.add_delivery(scenario.add_incident("open"))
    Channel.objects.update(cluster="other")
    assert scenario.reposter.repost_open_alerts() == 0
    assert receiver.requests == []
    Channel.objects.update(cluster="default")
    assert scenario.reposter.repost_open_alerts() == 1


def test_reposted_alert_has_the_current_numbers(scenario: RepostScenario, receiver: Receiver) -> None:
    """Its labels and links are those of the last delivery, so that it is the same alert."""
    row = scenario.add_incident("proxy-1", severity=1)
    delivery = scenario.add_delivery(row)
    Incident.objects.update(affected_count=9, peak_count=11, severity=2)
    scenario.now += 60
    scenario.reposter.repost_open_alerts()
    ((alert,),) = receiver.bodies
    assert alert["labels"]["incident"] == delivery.payload["incident"]["id"]
    assert alert["labels"]["severity"] == "warning"
    assert (alert["annotations"]["affected_count"], alert["annotations"]["peak_count"]) == ("9", "11")
    assert alert["annotations"]["runbook_url"] == "https://wiki.example.com/proxy"
    assert alert["generatorURL"] == f"https://console.example.com/incidents/{row.pk}/"


def test_incident_resolved_during_the_repost_is_resolved_in_alertmanager(
    scenario: RepostScenario, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the repost could open the alert again."""
    row = scenario.add_incident("proxy-1")
    scenario.add_delivery(row)
    post = alertmanager.post_alerts

    def end_and_post(*arguments: Any) -> None:
        Incident.objects.update(state="resolved", resolved_at=scenario.now)
        post(*arguments)

    monkeypatch.setattr(alertmanager, "post_alerts", end_and_post)
    scenario.reposter.repost_open_alerts()
    first, last = (body[0] for body in receiver.bodies)
    assert first["labels"] == last["labels"]
    assert last["endsAt"] == notifications.format_iso(scenario.now)
    assert last["endsAt"] < first["endsAt"]


def test_unreachable_alertmanager_is_logged_once_per_outage(
    scenario: RepostScenario, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged again after a successful post."""
    scenario.add_delivery(scenario.add_incident("proxy-1"))
    receiver.statuses = [503, 503, 200, 503]
    with caplog.at_level(logging.WARNING):
        posted_counts = [scenario.reposter.repost_open_alerts() for _ in range(4)]
    assert posted_counts == [0, 0, 1, 0]
    assert caplog.text.count("alertmanager.unreachable: open alerts of channel am") == 2


def test_error_of_one_channel_does_not_affect_other_channels(
    scenario: RepostScenario, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """The payload of the first channel is invalid."""
    incident = scenario.add_incident("a")
    invalid_delivery = scenario.add_delivery(incident)
    invalid_delivery.payload = {}
    invalid_delivery.save(update_fields=["payload"])
    scenario.channel = Channel.objects.create(
        name="other", kind="alertmanager", config={"url": receiver.url}, allow_private=True
    )
    scenario.add_delivery(incident)
    assert scenario.reposter.repost_open_alerts() == 1
    assert posted_causes(receiver) == ["a"]
    assert "alertmanager.failed" in caplog.text


def test_outbox_ends_the_alert_of_the_earlier_severity(scenario: RepostScenario, receiver: Receiver) -> None:
    """For Alertmanager another severity is another alert: one request ends the first and starts the second."""
    row = scenario.add_incident("proxy-1", severity=1)
    scenario.add_delivery(row)
    row.severity, row.notification_count = 2, 2
    scenario.add_delivery(row, NotificationKind.WORSE, is_sent=False)
    outbox = Outbox("me", lambda: scenario.now, lambda: 0.5, {"alertmanager": alertmanager.send})
    assert outbox.send_next()
    ((ended_alert, new_alert),) = receiver.bodies
    assert (ended_alert["labels"]["severity"], new_alert["labels"]["severity"]) == ("warning", "critical")
    assert ended_alert["endsAt"] < new_alert["endsAt"]


@pytest.mark.slow
def test_restarted_alertmanager_lists_the_incident_again(tmp_path: Path) -> None:
    """Without a delivery: the incident is acknowledged, and no notification is due for hours."""
    with run_receiver() as webhook, Alertmanager(tmp_path, webhook.url) as manager:
        scenario = RepostScenario(manager.url)
        row = scenario.add_incident("proxy-1", acknowledged_at=1.0)
        scenario.add_delivery(row, is_sent=False)
        outbox = Outbox("me", lambda: scenario.now, lambda: 0.5, {"alertmanager": alertmanager.send})
        assert outbox.send_next()
        assert [alert["labels"]["severity"] for alert in manager.active()] == ["critical"]
        manager.stop()
        manager.start()
        assert manager.active() == []
        scenario.reposter.repost_open_alerts()
        assert [alert["labels"]["incident"] for alert in manager.active()] == ["default/proxy/proxy-1/1"]
        row.state, row.resolved_at, row.notification_count = "resolved", scenario.now, 2
        row.save()
        scenario.add_delivery(row, NotificationKind.RESOLVED, is_sent=False)
        assert outbox.send_next()
        assert manager.active() == []


def test_hanging_channels_do_not_delay_the_others(
    scenario: RepostScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Channels that failed are tried after the others, for 30 s, the oldest first."""
    incident = scenario.add_incident("open")
    scenario.add_delivery(incident)
    for number in range(5):
        scenario.channel = Channel.objects.create(
            name=f"hangs-{number}", kind="alertmanager", config={"url": f"hangs-{number}"}
        )
        scenario.add_delivery(incident)
    elapsed_seconds = 0.0
    attempted_urls: list[str] = []
    post_alerts = alertmanager.post_alerts

    def fail_slowly(request: SendRequest, alerts: Any) -> None:
        nonlocal elapsed_seconds
        attempted_urls.append(request.config["url"])
        if request.config["url"].startswith("hangs"):
            elapsed_seconds += 10.0
            raise SendError("no answer within 10 s")
        post_alerts(request, alerts)

    monkeypatch.setattr(alertmanager, "post_alerts", fail_slowly)
    reposter = Reposter("me", lambda: scenario.now, lambda: elapsed_seconds)
    assert reposter.repost_open_alerts() == 1
    assert len(set(attempted_urls)) == 6
    hanging_urls = []
    for _ in range(2):
        attempted_urls.clear()
        assert reposter.repost_open_alerts() == 1
        hanging_urls.append([url for url in attempted_urls if url.startswith("hangs")])
    assert hanging_urls == [["hangs-0", "hangs-1", "hangs-2"], ["hangs-3", "hangs-4", "hangs-0"]]
