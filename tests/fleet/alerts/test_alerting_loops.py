from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from django.db import OperationalError
from typing_extensions import override

from fleet import lease
from fleet.alerts import alerting_loops, notifications, store
from fleet.alerts.alerting_loops import AlertingProcess, prune
from fleet.alerts.channels.deadman import DeadmanSwitch
from fleet.alerts.evaluator import Evaluator, LiveUpdate
from fleet.alerts.repost import Reposter
from fleet.models import Cluster
from fleet.models.alerting import Channel, Delivery, Silence
from fleet.models.incidents import Incident
from fleet.vocabulary.incidents import Notification, NotificationKind
from tests.fakes.receivers import run_receiver
from tests.fakes.waiting import eventually_sync

pytestmark = pytest.mark.django_db


class FakeEvaluator:
    """An evaluator that returns or raises the given results one after the other."""

    def __init__(self, *answers: LiveUpdate | Exception | None) -> None:
        self.answers = list(answers)
        self.evaluation_count = 0

    def evaluate_cluster(
        self, cluster: str, now: float, *, is_paused: bool = False, created_at: float = 0.0
    ) -> LiveUpdate | None:
        """See Evaluator."""
        self.evaluation_count += 1
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


def _make_process(evaluator: FakeEvaluator, updates: list[LiveUpdate]) -> AlertingProcess:
    Cluster.objects.get_or_create(id="default", defaults={"name": "Default"})
    return AlertingProcess(cast("Evaluator", evaluator), DeadmanSwitch(""), updates.append, 0.05, "me")


def test_evaluation_publishes_updates_and_survives_errors() -> None:
    """A locked database, an exception and a lease of another process each affect one evaluation."""
    updates: list[LiveUpdate] = []
    update = LiveUpdate("default", {"critical": 1}, "CRIT", "critical", 1)
    process = _make_process(
        FakeEvaluator(OperationalError("locked"), KeyError("bug"), lease.LeaseHeldError("other"), update),
        updates,
    )
    assert [process.evaluate_clusters(1.0) for _ in range(4)] == [False, False, True, True]
    assert updates == [update]


def test_database_error_in_one_cluster_skips_only_that_cluster() -> None:
    """The other clusters are still evaluated."""
    updates: list[LiveUpdate] = []
    Cluster.objects.create(id="a", name="A")
    update = LiveUpdate("default", {"critical": 1}, "CRIT", "critical", 1)
    evaluator = FakeEvaluator(OperationalError("locked"), update)
    assert not _make_process(evaluator, updates).evaluate_clusters(1.0)
    assert (evaluator.evaluation_count, updates) == (2, [update])


def test_update_is_published_before_a_silence_ends() -> None:
    updates: list[LiveUpdate] = []
    process = _make_process(FakeEvaluator(), updates)
    Silence.objects.create(reason="upgrade", creator="ada", starts_at=0.0, ends_at=1000.0)
    for now in (100.0, 500.0, 600.0):
        process.evaluate_clusters(now)
    assert [update.text for update in updates] == ["A silence ends within 15 min: upgrade"]


def test_update_that_cannot_be_published_skips_only_its_cluster(caplog: pytest.LogCaptureFixture) -> None:
    """Redis may be unavailable: the other clusters are still evaluated."""
    updates: list[LiveUpdate] = []
    Cluster.objects.create(id="a", name="A")
    first, second = (
        LiveUpdate(cluster, {"critical": 1}, "CRIT", "critical", 1) for cluster in ("a", "default")
    )
    process = _make_process(FakeEvaluator(first, second), updates)

    def publish(update: LiveUpdate) -> None:
        if update is first:
            raise ConnectionError("the channel layer is away")
        updates.append(update)

    process.publish_update = publish

    assert not process.evaluate_clusters(1.0)
    assert updates == [second]
    assert "cluster a: the alert rules could not be evaluated" in caplog.text


