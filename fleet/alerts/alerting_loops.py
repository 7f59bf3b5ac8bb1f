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

from fleet.alerts.channels.deadman import Deadman
from fleet.alerts.evaluator import Evaluator, News, warn_of_ends
from fleet.alerts.incident_actions import warn_of_end
from fleet.alerts.outbox import SENDERS, SENDING, Outbox, Places
from fleet.alerts.repost import INTERVAL, Reposter
from fleet.isolation import apart, each_cluster
from fleet.lease import LeaseHeld
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
class Alerting:
    """Looks at every cluster, and sends what that owes, until it is told to stop."""

    evaluator: Evaluator
    deadman: Deadman
    tell: Callable[[News], None]
    interval: float
    holder: str
    #: Links in messages begin with it.
    console_url: str = ""
    stopped: threading.Event = field(default_factory=threading.Event)
    _looked: threading.Event = field(default_factory=threading.Event)
    #: There may be something to send: all who send look into the outbox.
    _owed: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Look and send until `stopped` is set."""
        places = Places()
        threads = [
            threading.Thread(target=self._send, args=(n, places), name=f"send-{n}", daemon=True)
            for n in range(SENDING)
        ]
        beats = threading.Thread(target=self._beat, name="deadman", daemon=True)
        reposts = threading.Thread(target=self._repost, name="repost", daemon=True)
        for thread in (*threads, beats, reposts):
            thread.start()
        while not self.stopped.is_set():
            began = time.monotonic()
            if self.look(time.time()):
                self._looked.set()
            # By our own clock, not by how long it took; a look that is late is not made up for.
            self.stopped.wait(max(0.05, self.interval - (time.monotonic() - began)))
        self._owed.set()
        for thread in threads:
            thread.join(timeout=15.0)

    def look(self, now: float) -> bool:
        """Look at every cluster; whether all of it could be kept."""
        is_kept = False
        with apart("the look failed") as block:
            clusters = list(Cluster.objects.all()) or [ensure_default_cluster()]
            is_kept = each_cluster(
                "the look failed", lambda cluster: self._look_at(cluster.id, now), clusters
            )
            for silence in warn_of_ends(now):
                is_kept &= self._warn(silence, clusters, now)
        return is_kept and not block.failed

    def _look_at(self, cluster: str, now: float) -> None:
        try:
            news = self.evaluator.look(cluster, now)
        except LeaseHeld as error:
            logger.debug("%s", error)
            return
        if news is not None:
            if news.text:
                self._owed.set()
            self.tell(news)

    def _warn(self, silence: Silence, clusters: Sequence[Cluster], now: float) -> bool:
        """Tell of the end of a silence; whether that could be done."""
        with apart(f"silence {silence.pk}: nobody is warned of its end") as block:
            warn_of_end(silence, now, self.console_url)
            text = f"A silence ends within 15 minutes: {silence.reason}"
            for cluster in clusters:
                if silence.cluster in ("", cluster.id):
                    self.tell(News(cluster.id, {}, text, "info"))
        return not block.failed

    def _send(self, number: int, places: Places) -> None:
        """Send what is due. One thread looks for it once a second, the others seldom, or when it found something."""
        outbox = Outbox(f"{self.holder}/{number}", time.time, random.random, SENDERS, places)
        while not self.stopped.is_set():
            worked = False
            with apart("a notification is not sent now"):
                worked = outbox.step()
            if worked:
                self._owed.set()
                continue
            # In this order: whoever sets `stopped` sets `_owed` after it.
            self._owed.clear()
            if not self.stopped.is_set():
                self._owed.wait(_IDLE if number == 0 else _IDLE_OTHERS)
        connection.close()

    def _repost(self) -> None:
        reposter = Reposter(self.holder, time.time)
        while not self.stopped.wait(INTERVAL):
            with apart("open alerts cannot be posted now: Alertmanager gets them a minute later"):
                reposter.post()
        connection.close()

    def _beat(self) -> None:
        while not self.stopped.wait(1.0):
            with apart("the dead man's switch is not told now"):
                if self._looked.is_set() and self.deadman.beat(time.time()):
                    self._looked.clear()


def prune(before: float) -> int:
    """Delete incidents that were resolved before that, with their timelines and messages; how many rows."""
    # The newest of each instance says what it runs now.
    newest = VersionChange.objects.values("instance_id", "cluster").annotate(last=Max("pk")).values("last")
    versions = VersionChange.objects.filter(at__lt=before).exclude(pk__in=newest).delete()[0]
    return versions + Incident.objects.filter(resolved_at__lt=before).delete()[0]
