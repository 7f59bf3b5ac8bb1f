"""Tunnels that agents close, by the RFD's rule and by Teleport's (`agentpool_test.go`,
TestAgentPoolTryDisconnect).
"""

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
    TunnelState,
    closable_by_rfd,
)
from fleet.protocol.recovery.tracker import TrackerSnapshot

MINUTE = 60.0
RFD = ClosingPolicy(graceful=True)
UPSTREAM = ClosingPolicy(threshold=30 * MINUTE)


def snapshot_of(
    desired_names: str,
    *,
    count: int = 1,
    older_names: str = "",
    claimed_names: str = "",
    changed_at: float = 0.0,
) -> TrackerSnapshot:
    """Return a tracker snapshot in which each letter is a proxy."""
    return TrackerSnapshot(
        connection_count=count,
        claimed_proxies=tuple(claimed_names),
        tracked_proxies=tuple(sorted(desired_names + older_names)),
        desired_proxies=tuple(sorted(desired_names)),
        last_announce_ttl=10.0,
        topology_changed_at=changed_at,
    )


def tunnels(*proxies: str, **options: float) -> list[TunnelState]:
    """Return tunnels that were opened one after the other."""
    return [TunnelState(proxy, opened_at=float(index), **options) for index, proxy in enumerate(proxies)]  # type: ignore[arg-type]


def test_policy_of_a_networking_config() -> None:
    """Off by default; the RFD's rule by its switch, with its bounds; Teleport's by its threshold."""
    assert not ClosingPolicy.of(NetworkingConfig()).is_active
    config = NetworkingConfig(graceful_tunnel_closing=True, tunnel_closing_wait_min=5.0)
    assert ClosingPolicy.of(config) == ClosingPolicy(graceful=True, wait_bounds=(5.0, 3600.0))
    assert ClosingPolicy.of(NetworkingConfig(tunnel_disconnect_threshold=9.0)).threshold == 9.0


@pytest.mark.parametrize(
    ("tunnel_proxies", "snapshot", "closable"),
    [
        ("ab", snapshot_of("a"), {"b": ClosingReason.EXPIRED}),
        ("ab", snapshot_of("ab"), {"a": ClosingReason.EXCESS, "b": ClosingReason.EXCESS}),
        (
            "abc",
            snapshot_of("ab"),
            {"a": ClosingReason.EXCESS, "b": ClosingReason.EXCESS, "c": ClosingReason.EXPIRED},
        ),
        ("ab", snapshot_of("ab", count=2), {}),
        # With fewer desired proxies than desired tunnels, an expired one is surplus, too.
        ("ab", snapshot_of("a", count=2), {"b": ClosingReason.EXPIRED}),
        ("abc", snapshot_of("ab", count=3), {"c": ClosingReason.EXPIRED}),
        # Not while another desired proxy can be dialled.
        ("ac", snapshot_of("ab", count=3), {}),
        ("ab", snapshot_of("ac", count=2), {}),
        ("abc", snapshot_of("ab", count=2), {"c": ClosingReason.EXPIRED}),
        # Nothing is tracked, so it is unknown which proxies work.
        ("abc", snapshot_of(""), {}),
        # A rollout: the old generation has not expired; the new one is connected or not.
        ("ab", snapshot_of("a", older_names="b"), {}),
        ("b", snapshot_of("a", older_names="b"), {}),
        (
            "abc",
            snapshot_of("ab", older_names="c", count=1),
            {"a": ClosingReason.EXCESS, "b": ClosingReason.EXCESS},
        ),
        # The last tunnel.
        ("b", snapshot_of("a"), {}),
        # Only expired tunnels, while other proxies can be dialled.
        ("bc", snapshot_of("a"), {}),
        # A mesh has no excess; expired tunnels close once every desired proxy is connected.
        ("abc", snapshot_of("abc", count=0), {}),
        ("abc", snapshot_of("ab", count=0), {"c": ClosingReason.EXPIRED}),
        ("ac", snapshot_of("ab", count=0), {}),
    ],
)
def test_closable_by_rfd(
    tunnel_proxies: str, snapshot: TrackerSnapshot, closable: dict[str, ClosingReason]
) -> None:
    """Expired or excess tunnels; never below the desired count, the last, or an older generation."""
    assert closable_by_rfd(tunnels(*tunnel_proxies), snapshot) == closable


