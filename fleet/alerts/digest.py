"""What is not worth a message of its own, once a day or once a week: docs/alerts.md, "Digests".

`due` and `compose` are pure; `enqueue` puts the message into the outbox.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from django.db.models import Q

from fleet.alerts import notifications, store
from fleet.alerts.channels.registry import READ
from fleet.alerts.notifications import Links
from fleet.models import alerting
from fleet.models import incidents as rows
from fleet.vocabulary.incidents import Cause, CauseKind, Incident, IncidentState, Notice, NoticeKind, Severity

#: Digests are made at this hour, UTC; weekly ones on Mondays.
_HOUR = 8
#: Lines of one list.
_LINES = 20


class Period(StrEnum):
    """How often a channel gets one. Values are in the database; empty there: never."""

    DAILY = "daily"
    WEEKLY = "weekly"

    @property
    def seconds(self) -> float:
        """What it covers."""
        return 86400.0 if self is Period.DAILY else 7 * 86400.0


def slot(now: float) -> float:
    """The moment of the newest digest that should have been made by now."""
    local = datetime.fromtimestamp(now, UTC)
    at = local.replace(hour=_HOUR, minute=0, second=0, microsecond=0)
    return (at if at <= local else at - timedelta(days=1)).timestamp()


def due(last: float | None, now: float) -> tuple[Period, ...]:
    """Which are to be made now; `last`: the slot of the newest one. None made yet: the first comes in its time."""
    newest = slot(now)
    if last is None or newest <= last:
        return ()
    days = range(round((newest - last) / 86400.0))
    mondays = [day for day in days if datetime.fromtimestamp(newest - day * 86400.0, UTC).weekday() == 0]
    return (Period.DAILY, Period.WEEKLY) if mondays else (Period.DAILY,)


def compose(
    cluster: str, period: Period, found: Sequence[Incident], now: float, console: str = ""
) -> dict[str, Any] | None:
    """The message about incidents of a period, as `messages.payload` has it; None when there is nothing to say."""
    began = now - period.seconds
    here = [one for one in found if one.fired_at is not None and (one.resolved_at or now) >= began]
    if not here:
        return None
    quiet = [one for one in here if one.severity is Severity.INFO]
    told = [one for one in here if one.severity > Severity.INFO]
    counted = Counter(one.severity for one in told)
    head = [f"{counted[one]} {one.slug}" for one in (Severity.CRITICAL, Severity.WARNING) if counted[one]]
    parts = [f"incidents: {' and '.join(head)}"] if head else []
    parts += [notifications.headline(one) for one in quiet if one.is_open][:2]
    said = ", ".join(parts) or f"{len(quiet)} that nobody needed to hear of"
    day = datetime.fromtimestamp(now, UTC).date().isoformat()
    blocks = [
        *_block("Never sent by itself", quiet, now),
        *_block("Still open", [one for one in told if one.is_open], now),
        *_block("Over", [one for one in told if not one.is_open], now),
    ]
    link = f"{console}{'' if cluster == 'default' else f'/c/{cluster}'}/incidents/" if console else ""
    blocks += [f"Incidents: {link}"] if link else []
    about = Incident(
        cluster, Cause(CauseKind.FLEET, f"{period.value}-digest-{day}", "digest"), 1, IncidentState.RESOLVED, began
    )  # fmt: skip
    payload = notifications.payload(Notice(NoticeKind.DIGEST, about, now, 1), Links(console))
    return payload | {
        "subject": f"{period.value.upper()} DIGEST {cluster}: {said}",
        "text": "\n".join(blocks) + "\n",
        "links": {"Incidents": link} if link else {},
    }


def _block(title: str, found: Iterable[Incident], now: float) -> list[str]:
    listed = sorted(found, key=lambda one: (-one.severity, -one.peak))
    if not listed:
        return []
    lines = [
        f"- {notifications.headline(one)}: {one.peak} at most, for {notifications.duration_words(one.duration(now))}"
        f" from {notifications.clock(one.opened_at)}{', still so' if one.is_open else ''}"
        for one in listed[:_LINES]
    ]
    more = len(listed) - len(lines)
    return [f"{title}:", *lines, *([f"- and {more} more"] if more > 0 else [])]


def enqueue(clock: alerting.AlertClock, now: float, console: str = "") -> int:
    """Put the digests that are due into the outbox; how many. Call it in the transaction of who looks."""
    periods = due(clock.digest_at, now)
    if clock.digest_at is None or periods:
        alerting.AlertClock.objects.filter(pk=clock.pk).update(digest_at=slot(now))
    cluster, sent = clock.cluster_id, 0
    for period in periods:
        readable = alerting.Channel.objects.filter(digest=period.value, enabled=True, kind__in=READ)
        hearing = alerting.in_cluster(readable, cluster)
        if not hearing:
            continue
        payload = compose(cluster, period, _incidents(cluster, now - period.seconds), now, console)
        if payload is not None:
            sent += _put(hearing, cluster, payload, now)
    return sent


def _incidents(cluster: str, since: float) -> list[Incident]:
    lately = Q(resolved_at=None) | Q(resolved_at__gte=since)
    found = rows.Incident.objects.filter(lately, cluster=cluster, inhibited_by="").exclude(fired_at=None)
    return [store.value_of(row) for row in found[:1000]]


def _put(channels: Iterable[alerting.Channel], cluster: str, payload: Mapping[str, Any], now: float) -> int:
    made = alerting.Delivery.objects.bulk_create(
        [
            alerting.Delivery(
                channel=channel, cluster=cluster, key=payload["key"], kind=NoticeKind.DIGEST.value, payload=payload,
                created_at=now, next_attempt_at=now,
            )
            for channel in channels
        ],
        ignore_conflicts=True,
    )  # fmt: skip
    return len(made)
