"""The channels of a notification: those of the routes, less those that have no use for its kind.

docs/reference/alerts.md, "Notification routes".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fleet.alerts import store
from fleet.alerts.channels.registry import KINDS_KEEPING_ALERTS, KINDS_UPDATING_IN_PLACE
from fleet.alerts.evaluation import EvaluationOutcome
from fleet.alerts.routing.tree import Route, match_routes, plan_receivers
from fleet.models.incidents import Incident as IncidentRow
from fleet.vocabulary.incidents import UPDATE_IN_PLACE_KINDS, Notification, NotificationKind, TimelineKind

#: Kinds that a receiver understands only if it has got an earlier notification of the incident.
_KINDS_ABOUT_EARLIER_ONES = frozenset(
    {NotificationKind.WORSE, NotificationKind.UPDATE, NotificationKind.REPEAT}
)
#: End of the timeline entry of a notification without recipients.
_NO_RECEIVER_SUFFIX = ", but not sent: the route has no channel."
#: The same for an outage that is over, which channels that keep an alert open are not notified of.
_NO_SHORT_OUTAGE_RECEIVER_SUFFIX = (
    ", but not sent: the route has no channel besides those that keep an alert until it is resolved."
)


def plan_notification_receivers(
    notification: Notification, row: IncidentRow, routes: Sequence[Route], now: float
) -> dict[int, tuple[float, str]]:
    """Return the channels of a notification, each with the earliest time and the reason for waiting (empty: none)."""
    receivers = _plan_new_receivers(notification, routes, now)
    if notification.kind is NotificationKind.RESOLVED:
        return store.plan_resolved_receivers(row, receivers, now)
    if notification.kind in UPDATE_IN_PLACE_KINDS:
        return store.plan_update_receivers(row, KINDS_UPDATING_IN_PLACE, receivers, now)
    return receivers


def split_first_receivers(
    kind: NotificationKind, row: IncidentRow, receivers: Mapping[int, tuple[float, str]]
) -> list[tuple[NotificationKind, dict[int, tuple[float, str]]]]:
    """Return the receivers by the kind of notification that they get.

    A channel that was not notified of the incident before, for example because it is new, gets no reminder or change
    of something that it never heard of, but a first notification.
    """
    if kind not in _KINDS_ABOUT_EARLIER_ONES or not receivers:
        return [(kind, dict(receivers))]
    notified_ids = store.read_notified_channel_ids(row)
    first_receivers = {
        channel: schedule for channel, schedule in receivers.items() if channel not in notified_ids
    }
    later_receivers = {
        channel: schedule for channel, schedule in receivers.items() if channel in notified_ids
    }
    parts = [(kind, later_receivers), (NotificationKind.FIRING, first_receivers)]
    return [(part_kind, part) for part_kind, part in parts if part]


def mark_unreceived(
    outcome: EvaluationOutcome,
    cluster: str,
    incident_rows: Mapping[str, IncidentRow],
    routes: Sequence[Route],
    now: float,
) -> None:
    """Mark timeline entries of notifications that no channel receives."""
    resolved_rows = [
        incident_rows[notification.incident.key]
        for notification in outcome.notifications
        if notification.kind is NotificationKind.RESOLVED and notification.incident.key in incident_rows
    ]
    resolved_ids = store.find_incidents_with_resolved_receivers(cluster, resolved_rows)
    suffix_by_key = {}
    for notification in outcome.notifications:
        key = notification.incident.key
        if notification.kind is NotificationKind.RESOLVED:
            has_receiver = key in incident_rows and incident_rows[key].pk in resolved_ids
        else:
            has_receiver = bool(_plan_new_receivers(notification, routes, now))
        if not has_receiver:
            is_short = notification.kind is NotificationKind.SHORT_OUTAGE
            suffix_by_key[key] = _NO_SHORT_OUTAGE_RECEIVER_SUFFIX if is_short else _NO_RECEIVER_SUFFIX
    outcome.timeline_entries[:] = [
        (
            incident,
            replace(entry, text=entry.text.removesuffix(".") + suffix_by_key[incident.key])
            if incident.key in suffix_by_key and entry.kind is TimelineKind.NOTIFICATION
            else entry,
        )
        for incident, entry in outcome.timeline_entries
    ]


def _plan_new_receivers(
    notification: Notification, routes: Sequence[Route], now: float
) -> dict[int, tuple[float, str]]:
    """Return the channels of a notification by the routes, each with time and reason as `plan_receivers` does."""
    incident, kind = notification.incident, notification.kind
    receivers = plan_receivers(match_routes(routes, incident), incident, kind, now)
    if kind is NotificationKind.SHORT_OUTAGE:
        return store.exclude_channels(receivers, KINDS_KEEPING_ALERTS)
    return receivers
