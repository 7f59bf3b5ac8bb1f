"""What people do about incidents: acknowledge, note, silence, try a channel out. Pages and API call these alike.

Silences and channels write their rows in the log; incidents have a timeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from fleet.alerts import notifications, outbox, store
from fleet.alerts.channels.registry import ACKNOWLEDGED, READ
from fleet.alerts.matchers import EVERYTHING, Matcher, is_everything, parse
from fleet.alerts.notifications import Links
from fleet.alerts.routes import leaves, receivers
from fleet.audit import Attempt, By, attempted
from fleet.models.alerting import Channel, Delivery, Silence
from fleet.models.incidents import Incident, IncidentEvent
from fleet.models.moments import to_seconds
from fleet.vocabulary.actions import AuditAction, Refusal
from fleet.vocabulary.incidents import IncidentState, Notice, NoticeKind, TimelineKind

#: Silences are no way to switch alerts off.
LONGEST_SILENCE = 30 * 86400.0
#: A silence begins so much later at most; and a moment was now when somebody began to type it, seconds.
_SOONEST, _TYPED_FOR = 90 * 86400.0, 60.0


class ActError(Refusal, ValueError):
    """It cannot be done; the sentence says why."""


class AlreadySilencedError(ActError):
    """A silence with the same matchers covers some of that time."""


def acknowledge(row: Incident, who: str, now: float, console_url: str = "") -> bool:
    """Say that somebody looks after it; whether nobody had said so before."""
    open_ones = Incident.objects.filter(pk=row.pk, acked_at=None).exclude(state=IncidentState.RESOLVED.value)
    if not open_ones.update(acked_at=now, acked_by=who[:200]):
        return False
    row.refresh_from_db()
    tell(row, TimelineKind.ACKNOWLEDGED, who, f"{who} looks after it.", now)
    incident = store.value_of(row)
    notice = Notice(NoticeKind.ACKNOWLEDGED, incident, now, incident.notices)
    sent = Delivery.objects.filter(incident=row, channel__kind__in=ACKNOWLEDGED)
    told = set(sent.values_list("channel", flat=True))
    who_hears = receivers(leaves(store.routes(row.cluster_id), incident), incident, notice.kind, now)
    payload = notifications.payload(notice, Links(console_url, "", row.pk))
    chosen = {channel: when for channel, when in who_hears.items() if channel in told}
    store.enqueue(row, notice.kind, f"{incident.id}/acknowledged-{int(now)}", payload, chosen, now)
    return True


def let_go(row: Incident, who: str, now: float) -> None:
    """Take an acknowledgement back: it is repeated and escalates again."""
    if Incident.objects.filter(pk=row.pk).exclude(acked_at=None).update(acked_at=None, acked_by=""):
        tell(row, TimelineKind.LET_GO, who, f"{who} does not look after it any more.", now)


def note(row: Incident, who: str, text: str, now: float) -> None:
    """Add a note to the timeline. Raises ActError."""
    text = text.replace("\0", "").strip()
    if not text:
        raise ActError("a note needs words")
    tell(row, TimelineKind.NOTE, who, text[:5000], now)


def tell(row: Incident, kind: TimelineKind, who: str, text: str, now: float) -> None:
    """Add a line to the timeline."""
    IncidentEvent.objects.create(incident=row, at=now, kind=kind.value, who=who[:200], text=text)


def silence(
    matchers: str,
    reason: str,
    who: str,
    starts_at: float,
    ends_at: float,
    by: By,
    *,
    cluster: str = "",
    typed: str = "",
) -> Silence:
    """Make a silence. Raises ActError, AlreadySilencedError, MatchError.

    What matches everything wants the word typed; who made it is who is signed in, whatever was sent.
    """
    parsed = parse(matchers)
    row = Silence(
        cluster=cluster,
        matchers=matchers.strip(),
        reason=reason.strip()[:500],
        creator=who[:200],
        starts_at=starts_at,
        ends_at=ends_at,
    )
    with attempted(_attempt(AuditAction.SILENCE_CREATE, row, by)):
        if not row.reason:
            raise ActError("say why: somebody will read it at three in the morning")
        if not 0 < ends_at - starts_at <= LONGEST_SILENCE:
            raise ActError("a silence lasts thirty days at most, and ends after it begins")
        if is_everything(parsed) and typed.strip().lower() != EVERYTHING:
            raise ActError(
                f"this silences everything, or all but a few: type the word {EVERYTHING} if that is meant"
            )
        if (same := _same_silence(parsed, cluster, starts_at, ends_at)) is not None:
            until = notifications.clock(same.ends_at)
            raise AlreadySilencedError(
                f"the silence {same.pk} of {same.creator} covers this until {until}: extend it instead"
            )
        row.save(force_insert=True)
    return row


def _same_silence(
    parsed: Sequence[Matcher], cluster: str, starts_at: float, ends_at: float
) -> Silence | None:
    """Return a silence of the same owner with the same matchers and some of the same time."""
    rows = Silence.objects.filter(cluster=cluster, starts_at__lt=ends_at, ends_at__gt=starts_at)
    return next((row for row in rows if set(parse(row.matchers)) == set(parsed)), None)


def beginning(wanted: datetime | None, now: float) -> float:
    """When a silence begins for which somebody wants that; None: now. Raises ActError."""
    at = now if wanted is None else to_seconds(wanted)
    if not -_TYPED_FOR <= at - now <= _SOONEST:
        raise ActError("a silence begins now, or within ninety days")
    return at


def extend(row: Silence, seconds: float, now: float, by: By) -> None:
    """Let a silence last longer, from its end or from now. Raises ActError."""
    ends_at = max(row.ends_at, now) + seconds
    with attempted(_attempt(AuditAction.SILENCE_EXTEND, row, by)):
        if ends_at - now > LONGEST_SILENCE:
            raise ActError("a silence ends within thirty days")
        if not Silence.objects.filter(pk=row.pk, ends_at=row.ends_at).update(ends_at=ends_at, warned=False):
            raise ActError("somebody extended or ended this silence meanwhile: look at it again")


def end(row: Silence, now: float, by: By) -> None:
    """End a silence now; it stays in the list of those that were."""
    with attempted(_attempt(AuditAction.SILENCE_END, row, by)):
        Silence.objects.filter(pk=row.pk, ends_at__gt=now).update(ends_at=now)


def _attempt(action: AuditAction, row: Silence, by: By) -> Attempt:
    return by.attempt(action, row.cluster, row.matchers or "everything", reason=row.reason)


def warn_of_end(row: Silence, now: float, console_url: str = "") -> int:
    """Say that a silence ends soon to who would hear of what it keeps quiet; of how many incidents.

    Only what people read is told: elsewhere it would be an alert of its own.
    """
    known = dict(Channel.objects.values_list("pk", "kind"))
    quiet = Incident.objects.filter(silenced_by=store.silence_of(row).name, state=IncidentState.FIRING.value)
    silenced = list(quiet.filter(cluster=row.cluster) if row.cluster else quiet)
    trees = {cluster: store.routes(cluster) for cluster in {one.cluster_id for one in silenced}}
    told = 0
    for one in silenced:
        incident = store.value_of(one)
        notice = Notice(NoticeKind.SILENCE_ENDS, incident, now, incident.notices)
        who = receivers(leaves(trees[one.cluster_id], incident), incident, notice.kind, now)
        chosen = {channel: when for channel, when in who.items() if known.get(channel) in READ}
        key = f"{incident.id}/silence-{row.pk}-{int(row.ends_at)}"
        payload = notifications.payload(notice, Links(console_url, "", one.pk)) | {"key": key}
        with transaction.atomic():
            store.enqueue(one, notice.kind, key, payload, chosen, now)
            said = f"It is silenced until {notifications.clock(row.ends_at)}: {row.reason}"
            tell(one, TimelineKind.SILENCE_ENDS, "", said, now)
        told += 1
    return told


def try_out(channel: Channel, now: float, by: By) -> Delivery:
    """Put a test message into the outbox, before all that waits for the channel."""
    notice = notifications.trial(channel.name, now)
    with attempted(by.attempt(AuditAction.CHANNEL_TEST, channel.cluster, channel.name)):
        return Delivery.objects.create(
            channel=channel,
            cluster=channel.cluster,
            key=notice.key,
            kind=notice.kind.value,
            payload=notifications.payload(notice, Links()),
            created_at=now,
            next_attempt_at=now,
        )


def delete_channel(row: Channel, now: float, by: By) -> int:
    """Delete a channel and return how many notifications it leaves unsent. The delivery log keeps its rows."""
    attempt = by.attempt(AuditAction.CHANNEL_DELETE, row.cluster, row.name)
    with attempted(attempt), transaction.atomic():
        log = Delivery.objects.filter(channel=row)
        unsent = log.filter(sent_at=None, failed_at=None).update(
            failed_at=now, waits_for="", last_error="The channel was deleted before this was sent."
        )
        log.update(channel_name=row.name)
        row.delete()
    return unsent


def send_again(row: Delivery, now: float, by: By) -> None:
    """Try a message again that was given up, or waits."""
    with attempted(by.attempt(AuditAction.DELIVERY_AGAIN, row.cluster, row.key)):
        outbox.open_deliveries().filter(pk=row.pk).update(next_attempt_at=now, waits_for="")
        Delivery.objects.filter(pk=row.pk).exclude(failed_at=None).update(
            failed_at=None, attempts=0, created_at=now, next_attempt_at=now, waits_for=""
        )
