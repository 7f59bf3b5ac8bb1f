"""The loops of the process that looks and sends. One thread looks, some send: a slow mail server delays no look."""

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
from fleet.alerts.outbox import SENDERS, SENDER_THREADS, Outbox, SenderSlots
from fleet.alerts.repost import INTERVAL, Reposter
from fleet.isolation import isolate_errors, for_each_cluster
from fleet.lease import LeaseHeldError
from fleet.models import Cluster
from fleet.models.alerting import Silence
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident, VersionChange

logger = logging.getLogger(__name__)

#: Seconds between two looks into an outbox that was empty: other processes put messages there, too.
_IDLE = 1.0
#: The same of all threads but the first, which may be waiting for a receiver.
_IDLE_OTHERS = 5.0


@dataclass
class AlertingProcess:
    """Looks at every cluster, and sends what that owes, until it is told to stop."""

    evaluator: Evaluator
    deadman: DeadmanSwitch
    publish_update: Callable[[LiveUpdate], None]
    interval: float
    holder: str
    #: Links in messages begin with it.
    console_url: str = ""
    stop_event: threading.Event = field(default_factory=threading.Event)
    _evaluated_event: threading.Event = field(default_factory=threading.Event)
    #: There may be something to send: all who send look into the outbox.
    _outbox_event: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Look and send until `stopped` is set."""
        slots = SenderSlots()
        threads = [
            threading.Thread(target=self._run_sender, args=(number, slots), name=f"send-{number}", daemon=True)
            for number in range(SENDER_THREADS)
        ]
        heartbeat_thread = threading.Thread(target=self._run_heartbeat, name="deadman", daemon=True)
        repost_thread = threading.Thread(target=self._run_reposter, name="repost", daemon=True)
        for thread in (*threads, heartbeat_thread, repost_thread):
            thread.start()
        while not self.stop_event.is_set():
            started_at = time.monotonic()
            if self.evaluate_clusters(time.time()):
                self._evaluated_event.set()
            # By our own clock, not by how long it took; a look that is late is not made up for.
            self.stop_event.wait(max(0.05, self.interval - (time.monotonic() - started_at)))
        self._outbox_event.set()
        for thread in threads:
            thread.join(timeout=15.0)

    def evaluate_clusters(self, now: float) -> bool:
        """Look at every cluster; whether all of it could be kept."""
        is_kept = False
        with isolate_errors("the look failed") as block:
            clusters = list(Cluster.objects.all()) or [ensure_default_cluster()]
            is_kept = for_each_cluster(
                "the look failed", lambda cluster: self._evaluate_cluster(cluster.id, now), clusters
            )
            for silence in claim_ending_silences(now):
                is_kept &= self._notify_silence_end(silence, clusters, now)
        return is_kept and not block.has_failed

    def _evaluate_cluster(self, cluster: str, now: float) -> None:
        try:
            update = self.evaluator.evaluate_cluster(cluster, now)
        except LeaseHeldError as error:
            logger.debug("%s", error)
            return
        if update is not None:
            if update.text:
                self._outbox_event.set()
            self.publish_update(update)

    def _notify_silence_end(self, silence: Silence, clusters: Sequence[Cluster], now: float) -> bool:
        """Tell of the end of a silence; whether that could be done."""
        with isolate_errors(f"silence {silence.pk}: nobody is warned of its end") as block:
            notify_silence_end(silence, now, self.console_url)
            text = f"A silence ends within 15 minutes: {silence.reason}"
            for cluster in clusters:
                if silence.cluster in ("", cluster.id):
                    self.publish_update(LiveUpdate(cluster.id, {}, text, "info"))
        return not block.has_failed

    def _run_sender(self, number: int, slots: SenderSlots) -> None:
        """Send what is due. One thread looks for it once a second, the others seldom, or when it found something."""
        outbox = Outbox(f"{self.holder}/{number}", time.time, random.random, SENDERS, slots)
        while not self.stop_event.is_set():
            has_sent = False
            with isolate_errors("a notification is not sent now"):
                has_sent = outbox.send_next()
            if has_sent:
                self._outbox_event.set()
                continue
            # In this order: whoever sets `stopped` sets `_owed` after it.
            self._outbox_event.clear()
            if not self.stop_event.is_set():
                self._outbox_event.wait(_IDLE if number == 0 else _IDLE_OTHERS)
        connection.close()

    def _run_reposter(self) -> None:
        reposter = Reposter(self.holder, time.time)
        while not self.stop_event.wait(INTERVAL):
            with isolate_errors("open alerts cannot be posted now: Alertmanager gets them a minute later"):
                reposter.post_open_alerts()
        connection.close()

    def _run_heartbeat(self) -> None:
        while not self.stop_event.wait(1.0):
            with isolate_errors("the dead man's switch is not told now"):
                if self._evaluated_event.is_set() and self.deadman.send_heartbeat(time.time()):
                    self._evaluated_event.clear()


def prune(before: float) -> int:
    """Delete incidents that were resolved before that, with their timelines and messages; how many rows."""
    # The newest of each instance says what it runs now.
    newest = VersionChange.objects.values("instance_id", "cluster").annotate(last=Max("pk")).values("last")
    versions = VersionChange.objects.filter(at__lt=before).exclude(pk__in=newest).delete()[0]
    return versions + Incident.objects.filter(resolved_at__lt=before).delete()[0]
