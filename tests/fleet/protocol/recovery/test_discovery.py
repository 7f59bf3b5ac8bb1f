"""Discovery requests: their JSON, and the proxies that are sent at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.protocol.recovery import discovery
from fleet.protocol.recovery.discovery import (
    DiscoveredProxy,
    DiscoveryError,
    DiscoveryRequest,
    ProxyResource,
    Publisher,
    Subscriber,
)
from fleet.protocol.recovery.tracker import Tracker


def test_encode_golden() -> None:
    """Teleport's keys, TTL in integer nanoseconds, zero values left out."""
    proxies = (DiscoveredProxy("p1"), DiscoveredProxy("p2", "blue", 7, 60.0))
    assert json.loads(discovery.encode(proxies)) == {
        "proxies": [
            {"version": "v2", "metadata": {"name": "p1"}},
            {"version": "v2", "metadata": {"name": "p2"}, "gid": "blue", "ggen": 7, "ttl": 60_000_000_000},
        ]
    }


def test_decode_ignores_unknown_keys() -> None:
    """Older and newer senders use additional keys."""
    request = {
        "cluster_name": "x",
        "type": "proxy",
        "proxies": [
            {
                "kind": "proxy",
                "version": "v2",
                "metadata": {"name": "p1", "labels": {}},
                "spec": {"addr": "a"},
            }
        ],
    }
    assert discovery.decode(json.dumps(request).encode()).proxies == (DiscoveredProxy("p1"),)


@given(
    st.lists(
        st.builds(
            DiscoveredProxy,
            name=st.text(min_size=1),
            group=st.text(),
            generation=st.integers(0, 2**64 - 1),
            ttl=st.integers(0, 10**6).map(float),
            is_draining=st.booleans(),
            announce_ttl=st.integers(0, 10**6).map(float),
        )
    )
)
def test_encode_and_decode_round_trip(proxies: list[DiscoveredProxy]) -> None:
    assert discovery.decode(discovery.encode(tuple(proxies))) == DiscoveryRequest(tuple(proxies))


@pytest.mark.parametrize("request_", [b"", b"\xff", b"[]", b'{"proxies": {}}', b"[" * 100_000])
def test_decode_refuses_malformed_requests(request_: bytes) -> None:
    """Every invalid request raises DiscoveryError."""
    with pytest.raises(DiscoveryError):
        discovery.decode(request_)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (b'"p"', "does not have version 'v2'"),
        (b'{"version": "v1", "metadata": {"name": "p"}}', "does not have version 'v2'"),
        (b'{"version": "v3", "metadata": {"name": "p"}}', "does not have version 'v2'"),
        (b'{"version": "v2", "metadata": {}}', "no name"),
        (b'{"version": "v2", "metadata": {"name": ["p"]}}', "no name"),
        (b'{"version": "v2", "metadata": {"name": "p"}, "gid": 1}', "no name"),
        (b'{"version": "v2", "metadata": {"name": "p"}, "ggen": -1}', "'ggen'"),
        (b'{"version": "v2", "metadata": {"name": "p"}, "ggen": 18446744073709551616}', "'ggen'"),
        (b'{"version": "v2", "metadata": {"name": "p"}, "ttl": "1m"}', "'ttl'"),
        (b'{"version": "v2", "metadata": {"name": "p"}, "ttl": 1.5}', "'ttl'"),
        (b'{"version": "v2", "metadata": {"name": "p"}, "ttl": 1%s}' % (b"0" * 400), "'ttl'"),
        (b'{"version": "v2", "metadata": {"name": "p"}, "draining": "yes"}', "'draining'"),
        (b'{"version": "v2", "metadata": {"name": "p"}, "announce_ttl": -1}', "'announce_ttl'"),
    ],
)
def test_decode_skips_unreadable_entries(entry: bytes, reason: str) -> None:
    """An unreadable entry does not affect others; each one is reported with its reason."""
    good = b'{"version": "v2", "metadata": {"name": "good"}}'
    request = discovery.decode(b'{"proxies": [%s, %s, %s]}' % (entry, good, entry))
    assert request.proxies == (DiscoveredProxy("good"),)
    assert len(request.skip_reasons) == 2
    assert reason in request.skip_reasons[0]


def test_decode_refuses_very_long_numbers() -> None:
    """Python does not parse such a number, so the whole request is refused."""
    with pytest.raises(DiscoveryError, match="not JSON"):
        discovery.decode(b'{"proxies": [{"ttl": 1%s}]}' % (b"0" * 5000))


def test_decode_empty_list_of_go() -> None:
    """Go encodes an empty list as null."""
    assert discovery.decode(b'{"proxies": null}') == DiscoveryRequest(())


