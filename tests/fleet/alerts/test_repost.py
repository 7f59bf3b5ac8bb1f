"""What Alertmanager gets again each minute, against a real one where its list is what counts."""

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
from tests.fakes.receivers import Receiver, receiving

pytestmark = pytest.mark.django_db


class Scene:
    """A cluster that this process looks at, an Alertmanager channel, and incidents that it was told of."""

    def __init__(self, url: str) -> None:
        self.now = time.time()
        self.cluster, _ = Cluster.objects.get_or_create(id="default", defaults={"name": "Default"})
        lease.take("default", lease.ALERTS, "me", datetime.now(UTC) + timedelta(hours=1))
        self.channel = Channel.objects.create(
            name="am", kind="alertmanager", config={"url": url}, allow_private=True
        )
        self.reposter = Reposter("me", lambda: self.now)

    def incident(self, name: str, **given: Any) -> Incident:
        """Add an incident that fires."""
        return Incident.objects.create(
            cluster=self.cluster, key=f"proxy/{name}", cause_kind="proxy", cause_id=name, cause_name=name,
            generation=1, opened_at=self.now - 60, affected=3, peak=7,
            sentence=f"{name} does not answer.", **{"state": "firing", "severity": 2, "notices": 1} | given,
        )  # fmt: skip

    def message(
        self, row: Incident, kind: NotificationKind = NotificationKind.FIRING, *, sent: bool = True
    ) -> Delivery:
        """Add a message about it."""
        notice = Notification(kind, store.incident_of(row), self.now, row.notices)
        links = notifications.Links("https://console.example.com", "https://wiki.example.com/proxy", row.pk)
        return Delivery.objects.create(
            channel=self.channel, incident=row, key=f"{notice.key}/{kind.value}", kind=kind.value,
            payload=notifications.payload(notice, links), created_at=self.now, next_attempt_at=self.now,
            sent_at=self.now if sent else None,
        )  # fmt: skip


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Answers 200 unless a test says otherwise."""
    with receiving() as made:
        yield made


@pytest.fixture
def scene(receiver: Receiver) -> Scene:
    """Posts to the receiver."""
    return Scene(receiver.url)


def causes(receiver: Receiver) -> list[str]:
    """Names of the causes that came, request by request."""
    return [alert["labels"]["cause"] for body in receiver.bodies for alert in body]


def test_open_incidents_are_posted_however_quiet_they_are(scene: Scene, receiver: Receiver) -> None:
    """An acknowledged, silenced or explained incident is still open, and Alertmanager must not lose it."""
    quiet: dict[str, dict[str, Any]] = {
        "loud": {},
        "acknowledged": {"acked_at": 1.0, "acked_by": "ada"},
        "silenced": {"silenced_by": "upgrade (ada)"},
        "explained": {"inhibited_by": "backend/default"},
        "recovering": {"state": "recovering"},
    }
    for name, columns in quiet.items():
        scene.message(scene.incident(name, **columns))
    assert scene.reposter.post_open_alerts() == 5
    assert causes(receiver) == list(quiet)


def test_what_is_over_or_was_never_sent_is_not_posted(scene: Scene, receiver: Receiver) -> None:
    """Nor what another process looks at, nor for a channel that is switched off."""
    scene.message(scene.incident("over", state="resolved", resolved_at=scene.now))
    scene.message(scene.incident("unsent"), sent=False)
    scene.incident("without-a-message")
    assert scene.reposter.post_open_alerts() == 0
    scene.message(scene.incident("open"))
    assert Reposter("another", lambda: scene.now).post_open_alerts() == 0
    Channel.objects.update(enabled=False)
    assert scene.reposter.post_open_alerts() == 0
    assert receiver.requests == []


def test_channel_of_another_cluster_gets_nothing(scene: Scene, receiver: Receiver) -> None:
    """Whatever it was sent before; a channel of the cluster itself gets what is open."""
    scene.message(scene.incident("open"))
    Channel.objects.update(cluster="other")
    assert scene.reposter.post_open_alerts() == 0
    assert receiver.requests == []
    Channel.objects.update(cluster="default")
    assert scene.reposter.post_open_alerts() == 1


def test_alert_says_how_the_incident_is_now(scene: Scene, receiver: Receiver) -> None:
    """Numbers are those of now; labels and links are those of the last message, so that it is the same alert."""
    row = scene.incident("proxy-1", severity=1)
    sent = scene.message(row)
    Incident.objects.update(affected=9, peak=11, severity=2)
    scene.now += 60
    scene.reposter.post_open_alerts()
    ((alert,),) = receiver.bodies
    assert alert["labels"]["incident"] == sent.payload["incident"]["id"]
    assert alert["labels"]["severity"] == "warning"
    assert (alert["annotations"]["affected"], alert["annotations"]["peak"]) == ("9", "11")
    assert alert["annotations"]["runbook_url"] == "https://wiki.example.com/proxy"
    assert alert["generatorURL"] == f"https://console.example.com/incidents/{row.pk}/"


def test_incident_that_ends_meanwhile_ends_there(
    scene: Scene, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its resolve may come before our post, which would open it again for minutes."""
    row = scene.incident("proxy-1")
    scene.message(row)
    post = alertmanager.post_alerts

    def end_and_post(*arguments: Any) -> None:
        Incident.objects.update(state="resolved", resolved_at=scene.now)
        post(*arguments)

    monkeypatch.setattr(alertmanager, "post_alerts", end_and_post)
    scene.reposter.post_open_alerts()
    first, last = (body[0] for body in receiver.bodies)
    assert first["labels"] == last["labels"]
    assert last["endsAt"] == notifications.format_iso(scene.now)
    assert last["endsAt"] < first["endsAt"]


