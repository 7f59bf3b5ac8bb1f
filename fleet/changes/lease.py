"""Which process works on a cluster's change: a lease in the database that expires, with a token that fences.

A change in `running` or `paused` keeps its cluster to itself (a constraint of the database); the lease says which
process makes its next step. Who dies with it blocks the others until it expires, no longer. docs/changes.md, "Steps".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q, QuerySet

from fleet.changes import LeaseHeld, LeaseLost
from fleet.models.changes import ClusterLease

#: How long a process may be silent before another takes over.
LEASE_TIME = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to make the next step, as one process holds it."""

    cluster: str
    holder: str
    token: int


def take(
    cluster: str, holder: str, now: datetime, *, change: int | None = None, for_: timedelta = LEASE_TIME
) -> Lease:
    """Take the lease of a cluster. Raises LeaseHeld while somebody else's has not expired."""
    ClusterLease.objects.get_or_create(cluster_id=cluster, defaults={"expires_at": now})
    with transaction.atomic():
        free = Q(holder="") | Q(expires_at__lte=now)
        won = ClusterLease.objects.filter(free, cluster=cluster).update(
            holder=holder, change=change, token=F("token") + 1, expires_at=now + for_
        )
        row = ClusterLease.objects.get(cluster=cluster)
    if not won:
        raise LeaseHeld(f"{row.holder} works on {cluster} until {row.expires_at:%H:%M:%S} UTC")
    return Lease(cluster, holder, row.token)


def renew(lease: Lease, now: datetime, *, for_: timedelta = LEASE_TIME) -> None:
    """Keep it longer. Raises LeaseLost when somebody else took it; an expired one nobody took is still ours."""
    if not _ours(lease).update(expires_at=now + for_):
        raise LeaseLost(f"{lease.holder} lost the lease of {lease.cluster}")


def release(lease: Lease) -> None:
    """Give it back; one that was lost stays whose it is."""
    _ours(lease).update(holder="", change=None)


def revoke(cluster: str, change: int) -> None:
    """Take the lease from the process that works on `change`: a person ends that work, which then writes nothing more.

    Another change may have the cluster by now; its process keeps the lease.
    """
    ClusterLease.objects.filter(cluster=cluster, change=change).update(
        holder="", change=None, token=F("token") + 1
    )


@contextmanager
def fenced(lease: Lease) -> Iterator[None]:
    """A transaction that commits only if the lease is still ours. Raises LeaseLost, and nothing is written.

    The row is written first, so nobody can take the lease before the block has committed.
    """
    with transaction.atomic():
        if not _ours(lease).update(token=F("token")):
            raise LeaseLost(f"{lease.holder} lost the lease of {lease.cluster}")
        yield


@contextmanager
def held(cluster: str, holder: str, now: datetime, *, change: int | None = None) -> Iterator[Lease]:
    """Take the lease for a block. Raises LeaseHeld."""
    lease = take(cluster, holder, now, change=change)
    try:
        yield lease
    finally:
        release(lease)


def _ours(lease: Lease) -> QuerySet[ClusterLease]:
    return ClusterLease.objects.filter(cluster=lease.cluster, token=lease.token, holder=lease.holder)
