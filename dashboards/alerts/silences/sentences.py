"""What a silence does, in sentences: pages, dialogs and previews say the same. docs/reference/alerts.md, "Silences"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from dashboards.shared.time_zones import format_moment
from fleet.alerts import store
from fleet.alerts.channels.registry import (
    KINDS_ACCEPTING_ACKNOWLEDGEMENTS,
    KINDS_UPDATING_IN_PLACE,
    REPOST_FUNCTIONS,
)
from fleet.alerts.incident_actions import plan_end_reminder
from fleet.alerts.silences import WARN_BEFORE_SECONDS
from fleet.models.alerting import Channel, Delivery
from fleet.models.incidents import Incident
from fleet.vocabulary.incidents import UPDATE_IN_PLACE_KINDS, IncidentState
from fleet.vocabulary.name_lists import join_names


@dataclass(frozen=True, slots=True)
class Receivers:
    """The notification channels that a silence does not keep quiet."""

    #: Number of incidents that a channel was notified of.
    notified_count: int = 0
    #: Channels that get the notification that an incident is resolved.
    resolved_names: tuple[str, ...] = ()
    #: Channels to which Refloat posts open alerts again and again.
    reposted_names: tuple[str, ...] = ()
    #: Number of notifications that wait in the outbox, without updates in place, by name of their channel.
    queued_counts: tuple[tuple[str, int], ...] = ()
    #: Channels whose message about an incident shows the silence.
    updated_names: tuple[str, ...] = ()
    #: Channels that are told when somebody acknowledges the incident.
    acknowledged_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SilencePeriod:
    """Begin and end of a silence that a sentence describes, and the time at which it does."""

    starts_at: float
    ends_at: float
    now: float

    @property
    def until(self) -> str:
        """The end as text."""
        return format_moment(self.ends_at, self.now)

    @property
    def range_text(self) -> str:
        """The period as text: `until 14:30 UTC`, or `from Sun 29 Nov 02:00 UTC until Sun 29 Nov 04:00 UTC`."""
        if self.starts_at <= self.now:
            return f"until {self.until}"
        return f"from {format_moment(self.starts_at, self.now)} until {self.until}"

    @property
    def reminder_at(self) -> float:
        """When Refloat reminds of the end: claim_ending_silences."""
        return self.ends_at - min(WARN_BEFORE_SECONDS, (self.ends_at - self.starts_at) / 2)


def read_receivers(rows: Collection[Incident]) -> Receivers:
    """Read the channels that notifications about incidents still go to while these are silenced."""
    if not rows:
        return Receivers()
    incident_ids = {row.pk for row in rows}
    notified_ids = {row.pk for row in rows if store.incident_of(row).is_notified}
    deliveries = Delivery.objects.filter(incident__cluster__in={row.cluster_id for row in rows}).exclude(
        incident__state=IncidentState.RESOLVED.value
    )
    columns = (
        deliveries.exclude(sent_at=None)
        .order_by()
        .values_list("incident_id", "channel__name", "channel__kind", "channel__send_resolved")
    )
    channels = {
        (name, kind, sends_resolved)
        for incident_id, name, kind, sends_resolved in columns.distinct()
        if incident_id in notified_ids and name is not None
    }
    queued_channels = [
        (str(name), sends_resolved)
        for incident_id, name, sends_resolved in deliveries.filter(
            sent_at=None, failed_at=None, channel__enabled=True
        )
        .exclude(kind__in=[kind.value for kind in UPDATE_IN_PLACE_KINDS])
        .values_list("incident_id", "channel__name", "channel__send_resolved")
        if incident_id in incident_ids
    ]

    def names_of(kinds: Collection[str]) -> tuple[str, ...]:
        """Return the names of the notified channels of these kinds."""
        return tuple(sorted({name for name, kind, _ in channels if kind in kinds}))

    return Receivers(
        notified_count=len(notified_ids),
        # A channel whose first notification still waits is notified, too: `store.plan_resolved_receivers`.
        resolved_names=tuple(
            sorted(
                {name for name, _, sends_resolved in channels if sends_resolved}
                | {name for name, sends_resolved in queued_channels if sends_resolved and notified_ids}
            )
        ),
        reposted_names=names_of(REPOST_FUNCTIONS),
        updated_names=names_of(KINDS_UPDATING_IN_PLACE),
        acknowledged_names=names_of(KINDS_ACCEPTING_ACKNOWLEDGEMENTS),
        queued_counts=tuple(sorted(Counter(name for name, _ in queued_channels).items())),
    )


def read_reminded_names(row: Incident, reminder_at: float) -> tuple[str, ...]:
    """Return the names of the channels that are reminded of the end of a silence of an incident."""
    channel_ids = plan_end_reminder(row, store.read_routes(row.cluster_id), reminder_at)
    return tuple(sorted(Channel.objects.filter(pk__in=channel_ids).values_list("name", flat=True)))


def describe_incident_silence(
    cause: str,
    period: SilencePeriod,
    receivers: Receivers,
    *,
    reminded_names: Sequence[str] = (),
    is_acknowledged: bool = False,
) -> list[str]:
    """Return what a silence of one incident does. `reminded_names`: channels that are reminded of its end."""
    return [
        f"No new notifications about {cause} {period.range_text}.",
        describe_resolution(receivers),
        *_describe_exceptions(receivers),
        *_describe_reminder(period, reminded_names),
        (
            "If the incident is still firing at the end, "
            f"{_describe_continuation(receivers, is_acknowledged=is_acknowledged)}"
        ),
    ]


def _describe_reminder(period: SilencePeriod, reminded_names: Sequence[str]) -> list[str]:
    if not reminded_names:
        return []
    return [
        (
            f"If the incident is firing at {format_moment(period.reminder_at, period.now)}, a reminder that the "
            f"silence ends is sent to {join_names(reminded_names)}."
        )
    ]


def _describe_continuation(receivers: Receivers, *, is_acknowledged: bool) -> str:
    """Return what is sent after the silence: `plan_notification`, and `escalates_at` for the escalation."""
    if not is_acknowledged:
        return "its notifications continue."
    first = "" if receivers.notified_count else "its first notification is sent. After that, "
    return (
        f"{first}it notifies only of a higher severity than before, of flapping and of its resolution: because it "
        "is acknowledged, it does not repeat notifications, does not report more affected agents and does not escalate."
    )


def describe_silence(
    period: SilencePeriod, receivers: Receivers, *, incident_count: int, is_about_agents: bool
) -> list[str]:
    """Return what a silence by matchers does. `incident_count`: incidents that it matches now."""
    if is_about_agents:
        sentences = [f"Alert rules do not count matching agents {period.range_text}."]
        if incident_count:
            sentences.append(
                "An incident that affects no other agents recovers. "
                + describe_resolution(receivers, incident_count)
            )
        return sentences
    return [
        f"No new notifications about matching incidents {period.range_text}, also not about new ones.",
        *([describe_resolution(receivers, incident_count)] if incident_count else []),
        *_describe_exceptions(receivers),
    ]


def describe_resolution(receivers: Receivers, incident_count: int = 1) -> str:
    """Return whether notifications that silenced incidents are resolved are sent, to whom and why."""
    subject = "it is" if incident_count == 1 else "they are"
    if not receivers.notified_count:
        return f"No notification was sent so far, so none is sent when {subject} resolved."
    if not receivers.resolved_names:
        return f"No notification channel gets the notification that {subject} resolved."
    names = join_names(receivers.resolved_names)
    is_single = len(receivers.resolved_names) == 1
    return (
        f"The notification that {subject} resolved is still sent to {names}, because {names} "
        f"{'was' if is_single else 'were'} notified and may keep an alert open until then."
    )


def describe_queued(receivers: Receivers) -> str:
    """Return how many notifications are sent although the incident is silenced, and to whom; empty: none."""
    total = sum(count for _, count in receivers.queued_counts)
    if not total:
        return ""
    noun = (
        "notification that is already queued is"
        if total == 1
        else "notifications that are already queued are"
    )
    names = [name for name, _ in receivers.queued_counts]
    if len(names) > 1:
        names = [f"{name} ({count})" for name, count in receivers.queued_counts]
    return f"{total} {noun} still sent to {join_names(names)}."


def _describe_exceptions(receivers: Receivers) -> Iterable[str]:
    if receivers.updated_names:
        yield (
            f"The message in {join_names(receivers.updated_names)} is updated in place, without a new message: "
            "silence, recovery and severity."
        )
    if receivers.acknowledged_names:
        yield f"An acknowledgement is still sent to {join_names(receivers.acknowledged_names)}."
    if queued_sentence := describe_queued(receivers):
        yield queued_sentence
    if receivers.reposted_names:
        yield (
            f"{join_names(receivers.reposted_names)} keeps its alert: Refloat posts it every minute until the incident "
            "is resolved."
        )
