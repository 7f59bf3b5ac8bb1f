"""Send what the outbox holds: by short steps, at least once, in order per incident and channel.

docs/alerts.md, "The outbox".

A step leases one message, sends it, and records what came of it. A process that dies between sending and recording
leaves a lease that ends, and the message is sent again under the same key. `attempts` rises with each lease: with the
holder it is the fencing token, and a step that was paused for longer than its lease records nothing.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from fleet.alerts.channels import SendRequest, SendError
from fleet.alerts.channels.registry import KINDS, REPOSTS
from fleet.models.alerting import Channel, Delivery
from fleet.models.incidents import IncidentEvent
from fleet.models.sealed_secrets import SealError, unseal
from fleet.vocabulary.incidents import TimelineKind

logger = logging.getLogger(__name__)

Sender = Callable[[SendRequest], None]

#: How each kind of channel sends.
SENDERS: Mapping[str, Sender] = {slug: kind.send for slug, kind in KINDS.items()}
#: A step is shorter than this, seconds: an attempt ends within 10 s, and so does looking up its host.
LEASE_SECONDS = 60.0
#: Tried for so long, then shown as failed.
GIVE_UP_AFTER = 86400.0
#: The first wait and the longest, seconds; each doubles, give or take a fifth.
_FIRST_WAIT = 5.0
_LONGEST_WAIT = 900.0
#: Threads of one process that send. Each waits for one receiver at a time.
SENDER_THREADS = 4
_RATE_LIMIT_REASON = "the channel's limit of messages in a minute"
_CHANNEL_FAILING_REASON = "the channel fails; an older message is tried first"


@dataclass(slots=True)
class SenderSlots:
    """How many threads of a process send, and for which clusters now.

    One cluster takes all of them but one: receivers of its channels that hang hold up no other cluster.
    """

    total: int = SENDER_THREADS
    used_counts: Counter[str] = field(default_factory=Counter)
    #: Held by whoever chooses a message.
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def full_clusters(self) -> list[str]:
        """The clusters that have as many as they may."""
        return [cluster for cluster, count in self.used_counts.items() if count >= self.total - 1]


@dataclass(frozen=True, slots=True)
class Outbox:
    """Sends, as one process or thread of several."""

    holder: str
    clock: Callable[[], float]
    #: Between 0 and 1, for waits that differ.
    chance: Callable[[], float]
    senders: Mapping[str, Sender]
    #: Shared by the threads of a process.
    slots: SenderSlots = field(default_factory=SenderSlots)

    def send_next(self) -> bool:
        """Send one message that is due; False when there is none. Raises DatabaseError."""
        with self.slots.lock:
            delivery = self._lease_next()
            if delivery is None:
                return False
            self.slots.used_counts[delivery.cluster] += 1
        try:
            self._send(delivery)
        finally:
            with self.slots.lock:
                self.slots.used_counts[delivery.cluster] -= 1
        return True

    def _send(self, delivery: Delivery) -> None:
        try:
            self.senders[_channel_of(delivery).kind](self._request_of(delivery))
        except SendError as error:
            self._record_failure(delivery, str(error), permanent=error.permanent)
        except SealError as error:
            self._record_failure(delivery, str(error), permanent=False)
        except Exception as error:
            # Senders are many and some are not ours; a bug of one must not keep the others' messages.
            logger.exception("delivery %s to %s", delivery.key, delivery.channel)
            self._record_failure(delivery, f"{type(error).__name__}: {error}", permanent=False)
        else:
            self._record_sent(delivery)

    def _lease_next(self) -> Delivery | None:
        now = self.clock()
        for delivery in due_deliveries(now).exclude(cluster__in=self.slots.full_clusters).select_related("channel")[:20]:
            if now - delivery.created_at > GIVE_UP_AFTER and delivery.attempts:
                self._give_up(delivery, now)
                continue
            if _is_rate_limited(_channel_of(delivery), now):
                waiting_deliveries = open_deliveries().filter(channel=delivery.channel, next_attempt_at__lte=now)
                waiting_deliveries.update(next_attempt_at=now + 5.0, waits_for=_RATE_LIMIT_REASON)
                continue
            is_leased = (
                due_deliveries(now)
                .filter(pk=delivery.pk, attempts=delivery.attempts)
                .update(leased_by=self.holder, leased_until=now + LEASE_SECONDS, attempts=F("attempts") + 1)
            )
            if is_leased:
                delivery.leased_by, delivery.attempts = self.holder, delivery.attempts + 1
                return delivery
        return None

    def _request_of(self, delivery: Delivery) -> SendRequest:
        channel = _channel_of(delivery)
        return SendRequest(
            delivery.payload,
            delivery.key,
            self.clock(),
            channel.config,
            unseal(channel.secrets),
            channel.allow_private,
            _earlier_severities(delivery),
        )

    @transaction.atomic
    def _record_sent(self, delivery: Delivery) -> None:
        """Record that a message was sent, and its line in the timeline: both or neither, whenever the process ends."""
        now = self.clock()
        if not _leased_row_of(delivery).update(
            sent_at=now, attempted_at=now, leased_until=None, leased_by="", last_error="", waits_for=""
        ):
            return
        # What waited for this channel to work need not wait any longer.
        blocked_deliveries = open_deliveries().filter(channel=delivery.channel, waits_for=_CHANNEL_FAILING_REASON)
        blocked_deliveries.update(next_attempt_at=now, waits_for="")
        self._add_timeline_entry(delivery, now, f"{delivery.kind} was taken by {delivery.channel}.")

    def _record_failure(self, delivery: Delivery, reason: str, *, permanent: bool) -> None:
        now = self.clock()
        logger.warning(
            "delivery %s to %s, attempt %d: %s", delivery.key, delivery.channel, delivery.attempts, reason
        )
        if permanent:
            self._give_up(delivery, now, reason)
            return
        at = now + backoff_seconds(delivery.attempts, self.chance())
        if not _leased_row_of(delivery).update(
            next_attempt_at=at,
            attempted_at=now,
            leased_until=None,
            leased_by="",
            last_error=reason,
            waits_for="it failed before",
        ):
            return
        later_deliveries = open_deliveries().filter(channel=delivery.channel, attempts=0, next_attempt_at__lt=at)
        later_deliveries.exclude(pk=delivery.pk).update(next_attempt_at=at, waits_for=_CHANNEL_FAILING_REASON)

    @transaction.atomic
    def _give_up(self, delivery: Delivery, now: float, reason: str = "") -> None:
        error = reason or delivery.last_error or "nobody took it within a day"
        leased_rows = _leased_row_of(delivery).filter(sent_at=None, failed_at=None)
        columns = {"attempted_at": now} if reason else {}
        if leased_rows.update(
            failed_at=now, leased_until=None, leased_by="", last_error=error, waits_for="", **columns
        ):
            # Without the error: it may name an address that only the owners of the channel may see.
            sentence = f"{delivery.kind} could not be sent to {delivery.channel}: the delivery log says why."
            self._add_timeline_entry(delivery, now, sentence)

    def _add_timeline_entry(self, delivery: Delivery, now: float, text: str) -> None:
        if delivery.incident_id is not None:
            kind = TimelineKind.DELIVERY.value
            IncidentEvent.objects.create(incident_id=delivery.incident_id, at=now, kind=kind, text=text)


def open_deliveries() -> QuerySet[Delivery]:
    """What is neither sent nor given up."""
    return Delivery.objects.filter(sent_at=None, failed_at=None)


def due_deliveries(now: float) -> QuerySet[Delivery]:
    """What may be sent now: the oldest message of each incident and channel, if it need not wait."""
    older_deliveries = open_deliveries().filter(
        channel=OuterRef("channel"), incident=OuterRef("incident"), pk__lt=OuterRef("pk")
    )
    return (
        open_deliveries()
        .filter(Q(channel__enabled=True), next_attempt_at__lte=now)
        .exclude(leased_until__gt=now)
        .exclude(Exists(older_deliveries))
        .order_by("next_attempt_at", "pk")
    )


def backoff_seconds(attempts: int, chance: float) -> float:
    """Seconds until the next attempt after so many; `chance` between 0 and 1 spreads them."""
    return min(_FIRST_WAIT * 2.0 ** min(attempts - 1, 16), _LONGEST_WAIT) * (0.8 + 0.4 * chance)


def prune(before: float) -> int:
    """Delete finished messages created before that; how many."""
    finished_deliveries = Delivery.objects.filter(created_at__lt=before).exclude(sent_at=None, failed_at=None)
    return finished_deliveries.delete()[0]


def _leased_row_of(delivery: Delivery) -> QuerySet[Delivery]:
    """Return the row, unless another step has leased it since."""
    return Delivery.objects.filter(pk=delivery.pk, leased_by=delivery.leased_by, attempts=delivery.attempts)


def _channel_of(delivery: Delivery) -> Channel:
    assert delivery.channel is not None, "a notification of a deleted channel has failed, and is never due"
    return delivery.channel


def _earlier_severities(delivery: Delivery) -> frozenset[str]:
    """Return the severities under which the receiver of the channel may list an alert of the incident."""
    if delivery.incident_id is None or _channel_of(delivery).kind not in REPOSTS:
        return frozenset()
    earlier = Delivery.objects.filter(channel=delivery.channel, incident=delivery.incident_id)
    earlier = earlier.exclude(pk=delivery.pk).exclude(sent_at=None).order_by()
    return frozenset(earlier.values_list("payload__incident__severity", flat=True).distinct())


def _is_rate_limited(channel: Channel, now: float) -> bool:
    recent_count = Delivery.objects.filter(channel=channel, sent_at__gt=now - 60.0).count()
    return recent_count >= channel.per_minute
