"""Channels that are failing: a notice for Fleet now, incidents and the card of the channel, and names of recipients.

docs/reference/alerts.md, "Delivery".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Count, Q

from fleet.alerts.notifications import format_utc
from fleet.models.access import audit_log_clusters_of, has_cluster_limit
from fleet.models.alerting import Channel, filter_applicable_to


@dataclass(frozen=True, slots=True)
class FailingChannel:
    """An enabled channel whose newest attempt failed."""

    number: int
    #: `Channel Slack has been failing since 12:47 UTC: 17 notifications are waiting.`
    notice: str


def read_failing_channels(cluster: str, now: float, user: User) -> list[FailingChannel]:
    """Return the failing channels of a cluster, with the number of unsent notifications that the user may see."""
    clusters = audit_log_clusters_of(cluster, is_limited_user=has_cluster_limit(user))
    rows = filter_applicable_to(Channel.objects.filter(enabled=True), cluster).exclude(failing_since=None)
    return [
        FailingChannel(row.pk, describe_failing(row.name, row.failing_since, row.unsent_count, now))
        for row in rows.annotate(unsent_count=_count_unsent(clusters))
        if row.failing_since is not None
    ]


def describe_failing(name: str, failing_since: float, unsent_count: int, now: float) -> str:
    """Return since when a channel has been failing, and how many notifications wait for it. Pure."""
    clause = f"Channel {name} has been failing since {_format_since(failing_since, now)}"
    if not unsent_count:
        return f"{clause}."
    notifications = "1 notification is" if unsent_count == 1 else f"{unsent_count} notifications are"
    return f"{clause}: {notifications} waiting."


def describe_recipients(channels: Iterable[tuple[str, float | None]], now: float) -> str:
    """Return the recipients of a notification: `Slack (failing since 12:47 UTC), Webhook`. Pure.

    `channels`: the name of each, and since when it has been failing; None: it is not.
    """
    return ", ".join(
        name if failing_since is None else f"{name} (failing since {_format_since(failing_since, now)})"
        for name, failing_since in channels
    )


def _count_unsent(clusters: Collection[str]) -> Count:
    is_unsent = Q(deliveries__sent_at=None, deliveries__failed_at=None)
    return Count("deliveries", filter=is_unsent & Q(deliveries__cluster__in=clusters))


def _format_since(at: float, now: float) -> str:
    """Return a time in UTC to the minute, with its date unless it is today: `12:47 UTC`."""
    text, today = format_utc(at)[:16], format_utc(now)[:10]
    return f"{text.removeprefix(today).strip()} UTC"
