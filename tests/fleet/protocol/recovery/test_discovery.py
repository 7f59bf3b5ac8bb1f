"""Discovery requests: the JSON, and who is sent what when."""

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


def test_decode_ignores_what_it_does_not_know() -> None:
    """Keys of older and newer senders do not disturb."""
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
def test_decode_what_was_encoded(proxies: list[DiscoveredProxy]) -> None:
    """A request reads back as it was written."""
    assert discovery.decode(discovery.encode(tuple(proxies))) == DiscoveryRequest(tuple(proxies))


@pytest.mark.parametrize("request_", [b"", b"\xff", b"[]", b'{"proxies": {}}', b"[" * 100_000])
def test_decode_malformed(request_: bytes) -> None:
    """What is no discovery request at all is one kind of error."""
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
def test_decode_skips_an_entry_that_cannot_be_read(entry: bytes, reason: str) -> None:
    """A newer proxy's entry hides none of the others; each skipped one is told with its reason."""
    good = b'{"version": "v2", "metadata": {"name": "good"}}'
    request = discovery.decode(b'{"proxies": [%s, %s, %s]}' % (entry, good, entry))
    assert request.proxies == (DiscoveredProxy("good"),)
    assert len(request.skip_reasons) == 2
    assert reason in request.skip_reasons[0]


def test_decode_of_digits_beyond_reading() -> None:
    """Python refuses to read so long a number: then nothing of the request can be read."""
    with pytest.raises(DiscoveryError, match="not JSON"):
        discovery.decode(b'{"proxies": [{"ttl": 1%s}]}' % (b"0" * 5000))


def test_decode_empty_list_of_go() -> None:
    """Go writes an empty list as null."""
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
    """A label that does not parse is generation 0."""
    assert discovery.generation_of(label) == generation


def resources(*names_and_expiries: tuple[str, float]) -> list[ProxyResource]:
    return [ProxyResource(name, "", 0, expires_at) for name, expires_at in names_and_expiries]


def names(proxies: Iterable[DiscoveredProxy]) -> list[str]:
    return [proxy.name for proxy in proxies]


def test_compact_sends_only_what_heartbeated() -> None:
    """First the full list, then those whose expiry changed, coalesced since the last read."""
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


def test_compact_drops_what_did_not_heartbeat_within_the_ttl() -> None:
    """A full list leaves out proxies not seen to heartbeat for a TTL, whatever their expiry says."""
    publisher = Publisher(10.0, compact=True)
    publisher.observe(resources(("a", 1e9), ("b", 1e9)), 0.0)
    publisher.observe(resources(("a", 1e9 + 1), ("b", 1e9)), 8.0)
    assert names(publisher.full(9.9)) == ["a", "b"]
    assert names(publisher.full(10.0)) == ["a"]


def test_compact_repeats_the_full_list() -> None:
    """Every ten TTLs everything is sent once more."""
    publisher = Publisher(10.0, compact=True)
    subscriber = Subscriber(publisher)
    publisher.observe(resources(("a", 1.0), ("b", 1.0)), 0.0)
    subscriber.read(0.0)
    publisher.observe(resources(("a", 2.0), ("b", 2.0)), 95.0)
    assert names(subscriber.read(95.0)) == ["a", "b"]
    assert subscriber.read(99.0) == ()
    assert names(subscriber.read(100.0)) == ["a", "b"]


def test_compact_says_nothing_of_a_proxy_that_went() -> None:
    """Absence is not sent: the agents' own clocks expire it."""
    publisher = Publisher(10.0, compact=True)
    subscriber = Subscriber(publisher)
    publisher.observe(resources(("a", 1.0), ("b", 1.0)), 0.0)
    subscriber.read(0.0)
    assert not publisher.observe(resources(("a", 1.0)), 1.0)
    assert subscriber.read(1.0) == ()


def test_full_lists_carry_the_ttl_too() -> None:
    """On each change and on the ticker, the whole list, each proxy with what remains of the sender's announce TTL."""
    publisher = Publisher(600.0, compact=False)
    subscriber = Subscriber(publisher)
    publisher.observe(resources(("a", 1.0), ("b", 1.0)), 0.0)
    assert subscriber.read(0.0) == (DiscoveredProxy("a", ttl=600.0), DiscoveredProxy("b", ttl=600.0))
    assert publisher.observe(resources(("a", 1.0)), 60.0)
    assert subscriber.read(60.0) == (DiscoveredProxy("a", ttl=540.0, announce_ttl=600.0),)
    assert subscriber.read(99.0) == ()
    assert subscriber.read(102.0) == (DiscoveredProxy("a", ttl=498.0, announce_ttl=600.0),)


