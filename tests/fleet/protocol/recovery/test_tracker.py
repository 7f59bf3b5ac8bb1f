"""The proxy tracker: Teleport's `track/tracker_test.go` and RFD 226's TTL."""

from __future__ import annotations

import pytest

from fleet.protocol.recovery.discovery import DiscoveredProxy
from fleet.protocol.recovery.tracker import ClaimError, Lease, Tracker


def proxies(*names: str, ttl: float = 0.0, group: str = "", generation: int = 0) -> list[DiscoveredProxy]:
    return [DiscoveredProxy(name, group, generation, ttl) for name in names]


def acquired(tracker: Tracker, now: float) -> Lease:
    lease = tracker.try_acquire(now)
    assert lease is not None
    return lease


def test_basic() -> None:
    """One lease to begin with; then as many as there are proxies; none more."""
    tracker = Tracker("main")
    first = acquired(tracker, 0.0)
    assert first.id == 1
    assert tracker.try_acquire(0.0) is None
    first.claim("a.main")
    assert first.claimed_proxy == "a"
    # A claim and nothing tracked: the bootstrap rule allows one more.
    second = acquired(tracker, 0.0)
    tracker.track_expected(proxies("a", "b", "c"), 0.0)
    third = acquired(tracker, 0.0)
    assert tracker.try_acquire(0.0) is None
    with pytest.raises(ClaimError) as caught:
        second.claim("a")
    assert caught.value.benign
    second.claim("b")
    third.claim("c")
    assert tracker.try_acquire(0.0) is None
    third.release()
    third.release()
    assert tracker.try_acquire(0.0) is not None


def test_full_rotation() -> None:
    """All proxies replaced: new tunnels are leased while the old ones are held, one per new proxy."""
    tracker = Tracker("main")
    tracker.track_expected(proxies("a", "b", ttl=10.0), 0.0)
    for name in "ab":
        acquired(tracker, 0.0).claim(name)
    assert tracker.try_acquire(0.0) is None
    tracker.track_expected(proxies("c", "d", ttl=10.0), 5.0)
    assert tracker.try_acquire(5.0) is not None
    acquired(tracker, 5.0).claim("c")
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
    """A principal that is known wins; else the first, without the cluster's name."""
    tracker = Tracker("main")
    tracker.track_expected(proxies("a", "b"), 0.0)
    assert acquired(tracker, 0.0).claim(*principals) == name


def test_is_claimed() -> None:
    """Claims are seen under any principal of the proxy, and end with the lease."""
    tracker = Tracker("main")
    lease = acquired(tracker, 0.0)
    assert not tracker.is_claimed("a")
    lease.claim("a")
    assert tracker.is_claimed("x", "a.main")
    lease.release()
    assert not tracker.is_claimed("a")


def test_claim_refusals() -> None:
    """No name, twice, or after release: refused, and not benign."""
    tracker = Tracker("main")
    lease = acquired(tracker, 0.0)
    with pytest.raises(ClaimError) as caught:
        lease.claim("")
    assert not caught.value.benign
    lease.claim("a")
    with pytest.raises(ClaimError):
        lease.claim("b")
    lease.release()
    with pytest.raises(ClaimError):
        lease.claim("a")


def test_proxy_groups() -> None:
    """The cap is over all groups; a new generation opens new tunnels beside the old."""
    tracker = Tracker("main", connection_count=2)
    tracker.track_expected(proxies("a1", "a2", group="a", generation=1), 0.0)
    tracker.track_expected(proxies("b1", "b2", group="b", generation=1), 0.0)
    old = [acquired(tracker, 0.0), acquired(tracker, 0.0)]
    assert tracker.try_acquire(0.0) is None
    old[0].claim("a1")
    old[1].claim("b1")
    tracker.track_expected(proxies("a3", "a4", group="a", generation=2), 0.0)
    new = acquired(tracker, 0.0)  # only b1 counts now
    assert tracker.try_acquire(0.0) is None
    new.claim("a3")
    old[0].release()  # an old generation's claim frees nothing
    assert tracker.try_acquire(0.0) is None
    new.release()
    assert tracker.try_acquire(0.0) is not None


def test_mesh_wants_all_desired() -> None:
    """Count 0: one to every desired proxy; a changed count is heeded at once."""
    tracker = Tracker("main", connection_count=1)
    tracker.track_expected(proxies("a", "b", "c"), 0.0)
    acquired(tracker, 0.0).claim("a")
    assert tracker.try_acquire(0.0) is None
    tracker.set_connection_count(0)
    assert tracker.try_acquire(0.0) is not None
    assert tracker.try_acquire(0.0) is not None
    assert tracker.try_acquire(0.0) is None