def test_draining_tunnels_do_not_count() -> None:
    """A tunnel that is draining makes no excess, and allows no other to close."""
    live_tunnels = [*tunnels("a"), replace(tunnels("b")[0], is_draining=True)]
    assert closable_by_rfd(live_tunnels, snapshot_of("ab")) == {}


@pytest.mark.parametrize(
    ("chance", "wait"), [(0.0, 30 * MINUTE), (0.5, 45 * MINUTE), (0.999, 59.97 * MINUTE)]
)
def test_condition_must_hold_for_the_wait(chance: float, wait: float) -> None:
    """The wait is 30 to 60 minutes, drawn once when the condition begins."""
    closing, live_tunnels, snapshot = GracefulClosing(RFD), tunnels("a", "b"), snapshot_of("a")
    assert closing.decide(live_tunnels, snapshot, 100.0, chance) is None
    assert closing.decide(live_tunnels, snapshot, 100.0 + wait - 0.1, 0.0) is None
    assert closing.decide(live_tunnels, snapshot, 100.0 + wait + 0.1, 0.999) == ClosingDecision(
        "b", ClosingReason.EXPIRED
    )


def test_condition_that_ends_starts_over() -> None:
    """A heartbeat of the proxy restarts the wait with a new draw."""
    closing, live_tunnels = GracefulClosing(RFD), tunnels("a", "b")
    assert closing.decide(live_tunnels, snapshot_of("a"), 0.0, 0.0) is None
    assert closing.decide(live_tunnels, snapshot_of("ab", count=2), 29 * MINUTE, 0.0) is None
    assert closing.decide(live_tunnels, snapshot_of("a"), 30 * MINUTE, 0.999) is None
    assert closing.decide(live_tunnels, snapshot_of("a"), 61 * MINUTE, 0.0) is None
    assert closing.decide(live_tunnels, snapshot_of("a"), 90 * MINUTE, 0.0) == ClosingDecision(
        "b", ClosingReason.EXPIRED
    )


def test_each_tunnel_has_its_own_wait() -> None:
    """A tunnel whose proxy just expired does not use the wait of one that expired earlier."""
    closing, live_tunnels = GracefulClosing(RFD), tunnels("a", "b", "c")
    assert closing.decide(live_tunnels, snapshot_of("ac", count=2), 0.0, 0.0) is None
    live_tunnels = tunnels("a", "d", "c")
    assert closing.decide(live_tunnels, snapshot_of("ad", count=2), 31 * MINUTE, 0.0) is None
    assert closing.decide(live_tunnels, snapshot_of("ad", count=2), 62 * MINUTE, 0.0) == ClosingDecision(
        "c", ClosingReason.EXPIRED
    )


def test_each_surplus_tunnel_waits_once() -> None:
    """Four surplus tunnels close one after the other, each by its own wait of 30 to 60 minutes."""
    closing, live_tunnels, snapshot = (
        GracefulClosing(RFD),
        tunnels("a", "b", "c", "d", "e"),
        snapshot_of("ab"),
    )
    closings, now = [], 0.0
    while now <= 60 * MINUTE:
        decision = closing.decide(live_tunnels, snapshot, now, 0.3)
        if decision is not None:
            closings.append((decision.proxy, now))
            live_tunnels = [tunnel for tunnel in live_tunnels if tunnel.proxy != decision.proxy]
        now += 1.0
    assert {proxy for proxy, _ in closings} == {"b", "c", "d", "e"}
    times = [at for _, at in closings]
    assert times[0] >= 30 * MINUTE
    assert len(set(times)) == 4


