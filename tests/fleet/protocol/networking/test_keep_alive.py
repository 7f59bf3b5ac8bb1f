"""Silence on a tunnel."""

from __future__ import annotations

import pytest

from fleet.protocol.networking.keep_alive import KeepAlive, TunnelLiveness, smoothed_rtt


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
def test_liveness(silence: float, liveness: TunnelLiveness) -> None:
    """Offline after interval x count, dead after three times that."""
    assert KeepAlive(interval=10.0, count_max=3).liveness(5.0, 5.0 + silence) is liveness


def test_defaults_are_teleports() -> None:
    """Five minutes, three times: a quarter of an hour."""
    assert KeepAlive().timeout == 900.0


def test_smoothed_rtt() -> None:
    """The first sample counts whole, later ones an eighth: one slow answer does not condemn a proxy."""
    assert smoothed_rtt(None, 0.2) == 0.2
    assert smoothed_rtt(0.2, 1.0) == pytest.approx(0.3)
    value = 1.0
    for _ in range(100):
        value = smoothed_rtt(value, 0.1)
    assert value == pytest.approx(0.1, abs=1e-3)


def test_towards_a_peer_of_another_interval() -> None:
    """The longer interval counts, within an hour: whoever has an older config is not taken for dead."""
    ours = KeepAlive(interval=1.0, count_max=3)
    assert ours.for_peer(0.0) == ours.for_peer(0.5) == ours
    assert ours.for_peer(300.0) == KeepAlive(300.0, 3)
    assert ours.for_peer(1e9).interval == 3600.0
