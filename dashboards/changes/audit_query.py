"""Which rows of the log are asked for: words, action, outcome, since when; page by page, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet

from fleet.models.access import shown_clusters
from fleet.models.changes import AuditEntry
from fleet.vocabulary.actions import AuditOutcome
from fleet.vocabulary.changes import ActorKind

PAGE = 100
#: Days back, by what stands in the form.
SINCE = {"1": "a day", "7": "a week", "30": "a month", "": "ever"}


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """A filter; whatever cannot be understood is left out of it."""

    words: str = ""
    outcome: str = ""
    kind: str = ""
    days: str = ""
    #: The id after which older rows follow.
    before: int = 0

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> AuditQuery:
        """From an address."""
        outcome, days, before = (asked.get(name, "") for name in ("outcome", "days", "before"))
        return cls(
            words=asked.get("q", "").replace("\0", "").strip()[:200],
            outcome=outcome if outcome in set(AuditOutcome) else "",
            kind=asked.get("kind", "") if asked.get("kind") in set(ActorKind) else "",
            days=days if days in SINCE else "",
            before=int(before) if before.isdecimal() and len(before) < 16 else 0,
        )

    def rows(self, cluster: str, now: datetime, *, limited: bool) -> QuerySet[AuditEntry]:
        """The rows of a cluster and, for a reader without a limit, those that concern none, newest first."""
        shown = AuditEntry.objects.filter(cluster__in=shown_clusters(cluster, limited=limited))
        found: QuerySet[AuditEntry] = shown.order_by("-pk")
        for word in self.words.split()[:10]:
            found = found.filter(
                Q(who__icontains=word)
                | Q(action__icontains=word)
                | Q(subject__icontains=word)
                | Q(detail__icontains=word)
                | Q(reason__icontains=word)
                | Q(request_id=word)
            )
        if self.outcome:
            found = found.filter(outcome=self.outcome)
        if self.kind:
            found = found.filter(actor_kind=self.kind)
        if self.days:
            found = found.filter(at__gte=now - timedelta(days=int(self.days)))
        if self.before:
            found = found.filter(pk__lt=self.before)
        return found