def test_wait_of_a_tunnel_is_drawn_once() -> None:
    """The first surplus tunnel closes first, even if a later one has a shorter draw."""
    closing, live_tunnels = GracefulClosing(RFD), tunnels("a", "b", "c")
    closing.decide(live_tunnels, snapshot_of("ab", count=2), 0.0, 0.5)
    assert closing.decide(live_tunnels, snapshot_of("a", count=1), 20 * MINUTE, 0.0) is None
    assert closing.decide(live_tunnels, snapshot_of("a", count=1), 44.9 * MINUTE, 0.0) is None
    assert closing.decide(live_tunnels, snapshot_of("a", count=1), 45 * MINUTE, 0.0) == ClosingDecision(
        "c", ClosingReason.EXPIRED
    )
    remaining_tunnels = tunnels("a", "b")
    assert closing.decide(remaining_tunnels, snapshot_of("a", count=1), 49.9 * MINUTE, 0.0) is None
    assert closing.decide(remaining_tunnels, snapshot_of("a", count=1), 50 * MINUTE, 0.0) == ClosingDecision(
        "b", ClosingReason.EXPIRED
    )


def test_expired_tunnel_closes_with_fewer_proxies_than_desired_tunnels() -> None:
    """Three tunnels are desired, two proxies exist, and the third expired: it closes after its wait."""
    closing, live_tunnels, snapshot = GracefulClosing(RFD), tunnels("a", "b", "c"), snapshot_of("ab", count=3)
    assert closing.decide(live_tunnels, snapshot, 0.0, 0.999) is None
    assert closing.decide(live_tunnels, snapshot, 60 * MINUTE, 0.0) == ClosingDecision(
        "c", ClosingReason.EXPIRED
    )


def test_flapping_proxy_does_not_restart_the_wait() -> None:
    """The tunnel is surplus whether its proxy expired or not."""
    closing, live_tunnels = GracefulClosing(RFD), tunnels("a", "b")
    for turn in range(3):
        assert (
            closing.decide(live_tunnels, snapshot_of("a" if turn % 2 else "ab"), turn * 10 * MINUTE, 0.0)
            is None
        )
    assert closing.decide(live_tunnels, snapshot_of("a"), 30 * MINUTE, 0.0) == ClosingDecision(
        "b", ClosingReason.EXPIRED
    )


def test_tunnel_to_close_is_chosen_after_the_wait() -> None:
    """The newer tunnel got sessions meanwhile, so the other one closes, and none after it."""
    closing, snapshot = GracefulClosing(RFD), snapshot_of("abc", count=2)
    live_tunnels = tunnels("a", "b", "c")
    assert closing.decide(live_tunnels, snapshot, 0.0, 0.0) is None
    busy_tunnels = [replace(tunnel, session_count=int(tunnel.proxy == "c")) for tunnel in live_tunnels]
    assert closing.decide(busy_tunnels, snapshot, 30 * MINUTE, 0.0) == ClosingDecision(
        "b", ClosingReason.EXCESS
    )
    remaining_tunnels = [tunnel for tunnel in busy_tunnels if tunnel.proxy != "b"]
    for now in (31 * MINUTE, 200 * MINUTE):
        assert closing.decide(remaining_tunnels, snapshot, now, 0.0) is None


def test_order_of_closing() -> None:
    """Expired before excess; then the fewest sessions; then the newest."""
    for live_tunnels, expected in (
        ([*tunnels("a", "b"), TunnelState("x", 0.0, session_count=9)], "x"),
        ([TunnelState("a", 0.0, session_count=1), TunnelState("b", 1.0, session_count=2)], "a"),
        (tunnels("a", "b"), "b"),
    ):
        closing = GracefulClosing(RFD)
        closing.decide(live_tunnels, snapshot_of("ab"), 0.0, 0.0)
        decision = closing.decide(live_tunnels, snapshot_of("ab"), 31 * MINUTE, 0.0)
        assert decision is not None
        assert decision.proxy == expected


