"""Daily and weekly digests of incidents. docs/reference/alerts.md, "Digests".

`due_periods` and `compose` are pure; `enqueue_digests` adds digests to the outbox.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from django.db.models import Q

from fleet.alerts import notifications, store
from fleet.alerts.channels.registry import READABLE_KINDS
from fleet.alerts.notifications import Links
from fleet.models import alerting
from fleet.models import incidents as incident_models
from fleet.protocol.durations import format_readable
from fleet.vocabulary.incidents import (
    Cause,
    CauseKind,
    Incident,
    IncidentState,
    Notification,
    NotificationKind,
    Severity,
)

#: Hour of the day, UTC, at which digests are created; weekly ones on Mondays.
_HOUR = 8
#: Maximum number of incidents per section.
_LINES = 20


class DigestPeriod(StrEnum):
    """Period of the digests of a channel. Values are stored in the database; empty there: no digests."""

    DAILY = "daily"
    WEEKLY = "weekly"

    @property
    def seconds(self) -> float:
        """Seconds that a digest covers."""
        return 86400.0 if self is DigestPeriod.DAILY else 7 * 86400.0


def newest_slot_at(now: float) -> float:
    """Return the time at which the newest digest was due."""
    local = datetime.fromtimestamp(now, UTC)
    at = local.replace(hour=_HOUR, minute=0, second=0, microsecond=0)
    return (at if at <= local else at - timedelta(days=1)).timestamp()


def due_periods(last_slot: float | None, now: float) -> tuple[DigestPeriod, ...]:
    """Return the digests to create now. `last_slot`: slot of the newest digest; None: no digest yet, none is due."""
    newest = newest_slot_at(now)
    if last_slot is None or newest <= last_slot:
        return ()
    days = range(round((newest - last_slot) / 86400.0))
    mondays = [day for day in days if datetime.fromtimestamp(newest - day * 86400.0, UTC).weekday() == 0]
    return (DigestPeriod.DAILY, DigestPeriod.WEEKLY) if mondays else (DigestPeriod.DAILY,)


def compose(
    cluster: str, period: DigestPeriod, incidents: Sequence[Incident], now: float, console: str = ""
) -> dict[str, Any] | None:
    """Return the payload of a digest as `notifications.payload` does; None if the period has no incidents."""
    period_start = now - period.seconds
    recent_incidents = [
        incident
        for incident in incidents
        if incident.fired_at is not None and (incident.resolved_at or now) >= period_start
    ]
    if not recent_incidents:
        return None
    info_incidents = [incident for incident in recent_incidents if incident.severity is Severity.INFO]
    alerted_incidents = [incident for incident in recent_incidents if incident.severity > Severity.INFO]
    severity_counts = Counter(incident.severity for incident in alerted_incidents)
    head = [
        f"{severity_counts[severity]} {severity.slug}"
        for severity in (Severity.CRITICAL, Severity.WARNING)
        if severity_counts[severity]
    ]
    parts = [f"{' and '.join(head)} incident{'s' if len(alerted_incidents) != 1 else ''}"] if head else []
    parts += [notifications.headline(incident) for incident in info_incidents if incident.is_open][:2]
    summary = (
        ", ".join(parts) or f"{len(info_incidents)} info incident{'s' if len(info_incidents) != 1 else ''}"
    )
    day = datetime.fromtimestamp(now, UTC).date().isoformat()
    blocks = [
        *_section("Info (sent in digests only)", info_incidents, now),
        *_section("Open", [incident for incident in alerted_incidents if incident.is_open], now),
        *_section("Resolved", [incident for incident in alerted_incidents if not incident.is_open], now),
    ]
    link = f"{console}{'' if cluster == 'default' else f'/c/{cluster}'}/incidents/" if console else ""
    blocks += [f"Incidents: {link}"] if link else []
    digest_incident = Incident(
        cluster, Cause(CauseKind.FLEET, f"{period.value}-digest-{day}", "digest"), 1, IncidentState.RESOLVED,
        period_start,
    )  # fmt: skip
    payload = notifications.payload(
        Notification(NotificationKind.DIGEST, digest_incident, now, 1), Links(console)
    )
    return payload | {
        "subject": f"{period.value.upper()} DIGEST {cluster}: {summary}",
        "text": "\n".join(blocks) + "\n",
        "links": {"Incidents": link} if link else {},
    }


def _section(title: str, incidents: Iterable[Incident], now: float) -> list[str]:
    sorted_incidents = sorted(incidents, key=lambda incident: (-incident.severity, -incident.peak_count))
    if not sorted_incidents:
        return []
    lines = [
        f"- {notifications.headline(incident)}: peak {incident.peak_count}, for "
        f"{format_readable(round(incident.duration(now)))}"
        f" from {notifications.format_utc(incident.opened_at)}{', still open' if incident.is_open else ''}"
        for incident in sorted_incidents[:_LINES]
    ]
    more = len(sorted_incidents) - len(lines)
    return [f"{title}:", *lines, *([f"- and {more} more"] if more > 0 else [])]


def enqueue_digests(clock: alerting.AlertClock, now: float, console: str = "") -> int:
    """Add due digests to the outbox and return their number. Call it in the transaction of the evaluation."""
    periods = due_periods(clock.digest_at, now)
    if clock.digest_at is None or periods:
        alerting.AlertClock.objects.filter(pk=clock.pk).update(digest_at=newest_slot_at(now))
    cluster, enqueued_count = clock.cluster_id, 0
    for period in periods:
        readable_channels = alerting.Channel.objects.filter(
            digest=period.value, enabled=True, kind__in=READABLE_KINDS
        )
        receiving_channels = alerting.filter_applicable_to(readable_channels, cluster)
        if not receiving_channels:
            continue
        payload = compose(cluster, period, _read_incidents(cluster, now - period.seconds), now, console)
        if payload is not None:
            enqueued_count += _enqueue_deliveries(receiving_channels, cluster, payload, now)
    return enqueued_count


def _read_incidents(cluster: str, since: float) -> list[Incident]:
    is_recent = Q(resolved_at=None) | Q(resolved_at__gte=since)
    incident_rows = incident_models.Incident.objects.filter(
        is_recent, cluster=cluster, inhibited_by=""
    ).exclude(fired_at=None)
    return [store.incident_of(row) for row in incident_rows[:1000]]


def _enqueue_deliveries(
    channels: Iterable[alerting.Channel], cluster: str, payload: Mapping[str, Any], now: float
) -> int:
    deliveries = alerting.Delivery.objects.bulk_create(
        [
            alerting.Delivery(
                channel=channel, cluster=cluster, key=payload["key"], kind=NotificationKind.DIGEST.value,
                payload=payload, created_at=now, next_attempt_at=now,
            )
            for channel in channels
        ],
        ignore_conflicts=True,
    )  # fmt: skip
    return len(deliveries)
