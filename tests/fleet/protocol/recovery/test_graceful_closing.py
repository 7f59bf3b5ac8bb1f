"""Which tunnels agents close, by the RFD's rule and by upstream's (`agentpool_test.go`, TestAgentPoolTryDisconnect)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.protocol.networking.config import NetworkingConfig
from fleet.protocol.recovery.graceful_closing import (
    ClosingDecision,
    ClosingPolicy,
    ClosingReason,
    GracefulClosing,
    LiveTunnel,
    closable_by_rfd,
)
from fleet.protocol.recovery.tracker import TrackerSnapshot

MINUTE = 60.0
RFD = ClosingPolicy(graceful=True)
UPSTREAM = ClosingPolicy(threshold=30 * MINUTE)


def known(
    desired: str, *, count: int = 1, older: str = "", claimed: str = "", changed_at: float = 0.0
) -> TrackerSnapshot:
    """What the tracker says: each letter is a proxy."""
    return TrackerSnapshot(
        connection_count=count,
        claimed_proxies=tuple(claimed),
        tracked_proxies=tuple(sorted(desired + older)),
        desired_proxies=tuple(sorted(desired)),
        ttl_seen=10.0,
        topology_changed_at=changed_at,
    )


def tunnels(*proxies: str, **more: float) -> list[LiveTunnel]:
    """One after the other."""
    return [LiveTunnel(proxy, opened_at=float(place), **more) for place, proxy in enumerate(proxies)]  # type: ignore[arg-type]


def test_policy_of_a_config() -> None:
    """Off by default; the RFD's by its switch, with its bounds; upstream's by its threshold."""
    assert not ClosingPolicy.of(NetworkingConfig()).active
    config = NetworkingConfig(graceful_tunnel_closing=True, tunnel_closing_wait_min=5.0)
    assert ClosingPolicy.of(config) == ClosingPolicy(graceful=True, wait=(5.0, 3600.0))
    assert ClosingPolicy.of(NetworkingConfig(tunnel_disconnect_threshold=9.0)).threshold == 9.0


@pytest.mark.parametrize(
    ("held", "snapshot", "closable"),
    [
        ("ab", known("a"), {"b": ClosingReason.EXPIRED}),
        ("ab", known("ab"), {"a": ClosingReason.EXCESS, "b": ClosingReason.EXCESS}),
        (
            "abc",
            known("ab"),
            {"a": ClosingReason.EXCESS, "b": ClosingReason.EXCESS, "c": ClosingReason.EXPIRED},
        ),
        ("ab", known("ab", count=2), {}),
        # As many stand as could: with fewer desired proxies than wanted tunnels, an expired one is surplus too.
        ("ab", known("a", count=2), {"b": ClosingReason.EXPIRED}),
        ("abc", known("ab", count=3), {"c": ClosingReason.EXPIRED}),
        # Not while a desired proxy could be dialled yet.
        ("ac", known("ab", count=3), {}),
        ("ab", known("ac", count=2), {}),
        ("abc", known("ab", count=2), {"c": ClosingReason.EXPIRED}),
        # Nothing is tracked: nobody knows which of them serve.
        ("abc", known(""), {}),
        # A rollout: old generation unexpired, the new one reached or not.
        ("ab", known("a", older="b"), {}),
        ("b", known("a", older="b"), {}),
        ("abc", known("ab", older="c", count=1), {"a": ClosingReason.EXCESS, "b": ClosingReason.EXCESS}),
        # The last one.
        ("b", known("a"), {}),
        # Only expired ones, while others could be dialled.
        ("bc", known("a"), {}),
        # A mesh has no excess; expired ones go once every desired proxy is reached.
        ("abc", known("abc", count=0), {}),
        ("abc", known("ab", count=0), {"c": ClosingReason.EXPIRED}),
        ("ac", known("ab", count=0), {}),
    ],
)
def test_what_is_closable(held: str, snapshot: TrackerSnapshot, closable: dict[str, ClosingReason]) -> None:
    """Expired or in excess, never below the desired count, never the last, never an older generation."""
    assert closable_by_rfd(tunnels(*held), snapshot) == closable


def test_draining_tunnels_count_for_nothing() -> None:
    """One that is going already neither makes an excess nor lets another go."""
    held = [*tunnels("a"), replace(tunnels("b")[0], is_draining=True)]
    assert closable_by_rfd(held, known("ab")) == {}


@pytest.mark.parametrize(
    ("chance", "wait"), [(0.0, 30 * MINUTE), (0.5, 45 * MINUTE), (0.999, 59.97 * MINUTE)]
)
def test_condition_must_hold_for_the_wait(chance: float, wait: float) -> None:
    """30 to 60 minutes, drawn once when the condition begins."""
    closing, held, snapshot = GracefulClosing(RFD), tunnels("a", "b"), known("a")
    assert closing.decide(held, snapshot, 100.0, chance) is None
    assert closing.decide(held, snapshot, 100.0 + wait - 0.1, 0.0) is None
    assert closing.decide(held, snapshot, 100.0 + wait + 0.1, 0.999) == ClosingDecision(
        "b", ClosingReason.EXPIRED
    )


def test_condition_that_lapses_begins_anew() -> None:
    """The proxy heartbeats again for a moment: the wait starts over, with a new draw."""
    closing, held = GracefulClosing(RFD), tunnels("a", "b")
    assert closing.decide(held, known("a"), 0.0, 0.0) is None
    assert closing.decide(held, known("ab", count=2), 29 * MINUTE, 0.0) is None
    assert closing.decide(held, known("a"), 30 * MINUTE, 0.999) is None
    assert closing.decide(held, known("a"), 61 * MINUTE, 0.0) is None
    assert closing.decide(held, known("a"), 90 * MINUTE, 0.0) == ClosingDecision("b", ClosingReason.EXPIRED)


def test_each_tunnel_has_its_own_wait() -> None:
    """A proxy that expired just now is not closed on the account of one that expired long ago."""
    closing, held = GracefulClosing(RFD), tunnels("a", "b", "c")
    assert closing.decide(held, known("ac", count=2), 0.0, 0.0) is None
    held = tunnels("a", "d", "c")
    assert closing.decide(held, known("ad", count=2), 31 * MINUTE, 0.0) is None
    assert closing.decide(held, known("ad", count=2), 62 * MINUTE, 0.0) == ClosingDecision(
        "c", ClosingReason.EXPIRED
    )


def test_each_surplus_tunnel_waits_once() -> None:
    """Four too many are closed one after the other, each by its own wait: none before 30 minutes, all within 60."""
    closing, held, snapshot = GracefulClosing(RFD), tunnels("a", "b", "c", "d", "e"), known("ab")
    closed, now = [], 0.0
    while now <= 60 * MINUTE:
        closing_now = closing.decide(held, snapshot, now, 0.3)
        if closing_now is not None:
            closed.append((closing_now.proxy, now))
            held = [tunnel for tunnel in held if tunnel.proxy != closing_now.proxy]
        now += 1.0
    assert {proxy for proxy, _ in closed} == {"b", "c", "d", "e"}
    times = [at for _, at in closed]
    assert times[0] >= 30 * MINUTE
    assert len(set(times)) == 4


def test_wait_of_a_tunnel_is_not_drawn_again() -> None:
    """What became surplus first goes first, although another one became so with a luckier draw after it."""
    closing, held = GracefulClosing(RFD), tunnels("a", "b", "c")
    closing.decide(held, known("ab", count=2), 0.0, 0.5)
    assert closing.decide(held, known("a", count=1), 20 * MINUTE, 0.0) is None
    assert closing.decide(held, known("a", count=1), 44.9 * MINUTE, 0.0) is None
    assert closing.decide(held, known("a", count=1), 45 * MINUTE, 0.0) == ClosingDecision(
        "c", ClosingReason.EXPIRED
    )
    left = tunnels("a", "b")
    assert closing.decide(left, known("a", count=1), 49.9 * MINUTE, 0.0) is None
    assert closing.decide(left, known("a", count=1), 50 * MINUTE, 0.0) == ClosingDecision(
        "b", ClosingReason.EXPIRED
    )


def test_expired_tunnel_closes_though_fewer_proxies_are_desired_than_tunnels_wanted() -> None:
    """Three wanted, two proxies there are, the third expired: it is closed once its wait is over."""
    closing, held, snapshot = GracefulClosing(RFD), tunnels("a", "b", "c"), known("ab", count=3)
    assert closing.decide(held, snapshot, 0.0, 0.999) is None
    assert closing.decide(held, snapshot, 60 * MINUTE, 0.0) == ClosingDecision("c", ClosingReason.EXPIRED)


def test_flapping_proxy_does_not_hold_its_tunnel_for_ever() -> None:
    """Expired and back, again and again: the tunnel is surplus either way, so its wait goes on."""
    closing, held = GracefulClosing(RFD), tunnels("a", "b")
    for turn in range(3):
        assert closing.decide(held, known("a" if turn % 2 else "ab"), turn * 10 * MINUTE, 0.0) is None
    assert closing.decide(held, known("a"), 30 * MINUTE, 0.0) == ClosingDecision("b", ClosingReason.EXPIRED)


def test_who_goes_is_decided_when_the_wait_is_over() -> None:
    """Users came to the newer tunnel meanwhile: the other one goes, and none goes after it."""
    closing, snapshot = GracefulClosing(RFD), known("abc", count=2)
    held = tunnels("a", "b", "c")
    assert closing.decide(held, snapshot, 0.0, 0.0) is None
    busy = [replace(one, sessions=int(one.proxy == "c")) for one in held]
    assert closing.decide(busy, snapshot, 30 * MINUTE, 0.0) == ClosingDecision("b", ClosingReason.EXCESS)
    left = [one for one in busy if one.proxy != "b"]
    for now in (31 * MINUTE, 200 * MINUTE):
        assert closing.decide(left, snapshot, now, 0.0) is None


def test_which_one_goes() -> None:
    """Expired before excess; then who has fewest users; then the newest."""
    for held, chosen in (
        ([*tunnels("a", "b"), LiveTunnel("x", 0.0, sessions=9)], "x"),
        ([LiveTunnel("a", 0.0, sessions=1), LiveTunnel("b", 1.0, sessions=2)], "a"),
        (tunnels("a", "b"), "b"),
    ):
        closing = GracefulClosing(RFD)
        closing.decide(held, known("ab"), 0.0, 0.0)
        found = closing.decide(held, known("ab"), 31 * MINUTE, 0.0)
        assert found is not None
        assert found.proxy == chosen


def test_others_must_be_heard_of_first() -> None:
    """A proxy may have frozen unseen: nothing is closed before the others answered since it came to closing."""
    closing = GracefulClosing(ClosingPolicy(graceful=True, wait=(10.0, 10.0)))
    snapshot = known("ab")
    silent = [LiveTunnel("a", 0.0, last_seen_at=9.0), LiveTunnel("b", 1.0, last_seen_at=9.0)]
    assert closing.decide(silent, snapshot, 0.0, 0.0) is None
    assert closing.decide(silent, snapshot, 10.0, 0.0) is None
    assert closing.pings_requested_at == 10.0
    assert closing.decide(silent, snapshot, 1000.0, 0.0) is None
    assert closing.pings_requested_at == 10.0
    answered = [LiveTunnel("a", 0.0, last_seen_at=1001.0), silent[1]]
    assert closing.decide(answered, snapshot, 1001.0, 0.0) == ClosingDecision("b", ClosingReason.EXCESS)
    assert closing.pings_requested_at is None


def test_policy_change_starts_over() -> None:
    """Bounds made shorter do not reach back; switched off, nothing is closed."""
    closing, held, snapshot = GracefulClosing(RFD), tunnels("a", "b"), known("a")
    closing.decide(held, snapshot, 0.0, 0.0)
    closing.set_policy(ClosingPolicy(graceful=True, wait=(5.0, 10.0)))
    assert closing.decide(held, snapshot, 60.0, 0.0) is None
    closing.set_policy(ClosingPolicy(graceful=True, wait=(5.0, 10.0)))
    assert closing.decide(held, snapshot, 66.0, 0.0) == ClosingDecision("b", ClosingReason.EXPIRED)
    closing.set_policy(ClosingPolicy())
    assert closing.decide(held, snapshot, 1e9, 0.0) is None


class TestAgentPoolTryDisconnect:
    """Upstream's cases, by its names."""

    def test_agents_do_not_disconnect_when_threshold_is_unspecified(self) -> None:
        """No threshold, no closing."""
        closing = GracefulClosing()
        for now in (0.0, 1e9):
            assert closing.decide(tunnels("a", "b", rtt=1.0), known("ab"), now, 0.0) is None

    def test_wait_for_all_agents_to_report_rtt(self) -> None:
        """One without a measurement, and nothing happens."""
        closing = GracefulClosing(UPSTREAM)
        held = [*tunnels("a", rtt=0.1), LiveTunnel("b", 0.0), *tunnels("x")]
        for now in (0.0, 31 * MINUTE):
            assert closing.decide(held, known("ab"), now, 0.0) is None
        measured = [replace(one, rtt=one.rtt or 0.2) for one in held]
        assert closing.decide(measured, known("ab"), 32 * MINUTE, 0.0) == ClosingDecision(
            "b", ClosingReason.EXCESS
        )

    def test_wait_for_disconnect_threshold_after_last_connectivity_change(self) -> None:
        """Strictly later than threshold after a tunnel came or went, a closing of ours too."""
        closing, snapshot = GracefulClosing(UPSTREAM), known("abc")
        closing.decide(tunnels("a", "b", rtt=0.1), snapshot, 0.0, 0.0)
        held = tunnels("a", "b", "c", rtt=0.1)
        closing.decide(held, snapshot, 20 * MINUTE, 0.0)
        assert closing.decide(held, snapshot, 50 * MINUTE, 0.0) is None
        assert closing.decide(held, snapshot, 50 * MINUTE + 1, 0.0) is not None
        assert closing.decide(held, snapshot, 80 * MINUTE, 0.0) is None
        assert closing.decide(held, snapshot, 81 * MINUTE, 0.0) is not None

    def test_wait_for_disconnect_threshold_after_last_topology_change(self) -> None:
        """Strictly later than threshold after the desired set changed."""
        closing, held = GracefulClosing(UPSTREAM), tunnels("a", "b", rtt=0.1)
        closing.decide(held, known("ab"), 0.0, 0.0)
        changed = known("abc", changed_at=25 * MINUTE)
        assert closing.decide(held, changed, 55 * MINUTE, 0.0) is None
        assert closing.decide(held, changed, 55 * MINUTE + 1, 0.0) is not None

    def test_highest_rtt_of_desired_proxies_goes(self) -> None:
        """Not the slower one on an expired proxy, not the one of an older generation."""
        closing = GracefulClosing(UPSTREAM)
        held = [
            LiveTunnel(proxy, 0.0, rtt=rtt)
            for proxy, rtt in (("a", 0.1), ("b", 0.3), ("c", 0.2), ("x", 0.9), ("o", 0.8))
        ]
        snapshot = known("abc", older="o", count=2)
        closing.decide(held, snapshot, 0.0, 0.0)
        assert closing.decide(held, snapshot, 31 * MINUTE, 0.0) == ClosingDecision("b", ClosingReason.EXCESS)

    def test_no_more_than_the_count(self) -> None:
        """Connections to desired proxies as configured, or a mesh: nothing to close."""
        for count in (2, 0):
            closing = GracefulClosing(UPSTREAM)
            held = tunnels("a", "b", "x", rtt=0.1)
            for now in (0.0, 31 * MINUTE):
                assert closing.decide(held, known("ab", count=count), now, 0.0) is None


