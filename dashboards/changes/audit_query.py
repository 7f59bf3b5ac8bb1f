"""Which rows of the log are asked for: words, action, outcome, since when; page by page, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet

from fleet.models.access import log_clusters_of
from fleet.models.changes import AuditEntry
from fleet.vocabulary.actions import AuditOutcome
from fleet.vocabulary.changes import ActorKind

PAGE_SIZE = 100
#: Days back, by what stands in the form.
PERIODS = {"1": "a day", "7": "a week", "30": "a month", "": "ever"}


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """A filter; whatever cannot be understood is left out of it."""

    search_terms: str = ""
    outcome: str = ""
    kind: str = ""
    days: str = ""
    #: The id after which older rows follow.
    before: int = 0

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str]) -> AuditQuery:
        """From an address."""
        outcome, days, before = (parameters.get(name, "") for name in ("outcome", "days", "before"))
        return cls(
            search_terms=parameters.get("q", "").replace("\0", "").strip()[:200],
            outcome=outcome if outcome in set(AuditOutcome) else "",
            kind=parameters.get("kind", "") if parameters.get("kind") in set(ActorKind) else "",
            days=days if days in PERIODS else "",
            before=int(before) if before.isdecimal() and len(before) < 16 else 0,
        )

    def find_rows(self, cluster: str, now: datetime, *, has_limit: bool) -> QuerySet[AuditEntry]:
        """The rows of a cluster and, for a reader without a limit, those that concern none, newest first."""
        visible_rows = AuditEntry.objects.filter(cluster__in=log_clusters_of(cluster, has_limit=has_limit))
        matching_rows: QuerySet[AuditEntry] = visible_rows.order_by("-pk")
        for term in self.search_terms.split()[:10]:
            matching_rows = matching_rows.filter(
                Q(who__icontains=term)
                | Q(action__icontains=term)
                | Q(subject__icontains=term)
                | Q(detail__icontains=term)
                | Q(reason__icontains=term)
                | Q(request_id=term)
            )
        if self.outcome:
            matching_rows = matching_rows.filter(outcome=self.outcome)
        if self.kind:
            matching_rows = matching_rows.filter(actor_kind=self.kind)
        if self.days:
            matching_rows = matching_rows.filter(at__gte=now - timedelta(days=int(self.days)))
        if self.before:
            matching_rows = matching_rows.filter(pk__lt=self.before)
        return matching_rows
