"""Keep-alive: liveness of a tunnel by the length of its silence."""

from __future__ import annotations

import pytest

from fleet.protocol.networking.keep_alive import KeepAlive, TunnelLiveness, smooth_rtt


@pytest.mark.parametrize(
    ("silence", "liveness"),
    [
        (0.0, TunnelLiveness.LIVE),
        (30.0, TunnelLiveness.LIVE),
        (30.1, TunnelLiveness.OFFLINE),
        (90.0, TunnelLiveness.OFFLINE),
        (90.1, TunnelLiveness.DEAD),
    ],
)
def test_liveness_by_silence(silence: float, liveness: TunnelLiveness) -> None:
    """A tunnel is offline after interval x count, and dead after three times as long."""
    assert KeepAlive(interval=10.0, count_max=3).liveness(5.0, 5.0 + silence) is liveness


def test_default_timeout_matches_teleport() -> None:
    """The default is 5 minutes x 3, which is 15 minutes."""
    assert KeepAlive().timeout == 900.0


def test_smoothed_rtt() -> None:
    """The first sample counts in full, later ones by an eighth: one slow response has little effect."""
    assert smooth_rtt(None, 0.2) == 0.2
    assert smooth_rtt(0.2, 1.0) == pytest.approx(0.3)
    rtt = 1.0
    for _ in range(100):
        rtt = smooth_rtt(rtt, 0.1)
    assert rtt == pytest.approx(0.1, abs=1e-3)


def test_longer_interval_of_the_peer_is_used() -> None:
    """The longer interval applies, up to an hour: a peer with an older config does not count as dead."""
    keep_alive = KeepAlive(interval=1.0, count_max=3)
    assert keep_alive.for_peer(0.0) == keep_alive.for_peer(0.5) == keep_alive
    assert keep_alive.for_peer(300.0) == KeepAlive(300.0, 3)
    assert keep_alive.for_peer(1e9).interval == 3600.0