def test_alertmanager_that_does_not_answer_is_logged_once(
    scene: Scene, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """And again after it worked in between."""
    scene.message(scene.incident("proxy-1"))
    receiver.answers = [503, 503, 200, 503]
    with caplog.at_level(logging.WARNING):
        taken = [scene.reposter.post_open_alerts() for _ in range(4)]
    assert taken == [0, 0, 1, 0]
    assert caplog.text.count("alertmanager.unreachable: open alerts of channel am") == 2


def test_fault_with_one_channel_keeps_no_other_from_its_alerts(
    scene: Scene, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """A message of the first channel is none that this version understands."""
    incident = scene.incident("a")
    damaged = scene.message(incident)
    damaged.payload = {}
    damaged.save(update_fields=["payload"])
    scene.channel = Channel.objects.create(
        name="other", kind="alertmanager", config={"url": receiver.url}, allow_private=True
    )
    scene.message(incident)
    assert scene.reposter.post_open_alerts() == 1
    assert causes(receiver) == ["a"]
    assert "alertmanager.failed" in caplog.text


def test_outbox_ends_the_alert_of_the_severity_before(scene: Scene, receiver: Receiver) -> None:
    """Alertmanager takes another severity for another alert: the first ends in the request that begins the second."""
    row = scene.incident("proxy-1", severity=1)
    scene.message(row)
    row.severity, row.notices = 2, 2
    scene.message(row, NotificationKind.WORSE, sent=False)
    outbox = Outbox("me", lambda: scene.now, lambda: 0.5, {"alertmanager": alertmanager.send})
    assert outbox.send_next()
    ((ended, begun),) = receiver.bodies
    assert (ended["labels"]["severity"], begun["labels"]["severity"]) == ("warning", "critical")
    assert ended["endsAt"] < begun["endsAt"]


@pytest.mark.slow
def test_restarted_alertmanager_lists_the_incident_again(tmp_path: Path) -> None:
    """With nothing of the outbox: the incident was told of, is acknowledged, and owes no message for hours."""
    with receiving() as hook, Alertmanager(tmp_path, hook.url) as manager:
        scene = Scene(manager.url)
        row = scene.incident("proxy-1", acked_at=1.0)
        scene.message(row, sent=False)
        outbox = Outbox("me", lambda: scene.now, lambda: 0.5, {"alertmanager": alertmanager.send})
        assert outbox.send_next()
        assert [alert["labels"]["severity"] for alert in manager.active()] == ["critical"]
        manager.stop()
        manager.start()
        assert manager.active() == []
        scene.reposter.post_open_alerts()
        assert [alert["labels"]["incident"] for alert in manager.active()] == ["default/proxy/proxy-1/1"]
        row.state, row.resolved_at, row.notices = "resolved", scene.now, 2
        row.save()
        scene.message(row, NotificationKind.RESOLVED, sent=False)
        assert outbox.send_next()
        assert manager.active() == []


def test_channels_that_hang_do_not_keep_the_others_waiting(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that failed are tried after the others, for half a minute, the one that waits longest first."""
    incident = scene.incident("open")
    scene.message(incident)
    for number in range(5):
        scene.channel = Channel.objects.create(
            name=f"hangs-{number}", kind="alertmanager", config={"url": f"hangs-{number}"}
        )
        scene.message(incident)
    passed = 0.0
    tried: list[str] = []
    post_alerts = alertmanager.post_alerts

    def hang(errand: SendRequest, alerts: Any) -> None:
        nonlocal passed
        tried.append(errand.config["url"])
        if errand.config["url"].startswith("hangs"):
            passed += 10.0
            raise SendError("no answer within 10 s")
        post_alerts(errand, alerts)

    monkeypatch.setattr(alertmanager, "post_alerts", hang)
    reposter = Reposter("me", lambda: scene.now, lambda: passed)
    assert reposter.post_open_alerts() == 1
    assert len(set(tried)) == 6
    hung = []
    for _ in range(2):
        tried.clear()
        assert reposter.post_open_alerts() == 1
        hung.append([url for url in tried if url.startswith("hangs")])
    assert hung == [["hangs-0", "hangs-1", "hangs-2"], ["hangs-3", "hangs-4", "hangs-0"]]
