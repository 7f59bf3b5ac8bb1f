"""Repost open alerts every minute to receivers that keep a list of alerts, independently of the outbox.

docs/reference/alerts.md, "Alertmanager". A restarted Alertmanager has an empty list until its sources post again, and
an
incident that is acknowledged, silenced or inhibited has no notification for hours. Reposted are the open incidents
that the channel was notified of; an alert that is not reposted ends by itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import DatabaseError

from fleet import lease
from fleet.alerts import notifications, store
from fleet.alerts.channels import SendError, SendRequest
from fleet.alerts.channels.registry import REPOST_FUNCTIONS
from fleet.models.alerting import Channel, Delivery
from fleet.models.incidents import Incident
from fleet.models.moments import to_moment
from fleet.models.sealed_secrets import UnsealError, unseal
from fleet.vocabulary.incidents import IncidentState, Notification, NotificationKind

logger = logging.getLogger(__name__)

#: Seconds between two reposts of the same alert.
INTERVAL = 60.0
#: Seconds per pass for channels whose last repost failed: each one that hangs delays the others by 10 s.
FAILING_BUDGET_SECONDS = 30.0


@dataclass(slots=True)
class Reposter:
    """Reposts the alerts of the clusters that this process evaluates."""

    #: Holder name of the evaluator's leases in this process.
    holder: str
    clock: Callable[[], float]
    #: Monotonic clock.
    timer: Callable[[], float] = time.monotonic
    #: Channels whose last repost failed, least recently tried first. Each failure is logged once.
    _failing_channels: dict[int, None] = field(default_factory=dict)

    def post_open_alerts(self) -> int:
        """Repost open alerts to every channel that lists alerts; return the accepted number. Raises DatabaseError."""
        clusters = lease.clusters_of(self.holder, lease.ALERTS, to_moment(self.clock()))
        channels = Channel.objects.filter(kind__in=REPOST_FUNCTIONS, enabled=True)
        by_key = {channel.pk: channel for channel in channels}
        failing_channels = [by_key.pop(key) for key in list(self._failing_channels) if key in by_key]
        posted_count = sum(self._post_channel_safely(channel, clusters) for channel in by_key.values())
        started_at = self.timer()
        for channel in failing_channels:
            if self.timer() - started_at >= FAILING_BUDGET_SECONDS:
                break
            posted_count += self._post_channel_safely(channel, clusters)
        return posted_count

    def _post_channel_safely(self, channel: Channel, clusters: Sequence[str]) -> int:
        """Repost to one channel; an unexpected error does not affect the other channels."""
        try:
            return self._post_channel(channel, clusters)
        except DatabaseError:
            raise
        except Exception:
            logger.exception("alertmanager.failed: open alerts of channel %s could not be reposted", channel)
            return 0

    def _post_channel(self, channel: Channel, clusters: Sequence[str]) -> int:
        # A channel of one cluster gets no alerts of other clusters, even if it did before.
        channel_clusters = [cluster for cluster in clusters if channel.cluster in ("", cluster)]
        newest = _newest_payloads(channel, channel_clusters)
        if not newest:
            return 0
        repost = REPOST_FUNCTIONS[channel.kind]
        try:
            channel_values = (channel.config, unseal(channel.secrets), channel.allow_private)
            repost([self._request_of(row, last_payload, *channel_values) for row, last_payload in newest])
            # An incident may have resolved meanwhile, and the repost reopened it after its resolved notification.
            payloads = {row.pk: last_payload for row, last_payload in newest}
            resolved_rows = Incident.objects.filter(pk__in=payloads, state=IncidentState.RESOLVED.value)
            if resolution_requests := [
                self._request_of(row, payloads[row.pk], *channel_values) for row in resolved_rows
            ]:
                repost(resolution_requests)
        except (SendError, UnsealError) as error:
            is_new = channel.pk not in self._failing_channels
            self._failing_channels.pop(channel.pk, None)
            self._failing_channels[channel.pk] = None
            if is_new:
                logger.warning(
                    "alertmanager.unreachable: open alerts of channel %s expire there within 4 min: %s",
                    channel,
                    error,
                )
            return 0
        self._failing_channels.pop(channel.pk, None)
        return len(newest)

    def _request_of(
        self, row: Incident, last_payload: Mapping[str, Any], *channel_values: Any
    ) -> SendRequest:
        """Return the current state with the severity of the last notification, which is a label of the listed alert."""
        now, is_resolved = self.clock(), row.state == IncidentState.RESOLVED.value
        kind = NotificationKind.RESOLVED if is_resolved else NotificationKind.FIRING
        incident = store.incident_of(row)
        notification = Notification(kind, incident, now, incident.notification_count)
        payload = notifications.payload_of(notification, notifications.NotificationLinks())
        severity = last_payload["incident"]["severity"]
        payload |= {"links": last_payload["links"], "incident": payload["incident"] | {"severity": severity}}
        return SendRequest(payload, notification.key, now, *channel_values)


def _newest_payloads(
    channel: Channel, clusters: Sequence[str]
) -> Sequence[tuple[Incident, Mapping[str, Any]]]:
    """Return every open incident that a channel was notified of, with the payload of the newest notification."""
    deliveries = Delivery.objects.filter(channel=channel, incident__cluster__in=clusters).exclude(
        sent_at=None
    )
    deliveries = deliveries.exclude(incident__state=IncidentState.RESOLVED.value)
    newest: dict[int, tuple[Incident, Mapping[str, Any]]] = {}
    for delivery in deliveries.order_by("pk").select_related("incident"):
        assert delivery.incident is not None
        newest[delivery.incident.pk] = (delivery.incident, delivery.payload)
    return list(newest.values())