def test_other_tunnels_must_respond_before_closing() -> None:
    """Another proxy may be frozen: nothing closes before the others responded to a ping."""
    closing = GracefulClosing(ClosingPolicy(graceful=True, wait_bounds=(10.0, 10.0)))
    snapshot = snapshot_of("ab")
    silent_tunnels = [TunnelState("a", 0.0, last_seen_at=9.0), TunnelState("b", 1.0, last_seen_at=9.0)]
    assert closing.decide(silent_tunnels, snapshot, 0.0, 0.0) is None
    assert closing.decide(silent_tunnels, snapshot, 10.0, 0.0) is None
    assert closing.pings_requested_at == 10.0
    assert closing.decide(silent_tunnels, snapshot, 1000.0, 0.0) is None
    assert closing.pings_requested_at == 10.0
    live_tunnels = [TunnelState("a", 0.0, last_seen_at=1001.0), silent_tunnels[1]]
    assert closing.decide(live_tunnels, snapshot, 1001.0, 0.0) == ClosingDecision("b", ClosingReason.EXCESS)
    assert closing.pings_requested_at is None


def test_policy_change_starts_over() -> None:
    """Shorter bounds restart the wait; without a policy nothing closes."""
    closing, live_tunnels, snapshot = GracefulClosing(RFD), tunnels("a", "b"), snapshot_of("a")
    closing.decide(live_tunnels, snapshot, 0.0, 0.0)
    closing.set_policy(ClosingPolicy(graceful=True, wait_bounds=(5.0, 10.0)))
    assert closing.decide(live_tunnels, snapshot, 60.0, 0.0) is None
    closing.set_policy(ClosingPolicy(graceful=True, wait_bounds=(5.0, 10.0)))
    assert closing.decide(live_tunnels, snapshot, 66.0, 0.0) == ClosingDecision("b", ClosingReason.EXPIRED)
    closing.set_policy(ClosingPolicy())
    assert closing.decide(live_tunnels, snapshot, 1e9, 0.0) is None


