"""Reconnect waits grow up to a ceiling; a long-lived connection resets them."""

from __future__ import annotations

import pytest

from fleet.protocol.backoff import Backoff


@pytest.mark.parametrize(
    ("failures", "expected"), [(1, 1.0), (2, 1.5), (3, 2.25), (12, 60.0), (100_000, 60.0)]
)
def test_wait_grows_to_its_ceiling_with_half_jitter(failures: int, expected: float) -> None:
    """Each wait lies within 50 % of its expected value, which grows by the factor up to the ceiling."""
    backoff = Backoff()
    assert backoff.wait(failures, 0.0) == pytest.approx(expected / 2)
    assert backoff.wait(failures, 0.5) == pytest.approx(min(60, expected))
    assert backoff.wait(failures, 0.999999) == pytest.approx(expected * 1.5, rel=1e-4)


def test_failures_start_over_after_a_good_connection() -> None:
    """A connection that lasted resets the count; one that broke at once increments it."""
    backoff = Backoff(reset_after=30)
    assert backoff.failures_after(4, duration=29.9) == 5
    assert backoff.failures_after(4, duration=30) == 1
