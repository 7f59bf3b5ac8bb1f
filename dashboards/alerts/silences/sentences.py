"""What a silence does, in sentences: pages, dialogs and previews say the same. docs/reference/alerts.md, "Silences"."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dashboards.shared.time_zones import format_moment
from fleet.alerts import store
from fleet.alerts.channels.registry import KINDS_UPDATING_IN_PLACE, REPOST_FUNCTIONS
from fleet.alerts.silences import WARN_BEFORE_SECONDS
from fleet.models.alerting import Delivery
from fleet.models.incidents import Incident
from fleet.vocabulary.incidents import IncidentState
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
    #: Notifications that wait in the outbox.
    queued_count: int = 0
    #: Channels whose message about an incident shows the silence.
    updated_names: tuple[str, ...] = ()


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
    queued_ids = deliveries.filter(sent_at=None, failed_at=None).values_list("incident_id", flat=True)
    return Receivers(
        notified_count=len(notified_ids),
        resolved_names=tuple(sorted({name for name, _, sends_resolved in channels if sends_resolved})),
        reposted_names=tuple(sorted({name for name, kind, _ in channels if kind in REPOST_FUNCTIONS})),
        updated_names=tuple(sorted({name for name, kind, _ in channels if kind in KINDS_UPDATING_IN_PLACE})),
        queued_count=sum(incident_id in incident_ids for incident_id in queued_ids),
    )


def describe_incident_silence(
    cause: str, period: SilencePeriod, receivers: Receivers, *, is_acknowledged: bool = False
) -> list[str]:
    """Return what a silence of one incident does."""
    return [
        f"No notifications about {cause} {period.range_text}.",
        describe_resolution(receivers),
        *_describe_exceptions(receivers),
        (
            f"At {format_moment(period.reminder_at, period.now)}, a reminder that the silence ends goes to the "
            "channels that people read. If the incident is still firing at the end, "
            f"{_describe_continuation(receivers, is_acknowledged=is_acknowledged)}"
        ),
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
        f"No notifications about matching incidents {period.range_text}, also not about new ones.",
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


def _describe_exceptions(receivers: Receivers) -> Iterable[str]:
    if receivers.updated_names:
        yield f"The message in {join_names(receivers.updated_names)} is updated to show the silence."
    if receivers.queued_count:
        is_single = receivers.queued_count == 1
        noun = (
            "notification that is already queued is"
            if is_single
            else "notifications that are already queued are"
        )
        yield f"{receivers.queued_count} {noun} still sent."
    if receivers.reposted_names:
        yield (
            f"{join_names(receivers.reposted_names)} keeps its alert: Refloat posts it every minute until the incident "
            "is resolved."
        )
