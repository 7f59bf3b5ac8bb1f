"""The proxy tracker: Teleport's `track/tracker_test.go` and RFD 226's TTL."""

from __future__ import annotations

import pytest

from fleet.protocol.recovery.discovery import DiscoveredProxy
from fleet.protocol.recovery.tracker import ClaimError, Tracker, TunnelLease


def proxies(*names: str, ttl: float = 0.0, group: str = "", generation: int = 0) -> list[DiscoveredProxy]:
    return [DiscoveredProxy(name, group, generation, ttl) for name in names]


def acquire(tracker: Tracker, now: float) -> TunnelLease:
    lease = tracker.try_acquire(now)
    assert lease is not None
    return lease


def test_basic() -> None:
    """One lease first; then as many as there are proxies."""
    tracker = Tracker("main")
    first = acquire(tracker, 0.0)
    assert first.id == 1
    assert tracker.try_acquire(0.0) is None
    first.claim("a.main")
    assert first.claimed_proxy == "a"
    # A claim and nothing tracked: the bootstrap rule allows one more.
    second = acquire(tracker, 0.0)
    tracker.track_expected(proxies("a", "b", "c"), 0.0)
    third = acquire(tracker, 0.0)
    assert tracker.try_acquire(0.0) is None
    with pytest.raises(ClaimError) as caught:
        second.claim("a")
    assert caught.value.is_duplicate
    second.claim("b")
    third.claim("c")
    assert tracker.try_acquire(0.0) is None
    third.release()
    third.release()
    assert tracker.try_acquire(0.0) is not None


def test_full_rotation() -> None:
    """All proxies are replaced: one lease per new proxy, while the old tunnels are open."""
    tracker = Tracker("main")
    tracker.track_expected(proxies("a", "b", ttl=10.0), 0.0)
    for name in "ab":
        acquire(tracker, 0.0).claim(name)
    assert tracker.try_acquire(0.0) is None
    tracker.track_expected(proxies("c", "d", ttl=10.0), 5.0)
    assert tracker.try_acquire(5.0) is not None
    acquire(tracker, 5.0).claim("c")
    assert tracker.try_acquire(10.1) is None  # a and b expired; c claimed, one for d in flight


@pytest.mark.parametrize(
    ("principals", "name"),
    [
        (("a",), "a"),
        (("a.main",), "a"),
        (("x", "a.main"), "a"),
        (("x.main", "y"), "x"),
        (("host.example", "b"), "b"),
    ],
)
def test_uuid_handling(principals: tuple[str, ...], name: str) -> None:
    """A known principal is used; otherwise the first, without the cluster's name."""
    tracker = Tracker("main")
    tracker.track_expected(proxies("a", "b"), 0.0)
    assert acquire(tracker, 0.0).claim(*principals) == name


def test_is_claimed() -> None:
    """A claim counts for every principal of the proxy, and ends with the lease."""
    tracker = Tracker("main")
    lease = acquire(tracker, 0.0)
    assert not tracker.is_claimed("a")
    lease.claim("a")
    assert tracker.is_claimed("x", "a.main")
    lease.release()
    assert not tracker.is_claimed("a")


def test_claim_refusals() -> None:
    """A claim without a name, a second one, or one after the release is refused, and not is_duplicate."""
    tracker = Tracker("main")
    lease = acquire(tracker, 0.0)
    with pytest.raises(ClaimError) as caught:
        lease.claim("")
    assert not caught.value.is_duplicate
    lease.claim("a")
    with pytest.raises(ClaimError):
        lease.claim("b")
    lease.release()
    with pytest.raises(ClaimError):
        lease.claim("a")


def test_proxy_groups() -> None:
    """The limit is for all groups; a new generation opens new tunnels beside the old ones."""
    tracker = Tracker("main", connection_count=2)
    tracker.track_expected(proxies("a1", "a2", group="a", generation=1), 0.0)
    tracker.track_expected(proxies("b1", "b2", group="b", generation=1), 0.0)
    old = [acquire(tracker, 0.0), acquire(tracker, 0.0)]
    assert tracker.try_acquire(0.0) is None
    old[0].claim("a1")
    old[1].claim("b1")
    tracker.track_expected(proxies("a3", "a4", group="a", generation=2), 0.0)
    new = acquire(tracker, 0.0)  # only b1 counts now
    assert tracker.try_acquire(0.0) is None
    new.claim("a3")
    old[0].release()  # an old generation's claim frees nothing
    assert tracker.try_acquire(0.0) is None
    new.release()
    assert tracker.try_acquire(0.0) is not None


