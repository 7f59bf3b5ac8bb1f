"""Filter of the audit log: search words, outcome, kind of actor, time range; page by page, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_

from django.db.models import Q, QuerySet

from fleet.models.access import audit_log_clusters_of
from fleet.models.changes import AuditEntry
from fleet.vocabulary.actions import AuditOutcome
from fleet.vocabulary.changes import ActorKind

PAGE_SIZE = 100
#: Labels of the time ranges, by number of days; empty: no limit.
TIME_RANGES = {"1": "Last 24 h", "7": "Last 7 d", "30": "Last 30 d", "": "All time"}
#: Groups of actions, by slug: label and first words.
ACTION_GROUPS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "networking": ("Networking config", ("networking-config",)),
    "policies": ("Policies", ("policy",)),
    "campaigns": ("Reconnect campaigns", ("reconnect",)),
    "instances": ("Instances", ("instance", "service", "degrade")),
    "agents": ("Agents", ("agent", "retire")),
    "alerting": (
        "Alerting",
        ("silence", "window", "channel", "route", "delivery", "alert-rule", "alert-rules", "agent-set"),
    ),
    "access": ("Access", ("token", "user", "cluster")),
    "requests": ("Requests without an own entry", ("page", "api")),
}


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """A filter of the audit log; invalid parameters are ignored."""

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
    #: Start and end, ISO 8601 in UTC; empty: no limit.
    since: str = ""
    until: str = ""
    days: str = ""
    #: Only entries with a lower id, which are older; 0: all.
    before_id: int = 0

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str]) -> AuditQuery:
        """Return the filter in the query parameters of a request."""
        outcome, days, before = (parameters.get(name, "") for name in ("outcome", "days", "before"))
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
            since=_clean_moment(parameters.get("since", "")),
            until=_clean_moment(parameters.get("until", "")),
            days=days if days in TIME_RANGES else "",
            before_id=int(before) if before.isdecimal() and len(before) < 16 else 0,
        )

    def find_entries(self, cluster: str, now: datetime, *, is_limited_user: bool) -> QuerySet[AuditEntry]:
        """Return the entries of a cluster, newest first; with those of no cluster, unless `is_limited_user` is set."""
        visible_entries = AuditEntry.objects.filter(
            cluster__in=audit_log_clusters_of(cluster, is_limited_user=is_limited_user)
        )
        matching_entries: QuerySet[AuditEntry] = visible_entries.order_by("-pk")
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
        if self.since:
            matching_entries = matching_entries.filter(at__gte=datetime.fromisoformat(self.since))
        if self.until:
            matching_entries = matching_entries.filter(at__lte=datetime.fromisoformat(self.until))
        if self.days:
            matching_entries = matching_entries.filter(at__gte=now - timedelta(days=int(self.days)))
        if self.before_id:
            matching_entries = matching_entries.filter(pk__lt=self.before_id)
        return matching_entries


def _clean(text: str) -> str:
    return text.replace("\0", "").strip()[:200]


def _clean_moment(text: str) -> str:
    """Return a time in ISO 8601 with its zone, UTC where it has none; empty when it is invalid."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return ""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()
