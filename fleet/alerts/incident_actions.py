"""Actions of people on incidents: acknowledge, note, silence, test a channel. Pages and the API use these.

Actions on silences and channels are in the audit log; those on an incident are in its timeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from fleet.alerts import notifications, outbox, store
from fleet.alerts.cause_labels import format_named_matchers, name_causes, read_cause_names
from fleet.alerts.channels.registry import (
    KINDS_ACCEPTING_ACKNOWLEDGEMENTS,
    KINDS_READ_BY_PEOPLE,
    KINDS_UPDATING_IN_PLACE,
)
from fleet.alerts.matchers import CONFIRMATION_WORD, Matcher, matches_everything, parse_matchers
from fleet.alerts.notifications import NotificationLinks
from fleet.alerts.routing.tree import Route, match_routes, plan_receivers
from fleet.alerts.silences import find_silence
from fleet.audit import Attempt, RequestActor, record_outcome
from fleet.models.alerting import Channel, Delivery, Silence
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.incidents import Incident, IncidentEvent
from fleet.models.moments import to_seconds
from fleet.protocol.durations import format_readable
from fleet.vocabulary.actions import AuditAction, RefusalError
from fleet.vocabulary.incidents import (
    OPEN_STATES,
    IncidentState,
    Notification,
    NotificationKind,
    TimelineKind,
)

#: Longest silence, seconds: silences must not switch alerts off for good.
MAX_SILENCE_SECONDS = 30 * 86400.0
#: How far in the future a silence may start, and how far in the past a typed start counts as now, seconds.
_MAX_START_DELAY_SECONDS, _START_TOLERANCE_SECONDS = 90 * 86400.0, 60.0

#: Minimum length of the reason of a silence or a maintenance window, characters.
MIN_REASON_LENGTH = 3
_CONFIRMATION_HINT = f"Enter the word “{CONFIRMATION_WORD}” as confirmation"


class ActionError(RefusalError, ValueError):
    """The action is not possible; the message says why."""


class AlreadySilencedError(ActionError):
    """A silence with the same matchers overlaps the new one; `duplicate` is its row."""

    def __init__(self, message: str, duplicate: Silence) -> None:
        super().__init__(message)
        self.duplicate = duplicate


class SilenceEndedError(ActionError):
    """The silence has ended, so it cannot be extended."""


class SilenceChangedError(ActionError):
    """Somebody extended or ended the silence since the user read it."""


def acknowledge(row: Incident, actor_name: str, now: float, console_url: str = "") -> bool:
    """Acknowledge an incident. Return False if it was acknowledged or resolved before."""
    acknowledgeable_rows = Incident.objects.filter(pk=row.pk, acknowledged_at=None).exclude(
        state=IncidentState.RESOLVED.value
    )
    if not acknowledgeable_rows.update(acknowledged_at=now, acknowledged_by=actor_name[:200]):
        return False
    row.refresh_from_db()
    add_timeline_entry(
        row, TimelineKind.ACKNOWLEDGED, actor_name, f"{actor_name} acknowledged the incident.", now
    )
    incident = store.incident_of(row)
    notification = Notification(NotificationKind.ACKNOWLEDGED, incident, now, incident.notification_count)
    deliveries = Delivery.objects.filter(
        incident=row,
        channel__enabled=True,
        channel__kind__in=KINDS_ACCEPTING_ACKNOWLEDGEMENTS,
        channel__cluster__in=("", row.cluster_id),
    )
    planned_receivers = plan_receivers(
        match_routes(store.read_routes(row.cluster_id), incident), incident, notification.kind, now
    )
    # Whoever was notified, whatever the routes are now: the severity may have dropped, and with it the route.
    notified_receivers = {
        channel: planned_receivers.get(channel, (now, ""))
        for channel in deliveries.order_by().values_list("channel", flat=True).distinct()
    }
    notified_receivers |= store.plan_update_receivers(row, KINDS_UPDATING_IN_PLACE, planned_receivers, now)
    payload = _payload_of_action(notification, row, console_url)
    store.enqueue_deliveries(row, notification.kind, notification.key, payload, notified_receivers, now)
    return True


def unacknowledge(row: Incident, actor_name: str, now: float, console_url: str = "") -> None:
    """Remove the acknowledgement of an incident, which then repeats and escalates again."""
    if (
        not Incident.objects.filter(pk=row.pk)
        .exclude(acknowledged_at=None)
        .update(acknowledged_at=None, acknowledged_by="")
    ):
        return
    row.refresh_from_db()
    add_timeline_entry(
        row, TimelineKind.UNACKNOWLEDGED, actor_name, f"{actor_name} removed the acknowledgement.", now
    )
    if row.state == IncidentState.RESOLVED.value:
        return
    incident = store.incident_of(row)
    notification = Notification(NotificationKind.UNACKNOWLEDGED, incident, now, incident.notification_count)
    planned_receivers = plan_receivers(
        match_routes(store.read_routes(row.cluster_id), incident), incident, notification.kind, now
    )
    receivers = store.plan_update_receivers(row, KINDS_UPDATING_IN_PLACE, planned_receivers, now)
    payload = _payload_of_action(notification, row, console_url)
    store.enqueue_deliveries(row, notification.kind, notification.key, payload, receivers, now)


def _payload_of_action(notification: Notification, row: Incident, console_url: str) -> dict[str, Any]:
    """Return the payload of a notification, with the runbook and the actions of the newest one of its incident.

    Only an evaluation can compute them.
    """
    payload = notifications.payload_of(notification, NotificationLinks(console_url.rstrip("/"), "", row.pk))
    newest_payload = store.read_newest_payload(row) or {}
    return payload | {
        "actions": newest_payload.get("actions", []),
        "links": dict(newest_payload.get("links", {})) | payload["links"],
    }


def add_note(row: Incident, actor_name: str, text: str, now: float) -> None:
    """Add a note to the timeline of an incident. Raises ActionError."""
    text = text.replace("\0", "").strip()
    if not text:
        raise ActionError("the note is empty")
    add_timeline_entry(row, TimelineKind.NOTE, actor_name, text[:5000], now)


def add_timeline_entry(row: Incident, kind: TimelineKind, actor_name: str, text: str, now: float) -> None:
    """Add an entry to the timeline of an incident."""
    IncidentEvent.objects.create(
        incident=row, at=now, kind=kind.value, actor_name=actor_name[:200], text=text
    )


def create_silence(
    matchers: str,
    reason: str,
    creator: str,
    starts_at: float,
    ends_at: float,
    actor: RequestActor,
    *,
    cluster: str = "",
    typed_word: str = "",
    now: float | None = None,
) -> Silence:
    """Create a silence. Raises ActionError, AlreadySilencedError, MatcherError.

    Matchers that match everything require `typed_word`. `creator` is always the signed-in user. `now` None: the silence
    starts at once.
    """
    parsed_matchers = parse_matchers(matchers)
    row = Silence(
        cluster=cluster,
        matchers=matchers.strip(),
        reason=reason.strip()[:500],
        creator=creator[:200],
        starts_at=starts_at,
        ends_at=ends_at,
    )
    with record_outcome(_create_silence_attempt(AuditAction.SILENCE_CREATE, row, actor)):
        check_reason(row.reason)
        if not 0 < ends_at - starts_at <= MAX_SILENCE_SECONDS:
            raise ActionError("a silence must end after it starts and last 30 days at most")
        check_confirmation(parsed_matchers, typed_word)
        if (duplicate := _find_duplicate_silence(parsed_matchers, cluster, starts_at, ends_at)) is not None:
            until = notifications.format_utc(duplicate.ends_at)
            raise AlreadySilencedError(
                f"silence {duplicate.pk} by {duplicate.creator} covers this until {until}. Extend that silence instead",
                duplicate,
            )
        row.save(force_insert=True)
        if now is None or starts_at <= now:
            duration = format_readable(round(ends_at - starts_at))
            action_clause = f"silenced the incident for {duration}: {row.reason}"
            _add_silence_entries(row, TimelineKind.SILENCED, action_clause, starts_at, actor)
    return row


def _find_duplicate_silence(
    matchers: Sequence[Matcher], cluster: str, starts_at: float, ends_at: float
) -> Silence | None:
    """Return a silence of the same owner with the same matchers that overlaps the time range; None if there is none."""
    rows = Silence.objects.filter(cluster=cluster, starts_at__lt=ends_at, ends_at__gt=starts_at)
    matchers_by_row = [(row, parse_matchers(row.matchers)) for row in rows]
    # The key of a cause and its name are the same condition, and so are alternatives in another order.
    cause_names = read_cause_names(
        [matchers, *(row_matchers for _, row_matchers in matchers_by_row)], cluster
    )
    conditions = _conditions_of(name_causes(matchers, cause_names))
    return next(
        (
            row
            for row, row_matchers in matchers_by_row
            if _conditions_of(name_causes(row_matchers, cause_names)) == conditions
        ),
        None,
    )


def _conditions_of(matchers: Iterable[Matcher]) -> set[tuple[str, bool, frozenset[str]]]:
    return {(matcher.field, matcher.is_negated, frozenset(matcher.patterns)) for matcher in matchers}


def check_reason(reason: str) -> None:
    """Raise ActionError unless a reason is long enough."""
    if len(reason.strip()) < MIN_REASON_LENGTH:
        raise ActionError(f"enter a reason of at least {MIN_REASON_LENGTH} characters")


def check_confirmation(matchers: Sequence[Matcher], typed_word: str) -> None:
    """Raise ActionError if matchers match everything and the confirmation was not typed."""
    if not matches_everything(matchers) or typed_word.strip().lower() == CONFIRMATION_WORD:
        return
    raise ActionError(
        f"these matchers silence everything or almost everything. {_CONFIRMATION_HINT}"
        if matchers
        else "without matchers, everything is silenced. Give at least one matcher, such as cause=proxy-1. "
        f"{_CONFIRMATION_HINT}"
    )


def starts_at_of(requested_start: datetime | None, now: float) -> float:
    """Return the start of a new silence; `requested_start` None: now. Raises ActionError."""
    at = now if requested_start is None else to_seconds(requested_start)
    if not -_START_TOLERANCE_SECONDS <= at - now <= _MAX_START_DELAY_SECONDS:
        raise ActionError("a silence must start now or within the next 90 days")
    return at


def extend_silence(row: Silence, seconds: float, now: float, actor: RequestActor) -> None:
    """Move the end of a silence by a number of seconds. Raises ActionError.

    `row.ends_at` is the end that the user has seen: SilenceChangedError if it is another one now.
    """
    ends_at = row.ends_at + seconds
    with record_outcome(_create_silence_attempt(AuditAction.SILENCE_EXTEND, row, actor)) as attempt:
        attempt.before, attempt.after = _audit_end_of(row.ends_at), _audit_end_of(ends_at)
        current_end = Silence.objects.filter(pk=row.pk).values_list("ends_at", flat=True).first()
        if current_end is None or current_end <= now:
            raise SilenceEndedError(
                f"this silence ended at {notifications.format_utc(current_end or now)}. Create a new silence instead"
            )
        if seconds <= 0:
            raise ActionError(f"this silence lasts until {notifications.format_utc(row.ends_at)} already")
        if ends_at - now > MAX_SILENCE_SECONDS:
            raise ActionError("a silence must end within the next 30 days")
        if not Silence.objects.filter(pk=row.pk, ends_at=row.ends_at).update(
            ends_at=ends_at, expiry_notified=False
        ):
            raise SilenceChangedError(
                "out of date: somebody changed this silence, which now ends at "
                f"{notifications.format_utc(current_end)}. Check the new end, then extend again"
            )
        action_clause = f"extended the silence until {notifications.format_utc(ends_at)}."
        _add_silence_entries(row, TimelineKind.SILENCE_EXTENDED, action_clause, now, actor)


def end_silence(row: Silence, now: float, actor: RequestActor) -> bool:
    """End a silence now, or drop it if it has not started. Its row is kept. Return False if it had ended before."""
    with record_outcome(_create_silence_attempt(AuditAction.SILENCE_END, row, actor)):
        has_ended = Silence.objects.filter(pk=row.pk, ends_at__gt=now).update(
            # Nobody needs a reminder of an end that somebody chose.
            ends_at=now,
            expiry_notified=True,
        )
        if has_ended:
            _add_silence_entries(row, TimelineKind.SILENCE_ENDED, "ended the silence.", now, actor)
        return bool(has_ended)


def _add_silence_entries(
    row: Silence, kind: TimelineKind, action_clause: str, now: float, actor: RequestActor
) -> None:
    """Add what somebody did with a silence to the timelines of the open incidents that it matches."""
    open_rows = Incident.objects.filter(state__in=[state.value for state in OPEN_STATES])
    silence = store.silence_of(row)
    for incident_row in open_rows.filter(cluster=row.cluster) if row.cluster else open_rows:
        if find_silence(store.incident_of(incident_row), [silence]) is not None:
            name = actor.identity.name
            add_timeline_entry(incident_row, kind, name, f"{name} {action_clause}", now)


def _audit_end_of(ends_at: float) -> dict[str, str]:
    return {"ends_at": notifications.format_utc(ends_at)}


def _create_silence_attempt(action: AuditAction, row: Silence, actor: RequestActor) -> Attempt:
    subject = format_named_matchers(parse_matchers(row.matchers), row.cluster)
    return actor.create_attempt(action, row.cluster, subject, reason=row.reason)


def notify_silence_end(row: Silence, now: float, console_url: str = "") -> int:
    """Notify the receivers of silenced incidents that the silence ends soon. Return the number of incidents.

    Only channels that people read are notified; other receivers would open a new alert.
    """
    incident_rows = Incident.objects.filter(
        silenced_by=store.silence_of(row).name, state=IncidentState.FIRING.value
    )
    silenced_rows = list(incident_rows.filter(cluster=row.cluster) if row.cluster else incident_rows)
    routes_by_cluster = {
        cluster: store.read_routes(cluster)
        for cluster in {incident_row.cluster_id for incident_row in silenced_rows}
    }
    incident_count = 0
    for incident_row in silenced_rows:
        incident = store.incident_of(incident_row)
        notification = Notification(NotificationKind.SILENCE_ENDS, incident, now, incident.notification_count)
        reminder_receivers = plan_end_reminder(incident_row, routes_by_cluster[incident_row.cluster_id], now)
        key = f"{incident.id}/silence-{row.pk}-{int(row.ends_at)}"
        payload = _payload_of_action(notification, incident_row, console_url) | {"key": key}
        with transaction.atomic():
            store.enqueue_deliveries(incident_row, notification.kind, key, payload, reminder_receivers, now)
            text = f"Silenced until {notifications.format_utc(row.ends_at)}: {row.reason}"
            add_timeline_entry(incident_row, TimelineKind.SILENCE_ENDS, "", text, now)
        incident_count += 1
    return incident_count


def plan_end_reminder(row: Incident, routes: Sequence[Route], now: float) -> dict[int, tuple[float, str]]:
    """Return the channels of the reminder that a silence of an incident ends, scheduled as by `plan_receivers`."""
    incident = store.incident_of(row)
    channels_read_by_people = set(
        Channel.objects.filter(kind__in=KINDS_READ_BY_PEOPLE, enabled=True).values_list("pk", flat=True)
    )
    planned_receivers = plan_receivers(
        match_routes(routes, incident), incident, NotificationKind.SILENCE_ENDS, now
    )
    return {
        channel: schedule
        for channel, schedule in planned_receivers.items()
        if channel in channels_read_by_people
    }


def enqueue_test_notification(
    channel: Channel, now: float, actor: RequestActor, console_url: str = ""
) -> Delivery:
    """Queue a test notification for a channel, with a link to the channel, and return its delivery."""
    base_url = console_url.rstrip("/")
    prefix = notifications.cluster_base_url(base_url, channel.cluster or DEFAULT_CLUSTER)
    links = NotificationLinks(
        channel_url=f"{prefix}/alerts/channels/#channel-{channel.pk}" if base_url else ""
    )
    notification = notifications.make_test_notification(channel.name, now)
    with record_outcome(actor.create_attempt(AuditAction.CHANNEL_TEST, channel.cluster, channel.name)):
        return Delivery.objects.create(
            channel=channel,
            cluster=channel.cluster,
            key=notification.key,
            kind=notification.kind.value,
            payload=notifications.payload_of(notification, links),
            created_at=now,
            next_attempt_at=now,
        )


def delete_channel(row: Channel, now: float, actor: RequestActor) -> int:
    """Delete a channel and return how many notifications it leaves unsent. The delivery log keeps its rows."""
    attempt = actor.create_attempt(AuditAction.CHANNEL_DELETE, row.cluster, row.name)
    with record_outcome(attempt), transaction.atomic():
        # Before its deliveries, as the senders do.
        outbox.lock_channel(row)
        deliveries = Delivery.objects.filter(channel=row)
        unsent_count = deliveries.filter(sent_at=None, failed_at=None).update(
            failed_at=now,
            delay_reason="",
            last_error="The channel was deleted before this notification was sent.",
        )
        deliveries.update(channel_name=row.name)
        row.delete()
    return unsent_count


def retry_delivery(row: Delivery, now: float, actor: RequestActor) -> None:
    """Retry a notification that failed or is waiting."""
    with record_outcome(actor.create_attempt(AuditAction.DELIVERY_RETRY, row.cluster, row.key)):
        outbox.select_open_deliveries().filter(pk=row.pk).update(next_attempt_at=now, delay_reason="")
        Delivery.objects.filter(pk=row.pk).exclude(failed_at=None).update(
            failed_at=None, attempts=0, created_at=now, next_attempt_at=now, delay_reason=""
        )
