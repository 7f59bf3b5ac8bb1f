"""The threads of the alerting process: one evaluates the rules, others send, so slow receivers delay no evaluation."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from django.db import connection
from django.db.models import Max

from fleet.alerts.channels.deadman import DeadmanSwitch
from fleet.alerts.evaluator import Evaluator, LiveUpdate, claim_ending_silences
from fleet.alerts.incident_actions import notify_silence_end
from fleet.alerts.outbox import SEND_FUNCTIONS, SENDER_THREAD_COUNT, Outbox, SenderSlots
from fleet.alerts.repost import REPOST_INTERVAL_SECONDS, Reposter
from fleet.isolation import for_each_cluster, isolate_errors
from fleet.lease import LeaseHeldError
from fleet.models import Cluster
from fleet.models.alerting import Silence
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident, VersionChange

logger = logging.getLogger(__name__)

#: Seconds between two checks of an empty outbox, to which other processes add notifications, too.
_FIRST_SENDER_IDLE_SECONDS = 1.0
#: The same for the other sending threads, while the first one may be waiting for a receiver.
_OTHER_SENDER_IDLE_SECONDS = 5.0


@dataclass
class AlertingProcess:
    """Evaluates the rules for every cluster and sends the notifications, until `stop_event` is set."""

    evaluator: Evaluator
    deadman: DeadmanSwitch
    publish_update: Callable[[LiveUpdate], None]
    interval_seconds: float
    holder: str
    #: Base URL of links in notifications.
    console_url: str = ""
    stop_event: threading.Event = field(default_factory=threading.Event)
    _evaluated_event: threading.Event = field(default_factory=threading.Event)
    #: Set when notifications may be due: all sending threads then check the outbox.
    _outbox_event: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Evaluate and send until `stop_event` is set."""
        slots = SenderSlots()
        sender_threads = [
            threading.Thread(
                target=self._run_sender, args=(sender_index, slots), name=f"send-{sender_index}", daemon=True
            )
            for sender_index in range(SENDER_THREAD_COUNT)
        ]
        heartbeat_thread = threading.Thread(target=self._run_heartbeat, name="deadman", daemon=True)
        repost_thread = threading.Thread(target=self._run_reposter, name="repost", daemon=True)
        for thread in (*sender_threads, heartbeat_thread, repost_thread):
            thread.start()
        while not self.stop_event.is_set():
            started_at = time.monotonic()
            if self.evaluate_clusters(time.time()):
                self._evaluated_event.set()
            # Evaluate at a fixed interval, whatever an evaluation takes. Missed evaluations are not repeated.
            self.stop_event.wait(max(0.05, self.interval_seconds - (time.monotonic() - started_at)))
        self._outbox_event.set()
        for thread in sender_threads:
            thread.join(timeout=15.0)

    def evaluate_clusters(self, now: float) -> bool:
        """Evaluate the rules for every cluster. Return whether all results were stored."""
        has_succeeded = False
        with isolate_errors("the alert rules could not be evaluated") as block:
            clusters = list(Cluster.objects.all()) or [ensure_default_cluster()]
            has_succeeded = for_each_cluster(
                "the alert rules could not be evaluated",
                lambda cluster: self._evaluate_cluster(cluster, now),
                clusters,
            )
            for silence in claim_ending_silences(now):
                has_succeeded &= self._notify_silence_end(silence, clusters, now)
        return has_succeeded and not block.has_failed

    def _evaluate_cluster(self, cluster: Cluster, now: float) -> None:
        try:
            update = self.evaluator.evaluate_cluster(
                cluster.id, now, is_paused=cluster.is_paused, created_at=cluster.created_at.timestamp()
            )
        except LeaseHeldError as error:
            logger.debug("%s", error)
            return
        if update is not None:
            if update.text:
                self._outbox_event.set()
            self.publish_update(update)

    def _notify_silence_end(self, silence: Silence, clusters: Sequence[Cluster], now: float) -> bool:
        """Notify that a silence ends soon. Return whether that succeeded."""
        with isolate_errors(
            f"silence {silence.pk}: the notification that it ends soon could not be queued"
        ) as block:
            notify_silence_end(silence, now, self.console_url)
            text = f"A silence ends within 15 min: {silence.reason}"
            for cluster in clusters:
                if silence.cluster in ("", cluster.id):
                    self.publish_update(LiveUpdate(cluster.id, {}, text, "info"))
        return not block.has_failed

    def _run_sender(self, sender_index: int, slots: SenderSlots) -> None:
        """Send due notifications. The first thread checks every second, the others every 5 s or when there is work."""
        outbox = Outbox(f"{self.holder}/{sender_index}", time.time, random.random, SEND_FUNCTIONS, slots)
        while not self.stop_event.is_set():
            has_sent = False
            with isolate_errors("a notification could not be sent and will be retried"):
                has_sent = outbox.send_next()
            if has_sent:
                self._outbox_event.set()
                continue
            # In this order, because `run` sets `_outbox_event` after `stop_event`.
            self._outbox_event.clear()
            if not self.stop_event.is_set():
                self._outbox_event.wait(
                    _FIRST_SENDER_IDLE_SECONDS if sender_index == 0 else _OTHER_SENDER_IDLE_SECONDS
                )
        connection.close()

    def _run_reposter(self) -> None:
        reposter = Reposter(self.holder, time.time)
        while not self.stop_event.wait(REPOST_INTERVAL_SECONDS):
            with isolate_errors("open alerts could not be reposted to Alertmanager; next attempt in 60 s"):
                reposter.repost_open_alerts()
        connection.close()

    def _run_heartbeat(self) -> None:
        while not self.stop_event.wait(1.0):
            with isolate_errors("the dead man's switch heartbeat could not be sent"):
                if self._evaluated_event.is_set() and self.deadman.send_heartbeat(time.time()):
                    self._evaluated_event.clear()


def prune(before: float) -> int:
    """Delete incidents resolved before a time, with timelines and deliveries, and old versions. Return the number."""
    # Keep the newest row of each instance: it holds the current version.
    newest_change_ids = (
        VersionChange.objects.values("instance_id", "cluster").annotate(last=Max("pk")).values("last")
    )
    deleted_version_count = (
        VersionChange.objects.filter(at__lt=before).exclude(pk__in=newest_change_ids).delete()[0]
    )
    return deleted_version_count + Incident.objects.filter(resolved_at__lt=before).delete()[0]
