"""Filter of the audit log: search words, outcome, kind of actor, time range; page by page, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet

from fleet.models.access import audit_log_clusters_of
from fleet.models.changes import AuditEntry
from fleet.vocabulary.actions import AuditOutcome
from fleet.vocabulary.changes import ActorKind

PAGE_SIZE = 100
#: Labels of the time ranges, by number of days; empty: no limit.
TIME_RANGES = {"1": "Last 24 h", "7": "Last 7 d", "30": "Last 30 d", "": "All time"}


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """A filter of the audit log; invalid parameters are ignored."""

    search_text: str = ""
    outcome: str = ""
    actor_kind: str = ""
    days: str = ""
    #: Only entries with a lower id, which are older; 0: all.
    before_id: int = 0

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str]) -> AuditQuery:
        """Return the filter in the query parameters of a request."""
        outcome, days, before = (parameters.get(name, "") for name in ("outcome", "days", "before"))
        return cls(
            search_text=parameters.get("q", "").replace("\0", "").strip()[:200],
            outcome=outcome if outcome in set(AuditOutcome) else "",
            actor_kind=parameters.get("kind", "") if parameters.get("kind") in set(ActorKind) else "",
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
        if self.days:
            matching_entries = matching_entries.filter(at__gte=now - timedelta(days=int(self.days)))
        if self.before_id:
            matching_entries = matching_entries.filter(pk__lt=self.before_id)
        return matching_entries
