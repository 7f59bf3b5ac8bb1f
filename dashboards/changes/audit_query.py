"""Filter of the audit log: search words, outcome, kind of actor, time range; page by page, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from operator import or_

from django.db.models import Q, QuerySet

from fleet.models.access import audit_log_clusters_of
from fleet.models.changes import AuditEntry
from fleet.vocabulary.actions import AuditOutcome
from fleet.vocabulary.changes import ActorKind

PAGE_SIZE = 100
#: Labels of the time ranges that end now, by number of days; empty: no limit.
TIME_RANGES = {"1": "24 h", "7": "7 days", "30": "30 days", "": "All time"}
#: Groups of actions, by slug: label and first words.
ACTION_GROUPS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "networking": ("Networking config", ("networking-config",)),
    "policies": ("Policies", ("policy",)),
    "campaigns": ("Reconnect campaigns", ("reconnect",)),
    "instances": ("Instances", ("instance", "service", "degrade")),
    "agents": ("Agents", ("agent", "retire", "saved-view")),
    "alerting": (
        "Alerting",
        (
            *("silence", "window", "channel", "route", "delivery", "alert-rule", "alert-rules", "agent-set"),
            *("alerting", "runbook"),
        ),
    ),
    "access": ("Access", ("token", "user", "cluster", "backup")),
    "requests": ("Requests without an own entry", ("page", "api")),
}


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """A filter of the audit log. Invalid times are `problems`; other invalid parameters are ignored."""

    search_text: str = ""
    outcome: str = ""
    actor_kind: str = ""
    #: Part of the actor's name.
    actor: str = ""
    #: Name or id of the object: an agent, an instance, the title of a change.
    object: str = ""
    #: Number of a change; empty: any.
    change: str = ""
    #: A slug of ACTION_GROUPS.
    group: str = ""
    #: Start and end as they were typed, and as moments; None: no limit.
    since: str = ""
    until: str = ""
    since_at: datetime | None = None
    until_at: datetime | None = None
    days: str = ""
    #: By parameter, `since` or `until`: what is wrong with it, and how to write it.
    problems: Mapping[str, str] = field(default_factory=dict)
    #: Only entries with a lower id, which are older; 0: all.
    before_id: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether all entries match."""
        return self == AuditQuery()

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str]) -> AuditQuery:
        """Return the filter in the query parameters of a request."""
        outcome, days, before = (parameters.get(name, "") for name in ("outcome", "days", "before"))
        since, until = (_clean(parameters.get(name, "")) for name in ("since", "until"))
        since_at, until_at, problems = _read_range(since, until)
        return cls(
            search_text=_clean(parameters.get("q", "")),
            outcome=outcome if outcome in set(AuditOutcome) else "",
            actor_kind=parameters.get("kind", "") if parameters.get("kind") in set(ActorKind) else "",
            actor=_clean(parameters.get("actor", "")),
            object=_clean(parameters.get("object", "")),
            change=change
            if (change := parameters.get("change", "")).isdecimal() and len(change) < 16
            else "",
            group=parameters.get("group", "") if parameters.get("group") in ACTION_GROUPS else "",
            since=since,
            until=until,
            since_at=since_at,
            until_at=until_at,
            problems=problems,
            days=days if days in TIME_RANGES else "",
            before_id=int(before) if before.isdecimal() and len(before) < 16 else 0,
        )

    def find_entries(self, cluster: str, now: datetime, *, is_limited_user: bool) -> QuerySet[AuditEntry]:
        """Return the entries of a cluster, newest first; with those of no cluster, unless `is_limited_user` is set.

        None if there are `problems`: the unfiltered log would be taken for the filtered one.
        """
        if self.problems:
            return AuditEntry.objects.none()
        matching_entries = _visible_entries(cluster, is_limited_user=is_limited_user).order_by("-pk")
        for term in self.search_text.split()[:10]:
            matching_entries = matching_entries.filter(
                Q(actor_name__icontains=term)
                | Q(action__icontains=term)
                | Q(subject__icontains=term)
                | Q(detail__icontains=term)
                | Q(reason__icontains=term)
                | Q(request_id=term)
            )
        if self.outcome:
            matching_entries = matching_entries.filter(outcome=self.outcome)
        if self.actor_kind:
            matching_entries = matching_entries.filter(actor_kind=self.actor_kind)
        if self.actor:
            matching_entries = matching_entries.filter(actor_name__icontains=self.actor)
        if self.object:
            matching_entries = matching_entries.filter(
                Q(subject=self.object)
                | Q(subject__icontains=self.object)
                | Q(after__agent=self.object)
                | Q(after__instance=self.object)
            )
        if self.change:
            matching_entries = matching_entries.filter(change_id=int(self.change))
        if self.group:
            subject_words = ACTION_GROUPS[self.group][1]
            matching_entries = matching_entries.filter(
                reduce(or_, (Q(action__startswith=f"{subject_word}.") for subject_word in subject_words))
            )
        if self.since_at is not None:
            matching_entries = matching_entries.filter(at__gte=self.since_at)
        if self.until_at is not None:
            matching_entries = matching_entries.filter(at__lte=self.until_at)
        if self.days:
            matching_entries = matching_entries.filter(at__gte=now - timedelta(days=int(self.days)))
        if self.before_id:
            matching_entries = matching_entries.filter(pk__lt=self.before_id)
        return matching_entries


def find_entry(cluster: str, entry_id: int, *, is_limited_user: bool) -> AuditEntry | None:
    """Return an entry that the log of this cluster shows; None if there is none with this id."""
    # Databases limit the size of a number.
    if entry_id >= 2**63:
        return None
    return _visible_entries(cluster, is_limited_user=is_limited_user).filter(pk=entry_id).first()


def describe_missing_entry(cluster: str, entry_id: int) -> str:
    """Return the sentence about an id that the log of this cluster does not have."""
    return f"Entry {entry_id} was not found in the audit log of cluster {cluster}."


def _visible_entries(cluster: str, *, is_limited_user: bool) -> QuerySet[AuditEntry]:
    return AuditEntry.objects.filter(
        cluster__in=audit_log_clusters_of(cluster, is_limited_user=is_limited_user)
    )


def _clean(text: str) -> str:
    return text.replace("\0", "").strip()[:200]


def _read_range(since: str, until: str) -> tuple[datetime | None, datetime | None, dict[str, str]]:
    """Return start, end, and problems by parameter."""
    moments: dict[str, datetime | None] = {}
    problems: dict[str, str] = {}
    for name, text, time_of_day in (("since", since, time.min), ("until", until, time.max)):
        try:
            moments[name] = _parse_moment(text, time_of_day) if text else None
        except (ValueError, OverflowError):
            moments[name] = None
            problems[name] = (
                f"Invalid time {text[:40]!r}: write it like 2026-11-23 10:14 or 2026-11-23 (UTC)."
            )
    since_at, until_at = moments["since"], moments["until"]
    if since_at is not None and until_at is not None and since_at > until_at:
        problems["until"] = "The range ends before it starts: enter an end that is later than the start."
    return since_at, until_at, problems


def _parse_moment(text: str, time_of_day: time) -> datetime:
    """Return a time in ISO 8601, in UTC if it has no zone; a date without a time is its start or its end.

    Raises ValueError and OverflowError.
    """
    try:
        return datetime.combine(date.fromisoformat(text), time_of_day, UTC)
    except ValueError:
        # In a URL, a plus that was not escaped is a space.
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