def test_mesh_opens_a_tunnel_to_every_desired_proxy() -> None:
    """Count 0 means every desired proxy; a changed count applies at once."""
    tracker = Tracker("main", connection_count=1)
    tracker.track_expected(proxies("a", "b", "c"), 0.0)
    acquire(tracker, 0.0).claim("a")
    assert tracker.try_acquire(0.0) is None
    assert tracker.set_connection_count(0)
    assert not tracker.set_connection_count(0)
    assert tracker.desired_proxy_count(0.0) == 3
    assert tracker.try_acquire(0.0) is not None
    assert tracker.try_acquire(0.0) is not None
    assert tracker.try_acquire(0.0) is None


def test_ttl_overrides_the_default() -> None:
    """A proxy expires strictly after its TTL; without a TTL after three minutes."""
    tracker = Tracker("main", connection_count=1)
    tracker.track_expected([*proxies("a", ttl=10.0), *proxies("b")], 0.0)
    assert tracker.snapshot(10.0).tracked_proxies == ("a", "b")
    assert tracker.snapshot(10.1).tracked_proxies == ("b",)
    assert tracker.snapshot(180.1).tracked_proxies == ()


def test_expired_proxy_makes_the_agent_dial() -> None:
    """RFD 226: if its proxy expired the agent dials one other proxy."""
    tracker = Tracker("main", connection_count=1)
    tracker.track_expected(proxies("a", "b", ttl=10.0), 0.0)
    acquire(tracker, 0.0).claim("a")
    tracker.track_expected(proxies("b", ttl=10.0), 8.0)
    assert tracker.try_acquire(10.0) is None
    assert tracker.next_expiry() == 10.0
    acquire(tracker, 10.1).claim("b")
    assert tracker.try_acquire(10.2) is None


def test_all_expired_dials_one_at_a_time() -> None:
    """If all proxies expired, the bootstrap rule allows one dial."""
    tracker = Tracker("main", connection_count=1)
    tracker.track_expected(proxies("a", "b", ttl=10.0), 0.0)
    acquire(tracker, 0.0).claim("a")
    lease = acquire(tracker, 10.1)
    assert tracker.try_acquire(10.2) is None
    lease.release()
    assert tracker.try_acquire(10.3) is not None


def test_snapshot_has_the_last_topology_change() -> None:
    """The closing of surplus tunnels waits for a time after it."""
    tracker = Tracker("main", connection_count=2)
    assert tracker.snapshot(0.0).topology_changed_at is None
    tracker.track_expected(proxies("a", "b", ttl=10.0), 1.0)
    tracker.track_expected(proxies("a", "b", ttl=10.0), 2.0)
    assert tracker.snapshot(2.0).topology_changed_at == 1.0
    tracker.track_expected(proxies("c", ttl=10.0, generation=2), 3.0)
    snapshot = tracker.snapshot(3.0)
    assert (snapshot.desired_proxies, snapshot.topology_changed_at, snapshot.last_announce_ttl) == (
        ("c",),
        3.0,
        10.0,
    )


def test_tracker_needs_a_cluster_name() -> None:
    with pytest.raises(ValueError, match="cluster"):
        Tracker("")


def claim_proxies(tracker: Tracker, *names: str) -> list[TunnelLease]:
    """Claim proxies one after the other, and return the leases."""
    leases = []
    for name in names:
        lease = tracker.try_acquire(0.0)
        assert lease is not None
        lease.claim(name)
        leases.append(lease)
    return leases


def test_leaving_opens_elsewhere_first() -> None:
    """A proxy to leave does not count, so another is dialled; its tunnel closes only after that."""
    tracker = Tracker("default", 1)
    tracker.track_expected([DiscoveredProxy("a"), DiscoveredProxy("b")], 0.0)
    (lease,) = claim_proxies(tracker, "a")
    assert tracker.try_acquire(0.0) is None
    assert tracker.mark_leaving("a", 0.0)
    assert not tracker.can_close("a", [], 0.0)
    (second_lease,) = claim_proxies(tracker, "b")
    assert tracker.can_close("a", ["b"], 0.0)
    lease.release()
    assert tracker.try_acquire(0.0) is None
    second_lease.release()
    assert tracker.try_acquire(0.0) is not None


@pytest.mark.parametrize(
    ("count", "proxy_names", "claimed_names"), [(1, "a", "a"), (0, "ab", "ab"), (2, "ab", "ab")]
)
def test_leaving_without_an_alternative_is_refused(count: int, proxy_names: str, claimed_names: str) -> None:
    """The only proxy, a mesh, or as many proxies as tunnels."""
    tracker = Tracker("default", count)
    tracker.track_expected([DiscoveredProxy(name) for name in proxy_names], 0.0)
    claim_proxies(tracker, *claimed_names)
    assert not tracker.mark_leaving("a", 0.0)
    assert tracker.try_acquire(0.0) is None


