"""Leases in the database: which process works on a cluster for a purpose. They expire and have a fencing token.

A process that dies with a lease blocks other processes until the lease expires; a process that was paused for longer
has an old token and cannot write. docs/explanation/architecture.md, "Leases and claims".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q

from fleet.models.changes import Change
from fleet.models.clusters import ClusterLease

#: Purposes of leases, and how long a lease lasts without renewal before another process may take it.
CHANGES, ALERTS = "changes", "alerts"
LEASE_TTL_BY_PURPOSE = {CHANGES: timedelta(seconds=30), ALERTS: timedelta(seconds=15)}


class LeaseHeldError(Exception):
    """Another process holds the lease."""


class LeaseLostError(LeaseHeldError):
    """Another process took the lease: work in progress must stop and write nothing."""


def take(
    cluster: str, purpose: str, holder: str, now: datetime, change: Change | None = None
) -> ClusterLease:
    """Take the lease of a cluster. Raises LeaseHeldError while another holder's lease has not expired."""
    leases = ClusterLease.objects.filter(cluster=cluster, purpose=purpose)
    lease, _ = leases.get_or_create(cluster_id=cluster, purpose=purpose, defaults={"expires_at": now})
    with transaction.atomic():
        updated_count = leases.filter(Q(holder="") | Q(expires_at__lte=now)).update(
            holder=holder, change=change, token=F("token") + 1, expires_at=now + LEASE_TTL_BY_PURPOSE[purpose]
        )
        lease.refresh_from_db()
    if not updated_count:
        raise LeaseHeldError(
            f"{lease.holder} holds the lease of cluster {cluster} until {lease.expires_at:%H:%M:%S} UTC"
        )
    return lease


def renew(lease: ClusterLease, now: datetime | None) -> None:
    """Renew the lease; without `now`, only check that it is still held. Raises LeaseLostError."""
    expires_at = F("expires_at") if now is None else now + LEASE_TTL_BY_PURPOSE[lease.purpose]
    if not ClusterLease.objects.filter(pk=lease.pk, token=lease.token).update(expires_at=expires_at):
        raise LeaseLostError(f"{lease.holder} lost the lease of cluster {lease.cluster_id}")


def release(lease: ClusterLease) -> None:
    """Release the lease; a lost lease stays with its new holder."""
    _free_leases(pk=lease.pk, token=lease.token)


def revoke(change: Change) -> None:
    """Take the lease from the process that works on `change`, so that it writes nothing more: a person aborted it.

    When another change holds the lease of the cluster, that lease stays.
    """
    _free_leases(change=change)


@contextmanager
def fenced_transaction(lease: ClusterLease, now: datetime | None = None) -> Iterator[None]:
    """Run a transaction that commits only while the lease is held, and renew the lease from `now`.

    Raises LeaseLostError. The lease is written first, so no other process can take it before the block has committed.
    """
    with transaction.atomic():
        renew(lease, now)
        yield


@contextmanager
def hold_lease(change: Change, holder: str, now: datetime) -> Iterator[ClusterLease]:
    """Hold the lease of a change's cluster during a block. Raises LeaseHeldError."""
    lease = take(change.cluster_id, CHANGES, holder, now, change)
    try:
        yield lease
    finally:
        release(lease)


def clusters_of(holder: str, purpose: str, now: datetime) -> list[str]:
    """Return the clusters whose lease for `purpose` is held by `holder`."""
    leases = ClusterLease.objects.filter(holder=holder, purpose=purpose, expires_at__gt=now)
    return list(leases.values_list("cluster", flat=True))


def _free_leases(**filters: int | Change) -> None:
    # A higher token stops the last holder from writing, although no other process has taken the lease since.
    ClusterLease.objects.filter(**filters).update(holder="", change=None, token=F("token") + 1)
