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
REPOST_INTERVAL_SECONDS = 60.0
#: Seconds per pass for channels whose last repost failed: each one that hangs delays the others by 10 s.
FAILING_BUDGET_SECONDS = 30.0


@dataclass(slots=True)
class Reposter:
    """Reposts the alerts of the clusters that this process evaluates."""

    #: Holder name of the evaluator's leases in this process.
    holder: str
    clock: Callable[[], float]
    monotonic_clock: Callable[[], float] = time.monotonic
    #: Channels whose last repost failed, least recently tried first. Each failure is logged once.
    _failing_channel_ids: dict[int, None] = field(default_factory=dict)

    def repost_open_alerts(self) -> int:
        """Repost open alerts to every channel that lists alerts; return the accepted number. Raises DatabaseError."""
        clusters = lease.clusters_of(self.holder, lease.ALERTS, to_moment(self.clock()))
        channels = Channel.objects.filter(kind__in=REPOST_FUNCTIONS, enabled=True)
        channel_by_id = {channel.pk: channel for channel in channels}
        failing_channels = [
            channel_by_id.pop(channel_id)
            for channel_id in list(self._failing_channel_ids)
            if channel_id in channel_by_id
        ]
        reposted_count = sum(
            self._repost_to_channel_safely(channel, clusters) for channel in channel_by_id.values()
        )
        started_at = self.monotonic_clock()
        for channel in failing_channels:
            if self.monotonic_clock() - started_at >= FAILING_BUDGET_SECONDS:
                break
            reposted_count += self._repost_to_channel_safely(channel, clusters)
        return reposted_count

    def _repost_to_channel_safely(self, channel: Channel, clusters: Sequence[str]) -> int:
        """Repost to one channel; an unexpected error does not affect the other channels."""
        try:
            return self._repost_to_channel(channel, clusters)
        except DatabaseError:
            raise
        except Exception:
            logger.exception("alertmanager.failed: open alerts of channel %s could not be reposted", channel)
            return 0

    def _repost_to_channel(self, channel: Channel, clusters: Sequence[str]) -> int:
        # A channel of one cluster gets no alerts of other clusters, even if it did before.
        channel_clusters = [cluster for cluster in clusters if channel.cluster in ("", cluster)]
        newest_payloads = _read_newest_payloads(channel, channel_clusters)
        if not newest_payloads:
            return 0
        repost = REPOST_FUNCTIONS[channel.kind]
        try:
            channel_settings = (channel.config, unseal(channel.secrets), channel.allow_private)
            repost(
                [
                    self._request_of(row, newest_payload, *channel_settings)
                    for row, newest_payload in newest_payloads
                ]
            )
            # An incident may have resolved meanwhile, and the repost reopened it after its resolved notification.
            payload_by_id = {row.pk: newest_payload for row, newest_payload in newest_payloads}
            resolved_rows = Incident.objects.filter(pk__in=payload_by_id, state=IncidentState.RESOLVED.value)
            if resolution_requests := [
                self._request_of(row, payload_by_id[row.pk], *channel_settings) for row in resolved_rows
            ]:
                repost(resolution_requests)
        except (SendError, UnsealError) as error:
            is_new = channel.pk not in self._failing_channel_ids
            self._failing_channel_ids.pop(channel.pk, None)
            self._failing_channel_ids[channel.pk] = None
            if is_new:
                logger.warning(
                    "alertmanager.unreachable: open alerts of channel %s expire there within 4 min: %s",
                    channel,
                    error,
                )
            return 0
        self._failing_channel_ids.pop(channel.pk, None)
        return len(newest_payloads)

    def _request_of(
        self, row: Incident, newest_payload: Mapping[str, Any], *channel_settings: Any
    ) -> SendRequest:
        """Return the current state with the severity of the last notification, which is a label of the listed alert."""
        now, is_resolved = self.clock(), row.state == IncidentState.RESOLVED.value
        kind = NotificationKind.RESOLVED if is_resolved else NotificationKind.FIRING
        incident = store.incident_of(row)
        notification = Notification(kind, incident, now, incident.notification_count)
        payload = notifications.payload_of(notification, notifications.NotificationLinks())
        severity = newest_payload["incident"]["severity"]
        payload |= {
            "links": newest_payload["links"],
            "incident": payload["incident"] | {"severity": severity},
        }
        return SendRequest(payload, notification.key, now, *channel_settings)


def _read_newest_payloads(
    channel: Channel, clusters: Sequence[str]
) -> Sequence[tuple[Incident, Mapping[str, Any]]]:
    """Return every open incident that a channel was notified of, with the payload of the newest notification."""
    deliveries = Delivery.objects.filter(channel=channel, incident__cluster__in=clusters).exclude(
        sent_at=None
    )
    deliveries = deliveries.exclude(incident__state=IncidentState.RESOLVED.value)
    newest_by_id: dict[int, tuple[Incident, Mapping[str, Any]]] = {}
    for delivery in deliveries.order_by("pk").select_related("incident"):
        assert delivery.incident is not None
        newest_by_id[delivery.incident.pk] = (delivery.incident, delivery.payload)
    return list(newest_by_id.values())