@pytest.mark.parametrize("compact", [True, False])
def test_repeated_list_renews_nothing(compact: bool) -> None:
    """However often a dead proxy is named again, an agent drops it one TTL after its last heartbeat."""
    publisher = Publisher(60.0, compact=compact)
    publisher.observe(resources(("dead", 60.0), ("alive", 60.0)), 0.0)
    tracker = Tracker("main", 1)
    tracker.track_expected(publisher.full(0.0), 0.0)
    for now in range(1, 80):
        if now % 30 == 0:
            publisher.observe(resources(("dead", 60.0), ("alive", 60.0 + now)), float(now))
        request = discovery.decode(discovery.encode(publisher.full(float(now))))
        tracker.track_expected(request.proxies, float(now))
        assert ("dead" in tracker.tracked_proxies(float(now))) is (now < 60)
    assert "alive" in tracker.tracked_proxies(80.0)
    assert tracker.snapshot(80.0).ttl_seen == 60.0


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("ttl", [10.0, 30.0, 60.0, 600.0])
def test_live_proxy_is_never_taken_for_expired(ttl: float, compact: bool) -> None:
    """The slowest heartbeats, seen and sent as late as may be: what an agent knows lasts until the next message."""
    publisher = Publisher(ttl, compact=compact)
    subscriber, tracker = Subscriber(publisher), Tracker("main", 1)
    read_every = discovery.read_interval(ttl, compact=compact)
    tick = min(publisher.full_interval / 4, 1.0)
    now, read_at, swept_at, is_woken = 0.0, 0.0, 0.0, False
    while now < 25 * ttl:
        now = min(read_at, swept_at)
        if now == read_at:
            beat = now // (0.6 * ttl) * 0.6 * ttl
            is_woken = publisher.observe(resources(("a", beat + ttl)), now) or is_woken
            read_at += read_every
        due = subscriber.full_at is None or now >= subscriber.full_at
        if now == swept_at:
            swept_at += tick
        elif not is_woken:
            continue
        if due or is_woken:
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
    """Law: whatever is sent when, an agent keeps a proxy for no longer than its announce TTL since its last heartbeat.

    What is sent as news may be a twentieth of the TTL old.
    """
    ttl = 10.0
    publisher, tracker = Publisher(ttl, compact=compact), Tracker("main", 1)
    now, beat_at = 0.0, 0.0
    publisher.observe([ProxyResource("a", "", 0, 0.0, ttl=own_ttl)], now)
    for wait, step in steps:
        now += wait
        if step == "b":
            beat_at = now
            publisher.observe([ProxyResource("a", "", 0, now, ttl=own_ttl)], now)
        else:
            message = publisher.full(now) if step == "f" else publisher.changed_since(0, now)
            tracker.track_expected(message, now)
            assert all(0 < proxy.ttl <= ttl and proxy.lifetime == ttl for proxy in message)
            assert "a" not in tracker.tracked_proxies(beat_at + max(ttl, own_ttl) + 0.05 * ttl + 1e-6)


@pytest.mark.parametrize(
    ("ttl", "compact", "detection"),
    [(600.0, True, 635.0), (600.0, False, 605.0), (60.0, True, 68.0), (10.0, False, 11.0)],
)
def test_detection(ttl: float, compact: bool, detection: float) -> None:
    """The default TTL is dropped sooner than the 13 minutes of RFD 226, in either mode."""
    assert discovery.detection(ttl, compact=compact) == pytest.approx(detection)
    assert detection < discovery.RFD_DETECTION == 780.0


def test_legacy_leaves_heartbeats_to_the_ticker() -> None:
    """Who heartbeats is no news, who comes or moves to another generation is, and both are in the next full list."""
    publisher = Publisher(600.0, compact=False)
    subscriber = Subscriber(publisher)
    publisher.observe([ProxyResource("a", "blue", 1, 600.0)], 0.0)
    subscriber.read(0.0)
    assert not publisher.observe([ProxyResource("a", "blue", 1, 930.0)], 30.0)
    assert subscriber.read(30.0) == ()
    assert publisher.observe([ProxyResource("a", "blue", 2, 930.0)], 40.0)
    (moved,) = subscriber.read(40.0)
    assert (moved.name, moved.generation) == ("a", 2)
    assert names(subscriber.read(120.0)) == ["a"]


