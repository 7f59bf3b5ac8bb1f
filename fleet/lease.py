"""Which process works on a cluster for a purpose: a lease in the database that expires, with a token that fences.

A process that dies with a lease blocks the others until it expires, no longer; a process that was paused for longer
finds its token overtaken and writes nothing. docs/architecture.md, "Leases and claims".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q

from fleet.models.changes import Change
from fleet.models.clusters import ClusterLease

#: What leases are for, side by side; and how long a process may be silent before another takes over.
CHANGES, ALERTS = "changes", "alerts"
LEASE_TTL = {CHANGES: timedelta(seconds=30), ALERTS: timedelta(seconds=15)}


class LeaseHeldError(Exception):
    """Another process holds the lease."""


class LeaseLostError(LeaseHeldError):
    """Another process took over: what is under way here must stop, and write nothing."""


def take(
    cluster: str, purpose: str, holder: str, now: datetime, change: Change | None = None
) -> ClusterLease:
    """Take the lease of a cluster. Raises LeaseHeldError while another holder's lease has not expired."""
    rows = ClusterLease.objects.filter(cluster=cluster, purpose=purpose)
    row, _ = rows.get_or_create(cluster_id=cluster, purpose=purpose, defaults={"expires_at": now})
    with transaction.atomic():
        updated_count = rows.filter(Q(holder="") | Q(expires_at__lte=now)).update(
            holder=holder, change=change, token=F("token") + 1, expires_at=now + LEASE_TTL[purpose]
        )
        row.refresh_from_db()
    if not updated_count:
        raise LeaseHeldError(f"{row.holder} works on {cluster} until {row.expires_at:%H:%M:%S} UTC")
    return row


def renew(lease: ClusterLease, now: datetime | None) -> None:
    """Prolong the lease; without `now`, only see that it is ours. Raises LeaseLost when another process took it."""
    expires_at = F("expires_at") if now is None else now + LEASE_TTL[lease.purpose]
    if not ClusterLease.objects.filter(pk=lease.pk, token=lease.token).update(expires_at=expires_at):
        raise LeaseLostError(f"{lease.holder} lost the lease of {lease.cluster_id}")


def release(lease: ClusterLease) -> None:
    """Give the lease back; one that was lost stays with its holder."""
    _free_leases(pk=lease.pk, token=lease.token)


def revoke(change: Change) -> None:
    """Take the lease from the process that works on `change`: a person ends that work, which then writes nothing more.

    Another change may have the cluster by now; its process keeps the lease.
    """
    _free_leases(change=change)


@contextmanager
def fenced_transaction(lease: ClusterLease, now: datetime | None = None) -> Iterator[None]:
    """A transaction that commits only if the lease is still ours, and renews it as of `now`. Raises LeaseLost.

    The lease is written first, so no other process can take it before the block has committed.
    """
    with transaction.atomic():
        renew(lease, now)
        yield


@contextmanager
def hold_lease(change: Change, holder: str, now: datetime) -> Iterator[ClusterLease]:
    """Take the lease of a change's cluster for a block. Raises LeaseHeldError."""
    lease = take(change.cluster_id, CHANGES, holder, now, change)
    try:
        yield lease
    finally:
        release(lease)


def clusters_of(holder: str, purpose: str, now: datetime) -> list[str]:
    """Return the clusters whose lease for the purpose the holder has now."""
    leases = ClusterLease.objects.filter(holder=holder, purpose=purpose, expires_at__gt=now)
    return list(leases.values_list("cluster", flat=True))


def _free_leases(**filters: int | Change) -> None:
    # The token rises, so that whoever had the lease writes nothing more, though nobody has taken it since.
    ClusterLease.objects.filter(**filters).update(holder="", change=None, token=F("token") + 1)