@pytest.mark.parametrize(
    ("label", "generation"),
    [
        ("", 0),
        ("7", 7),
        ("-1", 0),
        ("x", 0),
        ("18446744073709551615", 18446744073709551615),
        ("18446744073709551616", 0),
        ("9" * 5000, 0),
    ],
)
def test_generation_of_label(label: str, generation: int) -> None:
    """An invalid label gives generation 0."""
    assert discovery.generation_of(label) == generation


def resources(*names_and_expiries: tuple[str, float]) -> list[ProxyResource]:
    return [ProxyResource(name, "", 0, expires_at) for name, expires_at in names_and_expiries]


def names(proxies: Iterable[DiscoveredProxy]) -> list[str]:
    return [proxy.name for proxy in proxies]


def test_compact_sends_only_proxies_with_a_heartbeat() -> None:
    """The full list comes first, then all proxies whose expiry changed since the last read."""
    publisher = Publisher(10.0, compact=True)
    subscriber = Subscriber(publisher)
    assert subscriber.read(0.0) == ()
    assert publisher.observe(resources(("a", 10.0), ("b", 10.0), ("c", 10.0)), 0.0)
    assert subscriber.read(0.0) == tuple(DiscoveredProxy(name, ttl=10.0) for name in "abc")
    assert not publisher.observe(resources(("a", 10.0), ("b", 10.0), ("c", 10.0)), 1.0)
    assert subscriber.read(1.0) == ()
    publisher.observe(resources(("a", 15.0), ("b", 10.0), ("c", 10.0)), 5.0)
    publisher.observe(resources(("a", 15.0), ("b", 10.0), ("c", 16.0)), 6.0)
    assert names(subscriber.read(6.0)) == ["a", "c"]
    assert subscriber.read(6.0) == ()


def test_compact_drops_proxies_without_a_heartbeat_for_a_ttl() -> None:
    """The resource's own expiry does not matter."""
    publisher = Publisher(10.0, compact=True)
    publisher.observe(resources(("a", 1e9), ("b", 1e9)), 0.0)
    publisher.observe(resources(("a", 1e9 + 1), ("b", 1e9)), 8.0)
    assert names(publisher.full_list(9.9)) == ["a", "b"]
    assert names(publisher.full_list(10.0)) == ["a"]


def test_compact_repeats_the_full_list() -> None:
    """The full list is sent again every ten TTLs."""
    publisher = Publisher(10.0, compact=True)
    subscriber = Subscriber(publisher)
    publisher.observe(resources(("a", 1.0), ("b", 1.0)), 0.0)
    subscriber.read(0.0)
    publisher.observe(resources(("a", 2.0), ("b", 2.0)), 95.0)
    assert names(subscriber.read(95.0)) == ["a", "b"]
    assert subscriber.read(99.0) == ()
    assert names(subscriber.read(100.0)) == ["a", "b"]


def test_compact_does_not_send_removals() -> None:
    """Agents expire the proxy by their own clocks."""
    publisher = Publisher(10.0, compact=True)
    subscriber = Subscriber(publisher)
    publisher.observe(resources(("a", 1.0), ("b", 1.0)), 0.0)
    subscriber.read(0.0)
    assert not publisher.observe(resources(("a", 1.0)), 1.0)
    assert subscriber.read(1.0) == ()


def test_full_lists_have_the_remaining_ttl() -> None:
    """Each change and each tick sends the full list, with the rest of the announce TTL of each proxy."""
    publisher = Publisher(600.0, compact=False)
    subscriber = Subscriber(publisher)
    publisher.observe(resources(("a", 1.0), ("b", 1.0)), 0.0)
    assert subscriber.read(0.0) == (DiscoveredProxy("a", ttl=600.0), DiscoveredProxy("b", ttl=600.0))
    assert publisher.observe(resources(("a", 1.0)), 60.0)
    assert subscriber.read(60.0) == (DiscoveredProxy("a", ttl=540.0, announce_ttl=600.0),)
    assert subscriber.read(99.0) == ()
    assert subscriber.read(102.0) == (DiscoveredProxy("a", ttl=498.0, announce_ttl=600.0),)


