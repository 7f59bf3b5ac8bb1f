"""Changes shortly before an incident, which may have caused it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_

from django.db.models import Q

from dashboards.changes.audit_text import FLEET_ACTION_SUBJECTS, describe_action
from fleet.changes.engine import select_carried_out
from fleet.models.access import audit_log_clusters_of
from fleet.models.changes import AuditEntry
from fleet.models.incidents import VersionChange
from fleet.models.moments import to_moment
from fleet.models.networking import NetworkingRevision
from fleet.vocabulary.actions import AuditAction
from fleet.vocabulary.changes import EXCLUSIVE_STATES
from fleet.vocabulary.natural_order import natural_sort_key

#: Changes within so many seconds before an incident are listed as possible causes.
_LOOKBACK_SECONDS = 1800.0
_MAX_PRIOR_CHANGES = 20


@dataclass(frozen=True, slots=True)
class PriorChange:
    """A change shortly before an incident."""

    at: datetime
    actor: str
    summary: str
    reason: str = ""
    #: Path of its page below the prefix of the cluster; empty if it has no page.
    path: str = ""


def find_prior_changes(cluster: str, opened_at: float, *, is_limited_user: bool) -> list[PriorChange]:
    """Return changes, actions on the fleet, networking configs and versions of the 30 min before, newest first.

    `is_limited_user`: the user is limited to some clusters and does not see actions on the whole installation.
    """
    since, until = to_moment(opened_at - _LOOKBACK_SECONDS), to_moment(opened_at)
    changes = select_carried_out(cluster).filter(
        Q(ended_at=None, state__in=[state.value for state in EXCLUSIVE_STATES]) | Q(ended_at__gte=since),
        started_at__lte=until,
    )
    audit_entries = AuditEntry.objects.filter(
        reduce(or_, (Q(action__startswith=f"{first}.") for first in FLEET_ACTION_SUBJECTS)),
        cluster__in=audit_log_clusters_of(cluster, is_limited_user=is_limited_user),
        outcome="succeeded", change_id=None, at__gte=since, at__lte=until,
    ).exclude(action=AuditAction.NETWORKING_EXTERNAL_WRITE).order_by("-at")  # fmt: skip
    configs = NetworkingRevision.objects.filter(
        cluster=cluster, change=None, at__gte=since, at__lte=until
    ).exclude(previous=None)
    versions = VersionChange.objects.filter(
        cluster=cluster, at__gte=opened_at - _LOOKBACK_SECONDS, at__lte=opened_at
    ).order_by("-at")
    prior_changes = [
        *(
            PriorChange(
                row.started_at or until, row.actor_name, f"{row.title} ({row.state})", row.reason, f"/changes/{row.pk}/"
            )
            for row in changes[:_MAX_PRIOR_CHANGES]
        ),
        *(
            PriorChange(row.at, row.actor_name, f"{describe_action(row.action)}: {row.subject}", row.reason)
            for row in audit_entries[:_MAX_PRIOR_CHANGES]
        ),
        *(
            PriorChange(
                row.at,
                row.author or "Outside of Refloat",
                f"networking config revision {row.revision}",
                row.reason,
            )
            for row in configs[:_MAX_PRIOR_CHANGES]
        ),
        *_group_version_changes(versions),
    ]  # fmt: skip
    return sorted(prior_changes, key=lambda row: row.at, reverse=True)[:_MAX_PRIOR_CHANGES]


def _group_version_changes(rows: Iterable[VersionChange]) -> Iterator[PriorChange]:
    """Yield one entry per pair of old and new version, with the names of the instances."""
    groups: dict[tuple[str, str], list[VersionChange]] = {}
    for row in rows:
        groups.setdefault((row.old, row.new), []).append(row)
    for (old, new), group_rows in groups.items():
        instance_names = sorted((row.name for row in group_rows), key=natural_sort_key)
        names = ", ".join(instance_names[:5]) + (
            f" and {len(group_rows) - 5} more" if len(group_rows) > 5 else ""
        )
        summary = f"version changed from {old} to {new}" if old else f"first seen with version {new}"
        yield PriorChange(to_moment(group_rows[0].at), names, summary)