def test_ttl_is_used_in_favour_of_the_default() -> None:
    """With a TTL a proxy is gone after it, strictly; without one after three minutes."""
    tracker = Tracker("main", connection_count=1)
    tracker.track_expected([*proxies("a", ttl=10.0), *proxies("b")], 0.0)
    assert tracker.snapshot(10.0).tracked_proxies == ("a", "b")
    assert tracker.snapshot(10.1).tracked_proxies == ("b",)
    assert tracker.snapshot(180.1).tracked_proxies == ()


def test_expired_proxy_makes_the_agent_dial() -> None:
    """RFD 226: a tunnel on an expired proxy makes the agent dial another, and one is enough."""
    tracker = Tracker("main", connection_count=1)
    tracker.track_expected(proxies("a", "b", ttl=10.0), 0.0)
    acquired(tracker, 0.0).claim("a")
    tracker.track_expected(proxies("b", ttl=10.0), 8.0)
    assert tracker.try_acquire(10.0) is None
    assert tracker.next_expiry() == 10.0
    acquired(tracker, 10.1).claim("b")
    assert tracker.try_acquire(10.2) is None


def test_all_expired_dials_one_at_a_time() -> None:
    """Its only proxy is silent: everything expires, and the bootstrap rule dials once."""
    tracker = Tracker("main", connection_count=1)
    tracker.track_expected(proxies("a", "b", ttl=10.0), 0.0)
    acquired(tracker, 0.0).claim("a")
    lease = acquired(tracker, 10.1)
    assert tracker.try_acquire(10.2) is None
    lease.release()
    assert tracker.try_acquire(10.3) is not None


def test_snapshot_notes_topology() -> None:
    """The desired set's last change is known: closing surplus tunnels waits on it."""
    tracker = Tracker("main", connection_count=2)
    assert tracker.snapshot(0.0).topology_changed_at is None
    tracker.track_expected(proxies("a", "b", ttl=10.0), 1.0)
    tracker.track_expected(proxies("a", "b", ttl=10.0), 2.0)
    assert tracker.snapshot(2.0).topology_changed_at == 1.0
    tracker.track_expected(proxies("c", ttl=10.0, generation=2), 3.0)
    snapshot = tracker.snapshot(3.0)
    assert (snapshot.desired_proxies, snapshot.topology_changed_at, snapshot.ttl_seen) == (("c",), 3.0, 10.0)


def test_tracker_without_a_cluster() -> None:
    """The cluster's name is mandatory."""
    with pytest.raises(ValueError, match="cluster"):
        Tracker("")


def held(tracker: Tracker, *names: str) -> list[Lease]:
    """Claims on proxies, one after the other."""
    leases = []
    for name in names:
        lease = tracker.try_acquire(0.0)
        assert lease is not None
        lease.claim(name)
        leases.append(lease)
    return leases


def test_leaving_opens_elsewhere_first() -> None:
    """A proxy to be left does not count, so another is dialled; without it there is one too few until that stands."""
    tracker = Tracker("default", 1)
    tracker.track_expected([DiscoveredProxy("a"), DiscoveredProxy("b")], 0.0)
    (lease,) = held(tracker, "a")
    assert tracker.try_acquire(0.0) is None
    assert tracker.leave("a", 0.0)
    assert not tracker.can_close("a", [], 0.0)
    (other,) = held(tracker, "b")
    assert tracker.can_close("a", ["b"], 0.0)
    lease.release()
    assert tracker.try_acquire(0.0) is None
    other.release()
    assert tracker.try_acquire(0.0) is not None


@pytest.mark.parametrize(("count", "known", "claims"), [(1, "a", "a"), (0, "ab", "ab"), (2, "ab", "ab")])
def test_nowhere_to_go(count: int, known: str, claims: str) -> None:
    """The only proxy, a mesh, or as many proxies as tunnels: it stays."""
    tracker = Tracker("default", count)
    tracker.track_expected([DiscoveredProxy(name) for name in known], 0.0)
    held(tracker, *claims)
    assert not tracker.leave("a", 0.0)
    assert tracker.try_acquire(0.0) is None


