"""Silence on a tunnel."""

from __future__ import annotations

import pytest

from fleet.protocol.keep_alive import KeepAlive, Liveness


@pytest.mark.parametrize(
    ("silence", "liveness"),
    [
        (0.0, Liveness.LIVE),
        (30.0, Liveness.LIVE),
        (30.1, Liveness.OFFLINE),
        (90.0, Liveness.OFFLINE),
        (90.1, Liveness.DEAD),
    ],
)
def test_liveness(silence: float, liveness: Liveness) -> None:
    """Offline after interval x count, dead after three times that."""
    assert KeepAlive(interval=10.0, count_max=3).liveness(5.0, 5.0 + silence) is liveness


def test_defaults_are_teleports() -> None:
    """Five minutes, three times: a quarter of an hour."""
    assert KeepAlive().timeout == 900.0
