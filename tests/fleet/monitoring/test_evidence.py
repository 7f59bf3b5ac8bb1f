"""Lifetimes of evidence."""

from __future__ import annotations

import pytest

from fleet.monitoring.evidence import ReconnectMode, Timing


@pytest.mark.parametrize(("interval", "stale_after"), [(0.6, 10.0), (3.0, 10.0), (5.0, 15.0), (60.0, 180.0)])
def test_stale_after_three_rounds_and_at_least_ten_seconds(interval: float, stale_after: float) -> None:
    """With a short poll interval data is not old after one failed poll."""
    assert Timing(round_interval=interval).stale_after == stale_after


def test_tunnels_never_outlive_what_is_fresh_by_much() -> None:
    """A tunnel counts for two polls and at least 10 s."""
    assert Timing(round_interval=0.6).tunnels_live_for == 10.0
    assert Timing(round_interval=30.0).tunnels_live_for == 60.0


@pytest.mark.parametrize("mode", ReconnectMode)
def test_mode_is_read_by_its_slug(mode: ReconnectMode) -> None:
    """Agents and the API use the same slugs."""
    assert ReconnectMode.from_slug(mode.slug) is mode


@pytest.mark.parametrize("slug", ["", "RECONNECT", "round_robin"])
def test_unknown_mode_slug_is_read_as_unknown(slug: str) -> None:
    """An agent of another version may have another mode."""
    assert ReconnectMode.from_slug(slug) is ReconnectMode.UNKNOWN
