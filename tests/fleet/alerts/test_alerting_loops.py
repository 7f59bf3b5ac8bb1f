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
from tests.fakes.receivers import receiving
from tests.fakes.waiting import eventually_sync

pytestmark = pytest.mark.django_db


class Looker:
    """Does as it is told when asked to look."""

    def __init__(self, *answers: LiveUpdate | Exception | None) -> None:
        self.answers = list(answers)
        self.looks = 0

    def evaluate_cluster(self, cluster: str, now: float) -> LiveUpdate | None:
        """See Evaluator."""
        self.looks += 1
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


def _alerting(looker: Looker, told: list[LiveUpdate]) -> AlertingProcess:
    Cluster.objects.get_or_create(id="default", defaults={"name": "Default"})
    return AlertingProcess(cast("Evaluator", looker), DeadmanSwitch(""), told.append, 0.05, "me")


def test_look_tells_news_and_survives_what_goes_wrong() -> None:
    """A locked database, a bug and another process cost one look each."""
    told: list[LiveUpdate] = []
    news = LiveUpdate("default", {"critical": 1}, "CRIT", "critical", 1)
    alerting = _alerting(
        Looker(OperationalError("locked"), KeyError("bug"), lease.LeaseHeldError("other"), news), told
    )
    assert [alerting.evaluate_clusters(1.0) for _ in range(4)] == [False, False, True, True]
    assert told == [news]


def test_database_error_in_one_cluster_costs_only_its_look() -> None:
    """The clusters after it are looked at all the same."""
    told: list[LiveUpdate] = []
    Cluster.objects.create(id="a", name="A")
    news = LiveUpdate("default", {"critical": 1}, "CRIT", "critical", 1)
    looker = Looker(OperationalError("locked"), news)
    assert not _alerting(looker, told).evaluate_clusters(1.0)
    assert (looker.looks, told) == (2, [news])


def test_silence_that_ends_soon_is_told() -> None:
    """Once."""
    told: list[LiveUpdate] = []
    alerting = _alerting(Looker(), told)
    Silence.objects.create(reason="upgrade", creator="ada", starts_at=0.0, ends_at=1000.0)
    for now in (100.0, 500.0, 600.0):
        alerting.evaluate_clusters(now)
    assert [news.text for news in told] == ["A silence ends within 15 min: upgrade"]


def test_news_that_cannot_be_told_cost_one_cluster(caplog: pytest.LogCaptureFixture) -> None:
    """Redis may be away: the clusters after it are looked at, and the process that looks goes on."""
    told: list[LiveUpdate] = []
    Cluster.objects.create(id="a", name="A")
    first, second = (
        LiveUpdate(cluster, {"critical": 1}, "CRIT", "critical", 1) for cluster in ("a", "default")
    )
    alerting = _alerting(Looker(first, second), told)

    def tell(news: LiveUpdate) -> None:
        if news is first:
            raise ConnectionError("the channel layer is away")
        told.append(news)

    alerting.publish_update = tell

    assert not alerting.evaluate_clusters(1.0)
    assert told == [second]
    assert "cluster a: the alert rules could not be evaluated" in caplog.text


def test_end_of_a_silence_that_cannot_be_told_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """Each silence by itself: one that fails is in the log."""
    alerting = _alerting(Looker(), [])
    told: list[str] = []
    for reason in ("upgrade", "new disks"):
        Silence.objects.create(reason=reason, creator="ada", starts_at=0.0, ends_at=1000.0)

    def tell(news: LiveUpdate) -> None:
        if news.text.endswith("upgrade"):
            raise ConnectionError("the channel layer is away")
        told.append(news.text)

    alerting.publish_update = tell

    assert not alerting.evaluate_clusters(500.0)
    assert told == ["A silence ends within 15 min: new disks"]
    assert "the notification that it ends soon could not be queued" in caplog.text
    assert alerting.evaluate_clusters(501.0)


