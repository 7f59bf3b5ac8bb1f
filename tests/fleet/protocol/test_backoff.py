"""Waits between attempts: they grow, stay bounded, and a good connection makes them small again."""

from __future__ import annotations

import pytest

from fleet.protocol.backoff import Backoff


@pytest.mark.parametrize(("failures", "middle"), [(1, 1.0), (2, 1.5), (3, 2.25), (12, 60.0), (100_000, 60.0)])
def test_wait_grows_to_its_ceiling_with_half_jitter(failures: int, middle: float) -> None:
    """Each wait lies half below to half above its middle, which grows by the factor up to the most."""
    backoff = Backoff()
    assert backoff.wait(failures, 0.0) == pytest.approx(middle / 2)
    assert backoff.wait(failures, 0.5) == pytest.approx(min(60, middle))
    assert backoff.wait(failures, 0.999999) == pytest.approx(middle * 1.5, rel=1e-4)


def test_failures_start_over_after_a_good_connection() -> None:
    """What lasted is forgotten, what broke at once is counted."""
    backoff = Backoff(good_after=30)
    assert backoff.failures(4, duration=29.9) == 5
    assert backoff.failures(4, duration=30) == 1