@pytest.mark.parametrize(
    ("ttl", "compact", "interval"),
    [(600.0, False, 100.0), (60.0, False, 10.0), (7_200.0, False, 120.0), (60.0, True, 600.0)],
)
def test_full_interval(ttl: float, compact: bool, interval: float) -> None:
    """A sixth of the TTL, and 2 min at most as upstream has it; ten TTLs in compact mode."""
    assert Publisher(ttl, compact=compact).full_interval == pytest.approx(interval)


def test_marshalling_of_old_and_new() -> None:
    """Upstream's TestDiscoveryRequestMarshalling: old proxies' whole resources are read, ours have the old keys."""
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
    written = json.loads(discovery.encode((DiscoveredProxy("p", "g", 3, 60.0),)))
    (entry,) = written["proxies"]
    assert (entry["version"], entry["metadata"]["name"]) == ("v2", "p")


def test_track_proxies_preserves_ttl() -> None:
    """Upstream's TestTrackProxiesPreservesTTL: what a proxy sends is what an agent's tracker goes by."""
    publisher = Publisher(60.0, compact=True)
    publisher.observe(resources(("a", 1.0)), 0.0)
    tracker = Tracker("main", 1)
    tracker.track_expected(discovery.decode(discovery.encode(Subscriber(publisher).read(0.0))).proxies, 100.0)
    assert tracker.snapshot(100.0).ttl_seen == 60.0
    assert "a" in tracker.tracked_proxies(160.0)
    assert "a" not in tracker.tracked_proxies(160.1)


class TestProxyPubSub:
    """Upstream's cases, by their names."""

    def test_initial_state_triggers_wait_and_get(self) -> None:
        """Who subscribes late has the full list at once, and each has a place of its own."""
        publisher = Publisher(10.0, compact=True)
        publisher.observe(resources(("a", 1.0), ("b", 1.0)), 0.0)
        early, late = Subscriber(publisher), Subscriber(publisher)
        assert names(early.read(0.0)) == ["a", "b"]
        publisher.observe(resources(("a", 2.0), ("b", 1.0)), 1.0)
        assert names(early.read(1.0)) == ["a"]
        assert names(late.read(1.0)) == ["a", "b"]

    def test_compact_get_returns_only_updated(self) -> None:
        """New names count as changed, and whoever did not heartbeat is left out."""
        publisher = Publisher(10.0, compact=True)
        subscriber = Subscriber(publisher)
        publisher.observe(resources(("a", 1.0)), 0.0)
        subscriber.read(0.0)
        publisher.observe(resources(("a", 1.0), ("new", 1.0)), 1.0)
        assert names(subscriber.read(1.0)) == ["new"]

    def test_expiry_is_judged_by_when_it_was_seen(self) -> None:
        """A proxy whose clock jumps by an hour, back or ahead, heartbeats like any other."""
        publisher = Publisher(10.0, compact=True)
        subscriber = Subscriber(publisher)
        publisher.observe(resources(("a", 5000.0)), 0.0)
        subscriber.read(0.0)
        for at, expires_at in ((4.0, 5000.0 - 3600), (8.0, 5000.0 + 3600)):
            publisher.observe(resources(("a", expires_at)), at)
            assert names(subscriber.read(at)) == ["a"]


@pytest.mark.parametrize("compact", [True, False])
def test_draining_is_told_at_once(compact: bool) -> None:
    """Agents hear of it, and of its end, with the next message, in either mode."""
    publisher = Publisher(10.0, compact=compact)
    subscriber = Subscriber(publisher)
    for at, draining in ((0.0, False), (1.0, True), (2.0, False)):
        assert publisher.observe([ProxyResource("a", "", 0, 10.0 + at, draining)], at)
        (told,) = discovery.decode(discovery.encode(subscriber.read(at))).proxies
        assert told.is_draining is draining


def test_first_message_with_mixed_ttls() -> None:
    """A proxy that heartbeats seldom is unexpired by its own TTL; what is said along is the sender's, as in the RFD."""
    publisher = Publisher(10.0, compact=True)
    seldom, often, silent = (
        ProxyResource(name, "", 0, 1.0, ttl=ttl) for name, ttl in (("a", 600.0), ("b", 5.0), ("c", 0.0))
    )
    publisher.observe([seldom, often, silent], 0.0)
    assert [proxy.name for proxy in Subscriber(publisher).read(9.0)] == ["a", "b", "c"]
    (told,) = Subscriber(publisher).read(300.0)
    assert (told.name, told.ttl) == ("a", 10.0)
    assert Subscriber(publisher).read(601.0) == ()