@pytest.mark.parametrize("fault", [OperationalError("locked"), KeyError("bug")])
def test_look_without_the_ends_of_silences_is_no_good_look(
    fault: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The dead man's switch hears of good looks only; the clusters were looked at, and the next look is good."""
    looker = Looker()
    alerting = _alerting(looker, [])

    def fail(_now: float) -> list[Silence]:
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(alerting_loops, "claim_ending_silences", fail)
        assert not alerting.evaluate_clusters(1.0)
    assert caplog.text.count("the alert rules could not be evaluated") == 1
    assert looker.looks == 1
    assert alerting.evaluate_clusters(2.0)


@pytest.mark.django_db(transaction=True)
def test_sender_outlives_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread that sends ends by a mistake of ours: nobody would start it anew."""
    steps: Counter[str] = Counter()

    class FaultyOutbox:
        def __init__(self, holder: str, *others: object) -> None:
            self._holder = holder

        def send_next(self) -> bool:
            steps[self._holder] += 1
            if steps[self._holder] == 1:
                raise KeyError("bug")
            return False

    monkeypatch.setattr(alerting_loops, "Outbox", FaultyOutbox)
    alerting = _alerting(Looker(), [])
    thread = threading.Thread(target=alerting.run)
    thread.start()
    try:
        eventually_sync(lambda: len(steps) > 1 and min(steps.values()) > 1)
    finally:
        alerting.stop_event.set()
        thread.join(timeout=60)


@pytest.mark.django_db(transaction=True)
def test_open_alerts_are_posted_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process itself posts what Alertmanager was told of, by a thread that outlives a mistake of ours."""
    turns = itertools.count()

    class FaultyReposter(Reposter):
        @override
        def post_open_alerts(self) -> int:
            if next(turns) == 0:
                raise KeyError("bug")
            return super().post_open_alerts()

    monkeypatch.setattr(alerting_loops, "Reposter", FaultyReposter)
    monkeypatch.setattr(alerting_loops, "INTERVAL", 0.05)
    alerting = _alerting(Looker(), [])
    thread = threading.Thread(target=alerting.run)
    with receiving() as receiver:
        incident = _open_incident(receiver.url)
        thread.start()
        try:
            eventually_sync(lambda: len(receiver.bodies) >= 2)
        finally:
            alerting.stop_event.set()
            thread.join(timeout=60)
    assert {alert["labels"]["incident"] for body in receiver.bodies for alert in body} == {
        store.incident_of(incident).id
    }


def _open_incident(url: str) -> Incident:
    """Return an incident that fires, and that an Alertmanager at `url` was told of by this process."""
    now = time.time()
    cluster, _ = Cluster.objects.get_or_create(id="default", defaults={"name": "Default"})
    lease.take("default", lease.ALERTS, "me", datetime.now(UTC) + timedelta(hours=1))
    channel = Channel.objects.create(name="am", kind="alertmanager", config={"url": url}, allow_private=True)
    incident = Incident.objects.create(
        cluster=cluster, key="proxy/p1", cause_kind="proxy", cause_id="p1", cause_name="p1", generation=1,
        state="firing", severity=2, notices=1, opened_at=now - 60, sentence="p1 does not answer.",
    )  # fmt: skip
    notice = Notification(NotificationKind.FIRING, store.incident_of(incident), now, 1)
    Delivery.objects.create(
        channel=channel, incident=incident, key=notice.key, kind=NotificationKind.FIRING.value,
        payload=notifications.payload(notice, notifications.Links()), created_at=now, next_attempt_at=now, sent_at=now,
    )  # fmt: skip
    return incident


@pytest.mark.django_db(transaction=True)
def test_run_looks_until_it_is_stopped() -> None:
    """By its own clock, beside threads that send."""
    looker = Looker()
    alerting = _alerting(looker, [])
    thread = threading.Thread(target=alerting.run)
    thread.start()
    deadline = time.monotonic() + 60
    while looker.looks < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    alerting.stop_event.set()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert looker.looks >= 3


def test_prune_takes_old_incidents_and_leaves_open_ones() -> None:
    """What is not resolved stays however old it is."""
    Cluster.objects.get_or_create(id="default", defaults={"name": "Default"})
    for key, resolved_at in (("proxy/1", 5.0), ("proxy/2", None)):
        Incident.objects.create(
            cluster_id="default", key=key, cause_kind="proxy", cause_id="p", generation=1, state="firing",
            severity=2, opened_at=1.0, resolved_at=resolved_at,
        )  # fmt: skip
    assert prune(10.0) == 1
    assert Incident.objects.get().key == "proxy/2"
