"""Daily and weekly digests of incidents. docs/reference/alerts.md, "Digests".

`find_due_periods` and `compose_payload` are pure; `enqueue_digests` adds digests to the outbox.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from django.db.models import Q

from fleet.alerts import notifications, store
from fleet.alerts.channels.registry import KINDS_READ_BY_PEOPLE
from fleet.alerts.notifications import NotificationLinks
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
_CREATION_HOUR = 8
#: Maximum number of incidents per section.
_MAX_SECTION_LINES = 20


class DigestPeriod(StrEnum):
    """Period of the digests of a channel. Values are stored in the database; empty there: no digests."""

    DAILY = "daily"
    WEEKLY = "weekly"

    @property
    def seconds(self) -> float:
        """Seconds that a digest covers."""
        return 86400.0 if self is DigestPeriod.DAILY else 7 * 86400.0


def newest_due_at(now: float) -> float:
    """Return the time at which the newest digest was due."""
    local = datetime.fromtimestamp(now, UTC)
    at = local.replace(hour=_CREATION_HOUR, minute=0, second=0, microsecond=0)
    return (at if at <= local else at - timedelta(days=1)).timestamp()


def find_due_periods(last_due_at: float | None, now: float) -> tuple[DigestPeriod, ...]:
    """Return the digests to create now. `last_due_at`: when the newest digest was due; None: no digest yet."""
    due_at = newest_due_at(now)
    if last_due_at is None or due_at <= last_due_at:
        return ()
    days = range(round((due_at - last_due_at) / 86400.0))
    mondays = [day for day in days if datetime.fromtimestamp(due_at - day * 86400.0, UTC).weekday() == 0]
    return (DigestPeriod.DAILY, DigestPeriod.WEEKLY) if mondays else (DigestPeriod.DAILY,)


def compose_payload(
    cluster: str, period: DigestPeriod, incidents: Sequence[Incident], now: float, console_url: str = ""
) -> dict[str, Any] | None:
    """Return the payload of a digest as `notifications.payload_of` does; None if the period has no incidents."""
    period_started_at = now - period.seconds
    recent_incidents = [
        incident
        for incident in incidents
        if incident.fired_at is not None and (incident.resolved_at or now) >= period_started_at
    ]
    if not recent_incidents:
        return None
    info_incidents = [incident for incident in recent_incidents if incident.severity is Severity.INFO]
    non_info_incidents = [incident for incident in recent_incidents if incident.severity > Severity.INFO]
    severity_counts = Counter(incident.severity for incident in non_info_incidents)
    severity_parts = [
        f"{severity_counts[severity]} {severity.slug}"
        for severity in (Severity.CRITICAL, Severity.WARNING)
        if severity_counts[severity]
    ]
    parts = (
        [f"{' and '.join(severity_parts)} incident{'s' if len(non_info_incidents) != 1 else ''}"]
        if severity_parts
        else []
    )
    parts += [notifications.headline_of(incident) for incident in info_incidents if incident.is_open][:2]
    summary = (
        ", ".join(parts) or f"{len(info_incidents)} info incident{'s' if len(info_incidents) != 1 else ''}"
    )
    day = datetime.fromtimestamp(now, UTC).date().isoformat()
    blocks = [
        *_format_section("Info (sent in digests only)", info_incidents, now),
        *_format_section("Open", [incident for incident in non_info_incidents if incident.is_open], now),
        *_format_section(
            "Resolved", [incident for incident in non_info_incidents if not incident.is_open], now
        ),
    ]
    link = f"{console_url}{'' if cluster == 'default' else f'/c/{cluster}'}/incidents/" if console_url else ""
    blocks += [f"Incidents: {link}"] if link else []
    digest_incident = Incident(
        cluster, Cause(CauseKind.FLEET, f"{period.value}-digest-{day}", "digest"), 1, IncidentState.RESOLVED,
        period_started_at,
    )  # fmt: skip
    payload = notifications.payload_of(
        Notification(NotificationKind.DIGEST, digest_incident, now, 1), NotificationLinks(console_url)
    )
    return payload | {
        "subject": f"{period.value.upper()} DIGEST {cluster}: {summary}",
        "text": "\n".join(blocks) + "\n",
        "links": {"Incidents": link} if link else {},
    }


def _format_section(title: str, incidents: Iterable[Incident], now: float) -> list[str]:
    sorted_incidents = sorted(incidents, key=lambda incident: (-incident.severity, -incident.peak_count))
    if not sorted_incidents:
        return []
    lines = [
        f"- {notifications.headline_of(incident)}: peak {incident.peak_count}, for "
        f"{format_readable(round(incident.duration_seconds(now)))}"
        f" from {notifications.format_utc(incident.opened_at)}{', still open' if incident.is_open else ''}"
        for incident in sorted_incidents[:_MAX_SECTION_LINES]
    ]
    omitted_count = len(sorted_incidents) - len(lines)
    return [f"{title}:", *lines, *([f"- and {omitted_count} more"] if omitted_count > 0 else [])]


def enqueue_digests(clock: alerting.AlertClock, now: float, console_url: str = "") -> int:
    """Add due digests to the outbox and return their number. Call it in the transaction of the evaluation."""
    periods = find_due_periods(clock.digest_at, now)
    if clock.digest_at is None or periods:
        alerting.AlertClock.objects.filter(pk=clock.pk).update(digest_at=newest_due_at(now))
    cluster, enqueued_count = clock.cluster_id, 0
    for period in periods:
        enabled_channels = alerting.Channel.objects.filter(
            digest=period.value, enabled=True, kind__in=KINDS_READ_BY_PEOPLE
        )
        receiving_channels = alerting.filter_applicable_to(enabled_channels, cluster)
        if not receiving_channels:
            continue
        payload = compose_payload(
            cluster, period, _read_recent_incidents(cluster, now - period.seconds), now, console_url
        )
        if payload is not None:
            enqueued_count += _enqueue_deliveries(receiving_channels, cluster, payload, now)
    return enqueued_count


def _read_recent_incidents(cluster: str, since: float) -> list[Incident]:
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
