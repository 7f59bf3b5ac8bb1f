"""Send the notifications in the outbox: in short steps, at least once, in order per incident and channel.

docs/reference/alerts.md, "Delivery".

A step leases one delivery, sends it, and records the result. If a process dies between sending and recording, the lease
expires and the notification is sent again under the same key. `attempts` increases with each lease. Together with the
holder it is the fencing token, so a step that was paused for longer than its lease records nothing.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from fleet.alerts.channels import Receipt, SendError, SendRequest
from fleet.alerts.channels.registry import CHANNEL_KINDS, REPOST_FUNCTIONS
from fleet.models.alerting import Channel, Delivery
from fleet.models.incidents import IncidentEvent
from fleet.models.sealed_secrets import UnsealError, unseal
from fleet.protocol.durations import format_clock_time
from fleet.vocabulary.incidents import NotificationKind, TimelineKind

logger = logging.getLogger(__name__)

SendFunction = Callable[[SendRequest], Receipt | None]

#: Send functions by kind of channel.
SEND_FUNCTIONS: Mapping[str, SendFunction] = {slug: kind.send for slug, kind in CHANNEL_KINDS.items()}
#: Lease of a step, seconds. A step is shorter: an attempt takes at most 10 s for each of its requests, usually one or
#: two, and the lookup of a host that it abandoned at most 10 s more.
LEASE_SECONDS = 60.0
#: Seconds after which a delivery that still fails is given up.
GIVE_UP_AFTER_SECONDS = 86400.0
#: First and longest wait between attempts, seconds. Each wait doubles, with 20 % jitter.
_FIRST_WAIT_SECONDS = 5.0
_MAX_WAIT_SECONDS = 900.0
#: Sending threads per process. Each one waits for one receiver at a time.
SENDER_THREAD_COUNT = 4
#: Longest wait that a receiver may demand, seconds: a wrong header must not stop a channel for good.
MAX_RETRY_AFTER_SECONDS = 3600.0
_RATE_LIMIT_REASON = "rate limit of the channel reached"
_CHANNEL_FAILING_REASON = "the channel is failing; an earlier notification is retried first"


@dataclass(slots=True)
class SenderSlots:
    """The sending threads of a process, and the clusters that they currently send for.

    One cluster takes at most all threads but one, so its hanging receivers do not delay other clusters.
    """

    thread_count: int = SENDER_THREAD_COUNT
    used_count_by_cluster: Counter[str] = field(default_factory=Counter)
    #: Held while a delivery is chosen.
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def full_clusters(self) -> list[str]:
        """The clusters that use as many threads as they may."""
        return [
            cluster for cluster, count in self.used_count_by_cluster.items() if count >= self.thread_count - 1
        ]


@dataclass(frozen=True, slots=True)
class Outbox:
    """Sends deliveries, as one of several threads or processes."""

    holder: str
    clock: Callable[[], float]
    #: Returns a random number between 0 and 1, for the jitter of waits.
    draw_fraction: Callable[[], float]
    send_functions: Mapping[str, SendFunction]
    #: Shared by all threads of a process.
    slots: SenderSlots = field(default_factory=SenderSlots)

    def send_next(self) -> bool:
        """Send one due notification; return False if none is due. Raises DatabaseError."""
        with self.slots.lock:
            delivery = self._lease_next()
            if delivery is None:
                return False
            self.slots.used_count_by_cluster[delivery.cluster] += 1
        try:
            self._send(delivery)
        finally:
            with self.slots.lock:
                self.slots.used_count_by_cluster[delivery.cluster] -= 1
        return True

    def _send(self, delivery: Delivery) -> None:
        try:
            receipt = self.send_functions[_channel_of(delivery).kind](self._request_of(delivery))
        except SendError as error:
            self._record_failure(delivery, error)
        except UnsealError as error:
            self._record_failure(delivery, SendError(str(error)))
        except Exception as error:
            # Some senders are third-party code. A bug in one must not block the notifications of the others.
            logger.exception("delivery %s to %s failed unexpectedly", delivery.key, delivery.channel)
            self._record_failure(delivery, SendError(f"{type(error).__name__}: {error}"))
        else:
            self._record_sent(delivery, receipt)

    def _lease_next(self) -> Delivery | None:
        now = self.clock()
        for delivery in (
            select_due_deliveries(now)
            .exclude(cluster__in=self.slots.full_clusters)
            .select_related("channel")[:20]
        ):
            if now - delivery.created_at > GIVE_UP_AFTER_SECONDS and delivery.attempts:
                self._give_up(delivery, now)
                continue
            channel = _channel_of(delivery)
            limited_until = channel.rate_limited_until
            if limited_until is not None and limited_until > now:
                _hold_deliveries(channel, limited_until, _receiver_limit_reason_of(limited_until))
                continue
            if _is_rate_limited(channel, now):
                _hold_deliveries(channel, now + 5.0, _RATE_LIMIT_REASON, due_at=now)
                continue
            # Compare columns of the row only. PostgreSQL reads them again after it waited for another sender, but runs
            # no join or subquery again: two senders would lease the same notification.
            unchanged_row = select_open_deliveries().filter(
                pk=delivery.pk, attempts=delivery.attempts, next_attempt_at__lte=now
            )
            if unchanged_row.update(
                leased_by=self.holder, leased_until=now + LEASE_SECONDS, attempts=F("attempts") + 1
            ):
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
            _read_earlier_severities(delivery),
            *_read_earlier_receipt(delivery),
        )

    @transaction.atomic
    def _record_sent(self, delivery: Delivery, receipt: Receipt | None) -> None:
        """Record that a notification was sent, with its timeline entry, in one transaction."""
        now = self.clock()
        lock_channel(_channel_of(delivery))
        if not _leased_row_of(delivery).update(
            sent_at=now,
            # The channel may have been deleted meanwhile.
            failed_at=None,
            attempted_at=now,
            leased_until=None,
            leased_by="",
            last_error="",
            delay_reason="",
            receipt=receipt,
        ):
            return
        failing_channels = Channel.objects.filter(pk=_channel_of(delivery).pk).exclude(failing_since=None)
        failing_channels.update(failing_since=None)
        # Release the notifications that waited for this channel to work again.
        blocked_deliveries = select_open_deliveries().filter(
            channel=delivery.channel, delay_reason=_CHANNEL_FAILING_REASON
        )
        blocked_deliveries.update(next_attempt_at=now, delay_reason="")
        self._add_timeline_entry(delivery, now, f"Notification ({delivery.kind}) sent to {delivery.channel}.")

    @transaction.atomic
    def _record_failure(self, delivery: Delivery, error: SendError) -> None:
        now, reason = self.clock(), str(error)
        logger.warning(
            "delivery %s to %s failed, attempt %d: %s",
            delivery.key,
            delivery.channel,
            delivery.attempts,
            reason,
        )
        # A test is one attempt: it answers a question now, and must not hold back notifications.
        if error.permanent or delivery.kind == NotificationKind.TEST.value:
            self._give_up(delivery, now, reason)
            return
        lock_channel(_channel_of(delivery))
        next_attempt_at = now + backoff_seconds(delivery.attempts, self.draw_fraction())
        delay_reason, limited_until = "the last attempt failed", None
        if error.retry_after_seconds is not None:
            limited_until = now + min(error.retry_after_seconds, MAX_RETRY_AFTER_SECONDS)
            next_attempt_at = max(next_attempt_at, limited_until)
            delay_reason = _receiver_limit_reason_of(limited_until)
        # Not if the channel was deleted meanwhile: that is why the notification failed.
        if (
            not _leased_row_of(delivery)
            .filter(failed_at=None)
            .update(
                next_attempt_at=next_attempt_at,
                attempted_at=now,
                leased_until=None,
                leased_by="",
                last_error=reason,
                delay_reason=delay_reason,
            )
        ):
            return
        _mark_failing(delivery, now)
        if limited_until is not None:
            channel = _channel_of(delivery)
            Channel.objects.filter(pk=channel.pk).update(rate_limited_until=limited_until)
            _hold_deliveries(channel, limited_until, delay_reason)
            return
        untried_deliveries = select_open_deliveries().filter(
            channel=delivery.channel, attempts=0, next_attempt_at__lt=next_attempt_at
        )
        untried_deliveries.exclude(pk=delivery.pk).update(
            next_attempt_at=next_attempt_at, delay_reason=_CHANNEL_FAILING_REASON
        )

    @transaction.atomic
    def _give_up(self, delivery: Delivery, now: float, reason: str = "") -> None:
        error = reason or delivery.last_error or "not delivered within 24 h"
        lock_channel(_channel_of(delivery))
        leased_rows = _leased_row_of(delivery).filter(sent_at=None, failed_at=None)
        columns = {"attempted_at": now} if reason else {}
        if leased_rows.update(
            failed_at=now, leased_until=None, leased_by="", last_error=error, delay_reason="", **columns
        ):
            if reason and delivery.kind != NotificationKind.TEST.value:
                _mark_failing(delivery, now)
            # Without the error, which may contain an address that only the owners of the channel may see.
            sentence = f"Notification ({delivery.kind}) to {delivery.channel} failed. The delivery log shows the error."
            self._add_timeline_entry(delivery, now, sentence)

    def _add_timeline_entry(self, delivery: Delivery, now: float, text: str) -> None:
        if delivery.incident_id is not None:
            kind = TimelineKind.DELIVERY.value
            IncidentEvent.objects.create(incident_id=delivery.incident_id, at=now, kind=kind, text=text)


def select_open_deliveries() -> QuerySet[Delivery]:
    """Return the deliveries that are neither sent nor failed."""
    return Delivery.objects.filter(sent_at=None, failed_at=None)


def select_due_deliveries(now: float) -> QuerySet[Delivery]:
    """Return the deliveries that may be sent now: the oldest of each incident and channel, unless it waits."""
    older_deliveries = select_open_deliveries().filter(
        channel=OuterRef("channel"), incident=OuterRef("incident"), pk__lt=OuterRef("pk")
    )
    return (
        select_open_deliveries()
        .filter(Q(channel__enabled=True), next_attempt_at__lte=now)
        .exclude(leased_until__gt=now)
        .exclude(Exists(older_deliveries))
        .order_by("next_attempt_at", "pk")
    )


def backoff_seconds(attempt_count: int, jitter_fraction: float) -> float:
    """Return the seconds until the next attempt. `jitter_fraction`: 0 to 1."""
    return min(_FIRST_WAIT_SECONDS * 2.0 ** min(attempt_count - 1, 16), _MAX_WAIT_SECONDS) * (
        0.8 + 0.4 * jitter_fraction
    )


def prune(before: float) -> int:
    """Delete sent and failed deliveries created before a time; return the number of deleted rows."""
    finished_deliveries = Delivery.objects.filter(created_at__lt=before).exclude(sent_at=None, failed_at=None)
    return finished_deliveries.delete()[0]


def _leased_row_of(delivery: Delivery) -> QuerySet[Delivery]:
    """Return the row, unless another step has leased it since."""
    return Delivery.objects.filter(pk=delivery.pk, leased_by=delivery.leased_by, attempts=delivery.attempts)


def lock_channel(channel: Channel) -> None:
    """Lock the channel until the end of the transaction, before any of its deliveries.

    Results of one channel change each other's rows. In any other order, PostgreSQL ends one of two that wait for each
    other, and that notification would be sent again when its lease expires.
    """
    Channel.objects.select_for_update(no_key=True).filter(pk=channel.pk).first()


def _mark_failing(delivery: Delivery, now: float) -> None:
    """Record that the channel fails from now, unless it already does. A failed test delays no notification."""
    Channel.objects.filter(pk=_channel_of(delivery).pk, failing_since=None).update(failing_since=now)


def _channel_of(delivery: Delivery) -> Channel:
    assert delivery.channel is not None, "deliveries of deleted channels have failed and are never due"
    return delivery.channel


def _read_earlier_severities(delivery: Delivery) -> frozenset[str]:
    """Return the severities under which the receiver may list alerts of the incident."""
    if delivery.incident_id is None or _channel_of(delivery).kind not in REPOST_FUNCTIONS:
        return frozenset()
    earlier = Delivery.objects.filter(channel=delivery.channel, incident=delivery.incident_id)
    earlier = earlier.exclude(pk=delivery.pk).exclude(sent_at=None).order_by()
    return frozenset(earlier.values_list("payload__incident__severity", flat=True).distinct())


def _read_earlier_receipt(delivery: Delivery) -> tuple[Receipt | None, bool]:
    """Return the newest receipt of the incident, and whether a newer notification was sent than this one."""
    if delivery.incident_id is None:
        return None, False
    earlier = Delivery.objects.filter(channel=delivery.channel, incident=delivery.incident_id)
    newest = earlier.filter(receipt__isnull=False).exclude(sent_at=None).order_by("-pk").first()
    return (None, False) if newest is None else (newest.receipt, newest.pk > delivery.pk)


@transaction.atomic
def _hold_deliveries(channel: Channel, until: float, reason: str, *, due_at: float | None = None) -> None:
    """Let the notifications of a channel that are due by `due_at` wait until a time; None: by that time."""
    lock_channel(channel)
    waiting_deliveries = select_open_deliveries().filter(
        channel=channel, next_attempt_at__lte=until if due_at is None else due_at
    )
    waiting_deliveries.update(next_attempt_at=until, delay_reason=reason)


def _receiver_limit_reason_of(until: float) -> str:
    return f"the receiver limits the rate of requests: next attempt at {format_clock_time(until)}"


def _is_rate_limited(channel: Channel, now: float) -> bool:
    recent_count = Delivery.objects.filter(channel=channel, sent_at__gt=now - 60.0).count()
    return recent_count >= channel.per_minute
