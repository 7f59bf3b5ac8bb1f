from __future__ import annotations

from datetime import timedelta

import pytest

from fleet.changes import LeaseHeld, LeaseLost, lease
from fleet.models.changes import Change, ClusterLease
from fleet.models.clusters import Cluster
from tests.fleet.changes.conftest import NOW


def test_take_held_says_by_whom(cluster: Cluster) -> None:
    """One at a time; the second is told the holder; given back, it is free."""
    first = lease.take(cluster.pk, "worker 1", NOW)
    with pytest.raises(LeaseHeld, match="worker 1 works on default until 12:00:30 UTC"):
        lease.take(cluster.pk, "worker 2", NOW)
    assert ClusterLease.objects.get().holder == "worker 1"
    lease.release(first)
    assert ClusterLease.objects.get().holder == ""
    assert lease.take(cluster.pk, "worker 2", NOW).token > first.token


def test_expired_lease_is_taken_over_and_its_holder_fenced(cluster: Cluster) -> None:
    """Who was silent too long can neither renew nor write, and gives nothing away by its release."""
    old = lease.take(cluster.pk, "worker 1", NOW)
    late = NOW + lease.LEASE_TIME
    new = lease.take(cluster.pk, "worker 2", late)
    with pytest.raises(LeaseLost):
        lease.renew(old, late)
    with pytest.raises(LeaseLost), lease.fenced(old):
        Cluster.objects.update(name="written by the dead")
    lease.release(old)
    with lease.fenced(new):
        Cluster.objects.update(name="written by the living")
    assert Cluster.objects.get().name == "written by the living"
    assert ClusterLease.objects.get().holder == new.holder


def test_renewed_lease_lasts(cluster: Cluster) -> None:
    """Also one that expired while nobody else came."""
    mine = lease.take(cluster.pk, "worker 1", NOW)
    later = NOW + timedelta(minutes=5)
    lease.renew(mine, later)
    with pytest.raises(LeaseHeld):
        lease.take(cluster.pk, "worker 2", later + timedelta(seconds=1))


def test_held_gives_back_after_an_error(cluster: Cluster) -> None:
    """The next need not wait for the expiry."""
    with pytest.raises(KeyError), lease.held(cluster.pk, "worker 1", NOW):
        raise KeyError
    lease.take(cluster.pk, "worker 2", NOW)


def test_revoked_lease_of_another_change_stays(cluster: Cluster) -> None:
    """Somebody ends a change that is over already: whoever works on the next one keeps the lease."""
    first, second = (
        Change.objects.create(cluster=cluster, kind="policy", title="x", who="a", actor_kind="person")
        for _ in range(2)
    )
    mine = lease.take(cluster.pk, "worker 1", NOW, change=second.pk)
    lease.revoke(cluster.pk, first.pk)
    with lease.fenced(mine):
        Cluster.objects.update(name="written")
    lease.revoke(cluster.pk, second.pk)
    with pytest.raises(LeaseLost), lease.fenced(mine):
        raise AssertionError("the lease was revoked")