def test_departing_proxy_counts_as_expired() -> None:
    """It is not tracked until its tunnel ends, and a mesh can close it at once."""
    tracker = Tracker("default", 0)
    tracker.track_expected([DiscoveredProxy("a"), DiscoveredProxy("b")], 0.0)
    lease, _ = claim_proxies(tracker, "a", "b")
    assert tracker.mark_leaving("a", 0.0, is_departing=True)
    assert tracker.can_close("a", ["b"], 0.0)
    tracker.track_expected([DiscoveredProxy("a")], 0.0)
    assert tracker.snapshot(0.0).tracked_proxies == ("b",)
    lease.release()
    tracker.track_expected([DiscoveredProxy("a")], 0.0)
    assert tracker.snapshot(0.0).tracked_proxies == ("a", "b")


def test_leaving_the_last_of_a_generation() -> None:
    """An old generation is left once a new one is claimed."""
    tracker = Tracker("default", 1)
    tracker.track_expected([DiscoveredProxy("old", "g", 1)], 0.0)
    claim_proxies(tracker, "old")
    tracker.track_expected([DiscoveredProxy("new", "g", 2)], 0.0)
    assert tracker.mark_leaving("old", 0.0)
    assert not tracker.can_close("old", [], 0.0)
    claim_proxies(tracker, "new")
    assert tracker.can_close("old", ["new"], 0.0)


def test_advised_tunnel_stays_if_the_alternative_expires() -> None:
    tracker = Tracker("default", 1)
    tracker.track_expected([DiscoveredProxy("a", ttl=100.0), DiscoveredProxy("b", ttl=1.0)], 0.0)
    claim_proxies(tracker, "a")
    assert tracker.mark_leaving("a", 0.0)
    assert not tracker.can_close("a", [], 50.0)
    assert tracker.try_acquire(50.0) is None


def test_desired_tunnel_count_of_a_snapshot() -> None:
    """The count, limited by the number of proxies; a mesh needs all."""
    for count, expected in ((1, 1), (0, 2), (5, 2)):
        tracker = Tracker("default", count)
        tracker.track_expected([DiscoveredProxy("a"), DiscoveredProxy("b")], 0.0)
        assert tracker.snapshot(0.0).desired_tunnel_count == expected


@pytest.mark.parametrize("count", [0, 2])
def test_draining_proxy_gets_no_new_tunnel(count: int) -> None:
    """That holds for a mesh, too, until the draining ends."""
    tracker = Tracker("default", count)
    draining_proxy = DiscoveredProxy("b", is_draining=True)
    tracker.track_expected([DiscoveredProxy("a"), draining_proxy], 0.0)
    claim_proxies(tracker, "a")
    assert tracker.try_acquire(0.0) is None
    assert tracker.snapshot(0.0).desired_tunnel_count == 1
    assert not tracker.track_expected([draining_proxy], 1.0)
    assert tracker.track_expected([DiscoveredProxy("b")], 1.0)
    claim_proxies(tracker, "b")
    assert tracker.snapshot(1.0).desired_tunnel_count == 2


def test_tunnel_on_a_draining_proxy_counts() -> None:
    """It stays, and none replaces it; after its end the proxy is not desired any more."""
    tracker = Tracker("default", 0)
    tracker.track_expected([DiscoveredProxy("a"), DiscoveredProxy("b")], 0.0)
    _, lease = claim_proxies(tracker, "a", "b")
    tracker.track_expected([DiscoveredProxy("b", is_draining=True)], 1.0)
    assert tracker.snapshot(1.0).desired_proxies == ("a", "b")
    assert tracker.try_acquire(1.0) is None
    lease.release()
    assert tracker.snapshot(1.0).desired_proxies == ("a",)
    assert tracker.try_acquire(1.0) is None


def test_draining_proxy_is_left_when_advised() -> None:
    """Even a mesh can leave it for other proxies, but not the last one."""
    tracker = Tracker("default", 0)
    tracker.track_expected([DiscoveredProxy("a"), DiscoveredProxy("b", is_draining=True)], 0.0)
    claim_proxies(tracker, "a")
    tracker.track_expected([DiscoveredProxy("b")], 0.0)
    claim_proxies(tracker, "b")
    tracker.track_expected([DiscoveredProxy("b", is_draining=True)], 0.0)
    assert tracker.mark_leaving("b", 0.0)
    assert not tracker.can_close("b", [], 0.0)
    assert tracker.can_close("b", ["a"], 0.0)
    assert not tracker.mark_leaving("a", 0.0)


def test_draining_proxies_are_used_if_all_drain() -> None:
    """There is no other choice; a draining new generation replaces no old one."""
    tracker = Tracker("default", 1)
    tracker.track_expected(
        [DiscoveredProxy("a", is_draining=True), DiscoveredProxy("b", is_draining=True)], 0.0
    )
    assert tracker.try_acquire(0.0) is not None
    tracker = Tracker("default", 1)
    tracker.track_expected(
        [DiscoveredProxy("old", "g", 1), DiscoveredProxy("new", "g", 2, is_draining=True)], 0.0
    )
    assert tracker.snapshot(0.0).desired_proxies == ("old",)