def test_going_proxy_counts_as_expired() -> None:
    """It goes away: no more is heard of it until its tunnel is over, and a mesh can do without it at once."""
    tracker = Tracker("default", 0)
    tracker.track_expected([DiscoveredProxy("a"), DiscoveredProxy("b")], 0.0)
    lease, _ = held(tracker, "a", "b")
    assert tracker.leave("a", 0.0, is_departing=True)
    assert tracker.can_close("a", ["b"], 0.0)
    tracker.track_expected([DiscoveredProxy("a")], 0.0)
    assert tracker.snapshot(0.0).tracked_proxies == ("b",)
    lease.release()
    tracker.track_expected([DiscoveredProxy("a")], 0.0)
    assert tracker.snapshot(0.0).tracked_proxies == ("a", "b")


def test_leaving_the_last_of_a_generation() -> None:
    """An old generation is left as soon as a new one is held, and not before."""
    tracker = Tracker("default", 1)
    tracker.track_expected([DiscoveredProxy("old", "g", 1)], 0.0)
    held(tracker, "old")
    tracker.track_expected([DiscoveredProxy("new", "g", 2)], 0.0)
    assert tracker.leave("old", 0.0)
    assert not tracker.can_close("old", [], 0.0)
    held(tracker, "new")
    assert tracker.can_close("old", ["new"], 0.0)


def test_place_to_go_that_went() -> None:
    """The other proxy expired before it was reached: the advised tunnel stays."""
    tracker = Tracker("default", 1)
    tracker.track_expected([DiscoveredProxy("a", ttl=100.0), DiscoveredProxy("b", ttl=1.0)], 0.0)
    held(tracker, "a")
    assert tracker.leave("a", 0.0)
    assert not tracker.can_close("a", [], 50.0)
    assert tracker.try_acquire(50.0) is None


def test_wanted_of_a_snapshot() -> None:
    """The count, as far as there are proxies; a mesh wants all."""
    for count, wanted in ((1, 1), (0, 2), (5, 2)):
        tracker = Tracker("default", count)
        tracker.track_expected([DiscoveredProxy("a"), DiscoveredProxy("b")], 0.0)
        assert tracker.snapshot(0.0).desired_tunnel_count == wanted


@pytest.mark.parametrize("count", [0, 2])
def test_draining_proxy_is_not_wanted_anew(count: int) -> None:
    """Whoever has no tunnel there wants none, mesh or not, until it takes new ones again."""
    tracker = Tracker("default", count)
    drained = DiscoveredProxy("b", is_draining=True)
    tracker.track_expected([DiscoveredProxy("a"), drained], 0.0)
    held(tracker, "a")
    assert tracker.try_acquire(0.0) is None
    assert tracker.snapshot(0.0).desired_tunnel_count == 1
    assert not tracker.track_expected([drained], 1.0)
    assert tracker.track_expected([DiscoveredProxy("b")], 1.0)
    held(tracker, "b")
    assert tracker.snapshot(1.0).desired_tunnel_count == 2


def test_tunnel_on_a_draining_proxy_counts() -> None:
    """It stays and nothing is opened in its place; once it is lost it is not wanted there again."""
    tracker = Tracker("default", 0)
    tracker.track_expected([DiscoveredProxy("a"), DiscoveredProxy("b")], 0.0)
    _, lease = held(tracker, "a", "b")
    tracker.track_expected([DiscoveredProxy("b", is_draining=True)], 1.0)
    assert tracker.snapshot(1.0).desired_proxies == ("a", "b")
    assert tracker.try_acquire(1.0) is None
    lease.release()
    assert tracker.snapshot(1.0).desired_proxies == ("a",)
    assert tracker.try_acquire(1.0) is None


def test_draining_proxy_is_left_when_advised() -> None:
    """Even a mesh can leave it for those that are left; the last one there is stays."""
    tracker = Tracker("default", 0)
    tracker.track_expected([DiscoveredProxy("a"), DiscoveredProxy("b", is_draining=True)], 0.0)
    held(tracker, "a")
    tracker.track_expected([DiscoveredProxy("b")], 0.0)
    held(tracker, "b")
    tracker.track_expected([DiscoveredProxy("b", is_draining=True)], 0.0)
    assert tracker.leave("b", 0.0)
    assert not tracker.can_close("b", [], 0.0)
    assert tracker.can_close("b", ["a"], 0.0)
    assert not tracker.leave("a", 0.0)


def test_all_proxies_drain() -> None:
    """One without a tunnel goes on asking, for there is no other choice; a new generation that drains replaces none."""
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