class TestAgentPoolTryDisconnect:
    """Teleport's cases, with their names."""

    def test_agents_do_not_disconnect_when_threshold_is_unspecified(self) -> None:
        closing = GracefulClosing()
        for now in (0.0, 1e9):
            assert closing.decide(tunnels("a", "b", rtt=1.0), snapshot_of("ab"), now, 0.0) is None

    def test_wait_for_all_agents_to_report_rtt(self) -> None:
        """Nothing closes while a tunnel has no RTT."""
        closing = GracefulClosing(UPSTREAM)
        live_tunnels = [*tunnels("a", rtt=0.1), TunnelState("b", 0.0), *tunnels("x")]
        for now in (0.0, 31 * MINUTE):
            assert closing.decide(live_tunnels, snapshot_of("ab"), now, 0.0) is None
        measured_tunnels = [replace(tunnel, rtt=tunnel.rtt or 0.2) for tunnel in live_tunnels]
        assert closing.decide(measured_tunnels, snapshot_of("ab"), 32 * MINUTE, 0.0) == ClosingDecision(
            "b", ClosingReason.EXCESS
        )

    def test_wait_for_disconnect_threshold_after_last_connectivity_change(self) -> None:
        """Strictly later than the threshold after a tunnel opened or closed, including by this rule."""
        closing, snapshot = GracefulClosing(UPSTREAM), snapshot_of("abc")
        closing.decide(tunnels("a", "b", rtt=0.1), snapshot, 0.0, 0.0)
        live_tunnels = tunnels("a", "b", "c", rtt=0.1)
        closing.decide(live_tunnels, snapshot, 20 * MINUTE, 0.0)
        assert closing.decide(live_tunnels, snapshot, 50 * MINUTE, 0.0) is None
        assert closing.decide(live_tunnels, snapshot, 50 * MINUTE + 1, 0.0) is not None
        assert closing.decide(live_tunnels, snapshot, 80 * MINUTE, 0.0) is None
        assert closing.decide(live_tunnels, snapshot, 81 * MINUTE, 0.0) is not None

    def test_wait_for_disconnect_threshold_after_last_topology_change(self) -> None:
        """Strictly later than the threshold after the desired set changed."""
        closing, live_tunnels = GracefulClosing(UPSTREAM), tunnels("a", "b", rtt=0.1)
        closing.decide(live_tunnels, snapshot_of("ab"), 0.0, 0.0)
        changed_snapshot = snapshot_of("abc", changed_at=25 * MINUTE)
        assert closing.decide(live_tunnels, changed_snapshot, 55 * MINUTE, 0.0) is None
        assert closing.decide(live_tunnels, changed_snapshot, 55 * MINUTE + 1, 0.0) is not None

    def test_highest_rtt_of_desired_proxies_closes(self) -> None:
        """Slower tunnels on expired proxies or older generations stay."""
        closing = GracefulClosing(UPSTREAM)
        live_tunnels = [
            TunnelState(proxy, 0.0, rtt=rtt)
            for proxy, rtt in (("a", 0.1), ("b", 0.3), ("c", 0.2), ("x", 0.9), ("o", 0.8))
        ]
        snapshot = snapshot_of("abc", older_names="o", count=2)
        closing.decide(live_tunnels, snapshot, 0.0, 0.0)
        assert closing.decide(live_tunnels, snapshot, 31 * MINUTE, 0.0) == ClosingDecision(
            "b", ClosingReason.EXCESS
        )

    def test_no_excess_nothing_closes(self) -> None:
        """As many tunnels as desired, or a mesh."""
        for count in (2, 0):
            closing = GracefulClosing(UPSTREAM)
            live_tunnels = tunnels("a", "b", "x", rtt=0.1)
            for now in (0.0, 31 * MINUTE):
                assert closing.decide(live_tunnels, snapshot_of("ab", count=count), now, 0.0) is None


PROXIES = "abcdef"
STEPS = st.lists(
    st.tuples(
        st.sets(st.sampled_from(PROXIES), max_size=6),  # open tunnels
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
    """Nothing closes below the desired count, as the last, of an older generation, or before the wait."""
    closing, now, closed_at, surplus_since = GracefulClosing(policy), 0.0, float("-inf"), float("inf")
    minimum = policy.threshold or policy.wait_bounds[0]
    for tunnel_proxies, generations, wait, chance, draining_proxies in steps:
        newest = max(generations.values(), default=0)
        desired_proxies = {proxy for proxy, generation in generations.items() if generation == newest}
        snapshot = replace(
            snapshot_of("".join(desired_proxies), count=count), tracked_proxies=tuple(sorted(generations))
        )
        live_tunnels = [
            TunnelState(proxy, 0.0, rtt=0.1, is_draining=proxy in draining_proxies)
            for proxy in sorted(tunnel_proxies)
        ]
        surplus_since = min(surplus_since, now) if closable_by_rfd(live_tunnels, snapshot) else float("inf")
        decision = closing.decide(live_tunnels, snapshot, now, chance)
        if decision is not None:
            remaining_proxies = tunnel_proxies - draining_proxies - {decision.proxy}
            assert policy.is_active
            assert remaining_proxies
            assert decision.proxy not in draining_proxies
            assert decision.proxy not in set(generations) - desired_proxies
            desired_count = min(count, len(desired_proxies)) if count else len(desired_proxies)
            assert len(remaining_proxies & desired_proxies) >= desired_count
            assert now - (closed_at if policy is UPSTREAM else surplus_since) >= minimum
            assert (decision.reason is ClosingReason.EXPIRED) == (decision.proxy not in generations)
            assert policy is RFD or decision.reason is ClosingReason.EXCESS
            closed_at = now
        now += wait