def test_silence_end_that_cannot_be_published_does_not_affect_other_silences(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The failure is logged."""
    process = _make_process(FakeEvaluator(), [])
    updates: list[str] = []
    for reason in ("upgrade", "new disks"):
        Silence.objects.create(reason=reason, creator="ada", starts_at=0.0, ends_at=1000.0)

    def publish(update: LiveUpdate) -> None:
        if update.text.endswith("upgrade"):
            raise ConnectionError("the channel layer is away")
        updates.append(update.text)

    process.publish_update = publish

    assert not process.evaluate_clusters(500.0)
    assert updates == ["A silence ends within 15 min: new disks"]
    assert "the notification that it ends soon could not be queued" in caplog.text
    assert process.evaluate_clusters(501.0)


@pytest.mark.parametrize("fault", [OperationalError("locked"), KeyError("bug")])
def test_evaluation_fails_if_ending_silences_cannot_be_claimed(
    fault: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No heartbeat is sent then; the clusters are evaluated, and the next evaluation succeeds."""
    evaluator = FakeEvaluator()
    process = _make_process(evaluator, [])

    def fail(_now: float) -> list[Silence]:
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(alerting_loops, "claim_ending_silences", fail)
        assert not process.evaluate_clusters(1.0)
    assert caplog.text.count("the alert rules could not be evaluated") == 1
    assert evaluator.evaluation_count == 1
    assert process.evaluate_clusters(2.0)


@pytest.mark.django_db(transaction=True)
def test_sender_thread_survives_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing would restart the thread."""
    steps: Counter[str] = Counter()

    class FaultyOutbox:
        def __init__(self, holder: str, *arguments: object) -> None:
            self._holder = holder

        def send_next(self) -> bool:
            steps[self._holder] += 1
            if steps[self._holder] == 1:
                raise KeyError("bug")
            return False

    monkeypatch.setattr(alerting_loops, "Outbox", FaultyOutbox)
    process = _make_process(FakeEvaluator(), [])
    thread = threading.Thread(target=process.run)
    thread.start()
    try:
        eventually_sync(lambda: len(steps) > 1 and min(steps.values()) > 1)
    finally:
        process.stop_event.set()
        thread.join(timeout=60)


@pytest.mark.django_db(transaction=True)
def test_open_alerts_are_reposted_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process reposts the alerts that it sent to Alertmanager."""
    attempts = itertools.count()

    class FaultyReposter(Reposter):
        @override
        def repost_open_alerts(self) -> int:
            if next(attempts) == 0:
                raise KeyError("bug")
            return super().repost_open_alerts()

    monkeypatch.setattr(alerting_loops, "Reposter", FaultyReposter)
    monkeypatch.setattr(alerting_loops, "REPOST_INTERVAL_SECONDS", 0.05)
    process = _make_process(FakeEvaluator(), [])
    thread = threading.Thread(target=process.run)
    with run_receiver() as receiver:
        incident = _open_incident(receiver.url)
        thread.start()
        try:
            eventually_sync(lambda: len(receiver.bodies) >= 2)
        finally:
            process.stop_event.set()
            thread.join(timeout=60)
    assert {alert["labels"]["incident"] for body in receiver.bodies for alert in body} == {
        store.incident_of(incident).id
    }


def _open_incident(url: str) -> Incident:
    """Return a firing incident that this process has sent to an Alertmanager at `url`."""
    now = time.time()
    cluster, _ = Cluster.objects.get_or_create(id="default", defaults={"name": "Default"})
    lease.take("default", lease.ALERTS, "me", datetime.now(UTC) + timedelta(hours=1))
    channel = Channel.objects.create(name="am", kind="alertmanager", config={"url": url}, allow_private=True)
    incident = Incident.objects.create(
        cluster=cluster, key="proxy/p1", cause_kind="proxy", cause_id="p1", cause_name="p1", generation=1,
        state="firing", severity=2, notified_at=now - 30, notification_count=1, opened_at=now - 60,
        summary="p1 does not answer.",
    )  # fmt: skip
    notification = Notification(NotificationKind.FIRING, store.incident_of(incident), now, 1)
    Delivery.objects.create(
        channel=channel, incident=incident, key=notification.key, kind=NotificationKind.FIRING.value,
        payload=notifications.payload_of(notification, notifications.NotificationLinks()),
        created_at=now, next_attempt_at=now, sent_at=now,
    )  # fmt: skip
    return incident


@pytest.mark.django_db(transaction=True)
def test_run_evaluates_until_it_is_stopped() -> None:
    """Evaluations run beside the sender threads."""
    evaluator = FakeEvaluator()
    process = _make_process(evaluator, [])
    thread = threading.Thread(target=process.run)
    thread.start()
    deadline = time.monotonic() + 60
    while evaluator.evaluation_count < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.stop_event.set()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert evaluator.evaluation_count >= 3


def test_prune_deletes_old_resolved_incidents_only() -> None:
    """An open incident is kept, however old it is."""
    Cluster.objects.get_or_create(id="default", defaults={"name": "Default"})
    for key, resolved_at in (("proxy/1", 5.0), ("proxy/2", None)):
        Incident.objects.create(
            cluster_id="default", key=key, cause_kind="proxy", cause_id="p", generation=1, state="firing",
            severity=2, opened_at=1.0, resolved_at=resolved_at,
        )  # fmt: skip
    assert prune(10.0) == 1
    assert Incident.objects.get().key == "proxy/2"