PROXIES = "abcdef"
STEPS = st.lists(
    st.tuples(
        st.sets(st.sampled_from(PROXIES), max_size=6),  # tunnels that stand
        st.dictionaries(
            st.sampled_from(PROXIES), st.integers(0, 1), max_size=6
        ),  # generation of tracked ones
        st.floats(0.0, 40 * MINUTE),  # time until the next step
        st.floats(0.0, 1.0, exclude_max=True),
        st.sets(st.sampled_from(PROXIES), max_size=2),  # draining
    ),
    max_size=30,
)


@settings(deadline=None)
@given(STEPS, st.integers(0, 3), st.sampled_from([RFD, UPSTREAM, ClosingPolicy()]))
def test_laws(
    steps: list[tuple[set[str], dict[str, int], float, float, set[str]]], count: int, policy: ClosingPolicy
) -> None:
    """Whatever happens: no closing below the desired count, of the last, of an older generation, or in a hurry."""
    closing, now, last, surplus_since = GracefulClosing(policy), 0.0, float("-inf"), float("inf")
    shortest = policy.threshold or policy.wait[0]
    for held, generations, wait, chance, draining in steps:
        newest = max(generations.values(), default=0)
        desired = {proxy for proxy, generation in generations.items() if generation == newest}
        snapshot = replace(known("".join(desired), count=count), tracked_proxies=tuple(sorted(generations)))
        live = [LiveTunnel(proxy, 0.0, rtt=0.1, is_draining=proxy in draining) for proxy in sorted(held)]
        surplus_since = min(surplus_since, now) if closable_by_rfd(live, snapshot) else float("inf")
        found = closing.decide(live, snapshot, now, chance)
        if found is not None:
            left = held - draining - {found.proxy}
            assert policy.active
            assert left
            assert found.proxy not in draining
            assert found.proxy not in set(generations) - desired
            wanted = min(count, len(desired)) if count else len(desired)
            assert len(left & desired) >= wanted
            assert now - (last if policy is UPSTREAM else surplus_since) >= shortest
            assert (found.reason is ClosingReason.EXPIRED) == (found.proxy not in generations)
            assert policy is RFD or found.reason is ClosingReason.EXCESS
            last = now
        now += wait
