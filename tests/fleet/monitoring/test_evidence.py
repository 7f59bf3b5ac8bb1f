"""How long evidence counts."""

from __future__ import annotations

import pytest

from fleet.monitoring.evidence import ReconnectMode, Timing


@pytest.mark.parametrize(("interval", "stale_after"), [(0.6, 10.0), (3.0, 10.0), (5.0, 15.0), (60.0, 180.0)])
def test_stale_after_three_rounds_and_at_least_ten_seconds(interval: float, stale_after: float) -> None:
    """Quick rounds do not make data look old after one hiccup."""
    assert Timing(round_interval=interval).stale_after == stale_after


def test_tunnels_never_outlive_what_is_fresh_by_much() -> None:
    """A tunnel counts for two rounds, and for as long as a quick round's data counts."""
    assert Timing(round_interval=0.6).tunnels_live_for == 10.0
    assert Timing(round_interval=30.0).tunnels_live_for == 60.0


@pytest.mark.parametrize("mode", ReconnectMode)
def test_mode_is_read_by_its_slug(mode: ReconnectMode) -> None:
    """Agents and the API spell it alike."""
    assert ReconnectMode.read(mode.slug) is mode


@pytest.mark.parametrize("word", ["", "RECONNECT", "round_robin"])
def test_mode_that_nobody_knows_is_unknown(word: str) -> None:
    """An agent of another version may have a mode of its own."""
    assert ReconnectMode.read(word) is ReconnectMode.UNKNOWN