@pytest.mark.parametrize("compact", [True, False])
def test_repeated_list_does_not_renew_proxies(compact: bool) -> None:
    """An agent drops a dead proxy one TTL after its last heartbeat, however often the proxy is listed."""
    publisher = Publisher(60.0, compact=compact)
    publisher.observe(resources(("dead", 60.0), ("alive", 60.0)), 0.0)
    tracker = Tracker("main", 1)
    tracker.track_expected(publisher.full_list(0.0), 0.0)
    for now in range(1, 80):
        if now % 30 == 0:
            publisher.observe(resources(("dead", 60.0), ("alive", 60.0 + now)), float(now))
        request = discovery.decode(discovery.encode(publisher.full_list(float(now))))
        tracker.track_expected(request.proxies, float(now))
        assert ("dead" in tracker.tracked_proxies(float(now))) is (now < 60)
    assert "alive" in tracker.tracked_proxies(80.0)
    assert tracker.snapshot(80.0).last_announce_ttl == 60.0


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("ttl", [10.0, 30.0, 60.0, 600.0])
def test_live_proxy_never_expires(ttl: float, compact: bool) -> None:
    """With the slowest heartbeats, reads and messages the TTL lasts until the next message."""
    publisher = Publisher(ttl, compact=compact)
    subscriber, tracker = Subscriber(publisher), Tracker("main", 1)
    read_every = discovery.read_interval(ttl, compact=compact)
    tick = min(publisher.full_interval / 4, 1.0)
    now, read_at, swept_at, is_woken = 0.0, 0.0, 0.0, False
    while now < 25 * ttl:
        now = min(read_at, swept_at)
        if now == read_at:
            heartbeat_at = now // (0.6 * ttl) * 0.6 * ttl
            is_woken = publisher.observe(resources(("a", heartbeat_at + ttl)), now) or is_woken
            read_at += read_every
        is_due = subscriber.next_full_at is None or now >= subscriber.next_full_at
        if now == swept_at:
            swept_at += tick
        elif not is_woken:
            continue
        if is_due or is_woken:
            tracker.track_expected(subscriber.read(now), now)
            is_woken = False
        assert "a" in tracker.tracked_proxies(now), f"at {now}"


@given(
    steps=st.lists(st.tuples(st.floats(0.1, 25.0), st.sampled_from("bfc")), max_size=40),
    compact=st.booleans(),
    own_ttl=st.sampled_from([0.0, 5.0, 10.0, 40.0]),
)
def test_no_message_outlives_the_last_heartbeat(
    steps: list[tuple[float, str]], compact: bool, own_ttl: float
) -> None:
    """An agent keeps a proxy at most for the announce TTL since its last heartbeat; changes may be sent a
    twentieth of the TTL late.
    """
    ttl = 10.0
    publisher, tracker = Publisher(ttl, compact=compact), Tracker("main", 1)
    now, heartbeat_at = 0.0, 0.0
    publisher.observe([ProxyResource("a", "", 0, 0.0, ttl=own_ttl)], now)
    for wait, step in steps:
        now += wait
        if step == "b":
            heartbeat_at = now
            publisher.observe([ProxyResource("a", "", 0, now, ttl=own_ttl)], now)
        else:
            message = publisher.full_list(now) if step == "f" else publisher.changed_since(0, now)
            tracker.track_expected(message, now)
            assert all(0 < proxy.ttl <= ttl and proxy.lifetime == ttl for proxy in message)
            assert "a" not in tracker.tracked_proxies(heartbeat_at + max(ttl, own_ttl) + 0.05 * ttl + 1e-6)


@pytest.mark.parametrize(
    ("ttl", "compact", "detection"),
    [(600.0, True, 635.0), (600.0, False, 605.0), (60.0, True, 68.0), (10.0, False, 11.0)],
)
def test_detection(ttl: float, compact: bool, detection: float) -> None:
    """With the default TTL a dead proxy is dropped sooner than the 13 minutes of RFD 226, in either mode."""
    assert discovery.detection_seconds(ttl, compact=compact) == pytest.approx(detection)
    assert detection < discovery.RFD_DETECTION_SECONDS == 780.0


def test_full_mode_sends_heartbeats_with_the_ticker() -> None:
    """Only new proxies and new generations are sent at once."""
    publisher = Publisher(600.0, compact=False)
    subscriber = Subscriber(publisher)
    publisher.observe([ProxyResource("a", "blue", 1, 600.0)], 0.0)
    subscriber.read(0.0)
    assert not publisher.observe([ProxyResource("a", "blue", 1, 930.0)], 30.0)
    assert subscriber.read(30.0) == ()
    assert publisher.observe([ProxyResource("a", "blue", 2, 930.0)], 40.0)
    (changed_proxy,) = subscriber.read(40.0)
    assert (changed_proxy.name, changed_proxy.generation) == ("a", 2)
    assert names(subscriber.read(120.0)) == ["a"]


@pytest.mark.parametrize(
    ("ttl", "compact", "interval"),
    [(600.0, False, 100.0), (60.0, False, 10.0), (7_200.0, False, 120.0), (60.0, True, 600.0)],
)
def test_full_interval(ttl: float, compact: bool, interval: float) -> None:
    """A sixth of the TTL and at most 2 min, as in Teleport; ten TTLs in compact mode."""
    assert Publisher(ttl, compact=compact).full_interval == pytest.approx(interval)


def test_old_and_new_formats() -> None:
    """Teleport's TestDiscoveryRequestMarshalling: whole resources of old proxies are read; ours have the old
    keys.
    """
    old = {
        "cluster_name": "main",
        "type": "node",
        "proxies": [
            {
                "kind": "proxy",
                "version": "v2",
                "metadata": {
                    "name": "p",
                    "namespace": "default",
                    "labels": {"a": "b"},
                    "expires": "2026-01-01T00:00:00Z",
                },
                "spec": {"addr": "1.2.3.4:1", "hostname": "p", "rotation": {"current_id": ""}},
            }
        ],
    }
    assert discovery.decode(json.dumps(old).encode()).proxies == (DiscoveredProxy("p"),)
    document = json.loads(discovery.encode((DiscoveredProxy("p", "g", 3, 60.0),)))
    (entry,) = document["proxies"]
    assert (entry["version"], entry["metadata"]["name"]) == ("v2", "p")


def test_track_proxies_preserves_ttl() -> None:
    """Teleport's TestTrackProxiesPreservesTTL: the tracker uses the TTL that the proxy sent."""
    publisher = Publisher(60.0, compact=True)
    publisher.observe(resources(("a", 1.0)), 0.0)
    tracker = Tracker("main", 1)
    tracker.track_expected(discovery.decode(discovery.encode(Subscriber(publisher).read(0.0))).proxies, 100.0)
    assert tracker.snapshot(100.0).last_announce_ttl == 60.0
    assert "a" in tracker.tracked_proxies(160.0)
    assert "a" not in tracker.tracked_proxies(160.1)


class TestProxyPubSub:
    """Teleport's cases, with their names."""

    def test_initial_state_triggers_wait_and_get(self) -> None:
        """A late subscriber gets the full list at once; every subscriber has its own position."""
        publisher = Publisher(10.0, compact=True)
        publisher.observe(resources(("a", 1.0), ("b", 1.0)), 0.0)
        early, late = Subscriber(publisher), Subscriber(publisher)
        assert names(early.read(0.0)) == ["a", "b"]
        publisher.observe(resources(("a", 2.0), ("b", 1.0)), 1.0)
        assert names(early.read(1.0)) == ["a"]
        assert names(late.read(1.0)) == ["a", "b"]

    def test_compact_get_returns_only_updated(self) -> None:
        """New names count as changed; proxies without a heartbeat are left out."""
        publisher = Publisher(10.0, compact=True)
        subscriber = Subscriber(publisher)
        publisher.observe(resources(("a", 1.0)), 0.0)
        subscriber.read(0.0)
        publisher.observe(resources(("a", 1.0), ("new", 1.0)), 1.0)
        assert names(subscriber.read(1.0)) == ["new"]

    def test_expiry_depends_on_the_local_clock(self) -> None:
        """A proxy whose clock jumps by an hour in either direction still counts as alive."""
        publisher = Publisher(10.0, compact=True)
        subscriber = Subscriber(publisher)
        publisher.observe(resources(("a", 5000.0)), 0.0)
        subscriber.read(0.0)
        for at, expires_at in ((4.0, 5000.0 - 3600), (8.0, 5000.0 + 3600)):
            publisher.observe(resources(("a", expires_at)), at)
            assert names(subscriber.read(at)) == ["a"]


@pytest.mark.parametrize("compact", [True, False])
def test_draining_is_sent_at_once(compact: bool) -> None:
    """Its begin and end are in the next message, in either mode."""
    publisher = Publisher(10.0, compact=compact)
    subscriber = Subscriber(publisher)
    for at, is_draining in ((0.0, False), (1.0, True), (2.0, False)):
        assert publisher.observe([ProxyResource("a", "", 0, 10.0 + at, is_draining)], at)
        (proxy,) = discovery.decode(discovery.encode(subscriber.read(at))).proxies
        assert proxy.is_draining is is_draining


def test_first_message_with_mixed_ttls() -> None:
    """A proxy expires by its own TTL; the message has the sender's TTL, as in the RFD."""
    publisher = Publisher(10.0, compact=True)
    long_ttl, short_ttl, without_ttl = (
        ProxyResource(name, "", 0, 1.0, ttl=ttl) for name, ttl in (("a", 600.0), ("b", 5.0), ("c", 0.0))
    )
    publisher.observe([long_ttl, short_ttl, without_ttl], 0.0)
    assert [proxy.name for proxy in Subscriber(publisher).read(9.0)] == ["a", "b", "c"]
    (proxy,) = Subscriber(publisher).read(300.0)
    assert (proxy.name, proxy.ttl) == ("a", 10.0)
    assert Subscriber(publisher).read(601.0) == ()
