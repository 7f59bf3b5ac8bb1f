from __future__ import annotations

import pytest

from fleet.monitoring.pollers.watch_steps import (
    WatchStep,
    decide_step,
    lease_seconds,
    renewal_seconds,
    response_seconds,
)
from fleet.monitoring.state.codec import FeedState
from fleet.monitoring.state.watch_leases import WatchLease

ADDRESS = "auth-1:3025"
FEED = FeedState(epoch="token", revision=3)


@pytest.mark.parametrize(
    ("lease", "feed", "expected_step"),
    [
        pytest.param(None, FEED, WatchStep.TAKE, id="expired"),
        pytest.param(None, FeedState(), WatchStep.TAKE, id="first round"),
        pytest.param(WatchLease("new", is_ready=False), FEED, WatchStep.WAIT, id="another worker opens"),
        pytest.param(
            WatchLease("token", is_ready=True, address=ADDRESS), FEED, WatchStep.APPLY, id="no changes"
        ),
        pytest.param(
            WatchLease("token", is_ready=True, address=ADDRESS, changes={4: b"", 5: b""}),
            FEED,
            WatchStep.APPLY,
            id="changes",
        ),
        pytest.param(
            WatchLease("token", is_ready=True, address=ADDRESS, changes={5: b""}),
            FEED,
            WatchStep.TAKE,
            id="gap",
        ),
        pytest.param(
            WatchLease("token", is_ready=True, address=ADDRESS, changes={4: b"", 6: b""}),
            FEED,
            WatchStep.TAKE,
            id="later gap",
        ),
        pytest.param(
            WatchLease("token", is_ready=True, address=ADDRESS),
            FeedState(),
            WatchStep.TAKE,
            id="record rebuilt",
        ),
        pytest.param(
            WatchLease("token", is_ready=True, address=ADDRESS),
            FeedState(epoch="list"),
            WatchStep.TAKE,
            id="another list",
        ),
        pytest.param(
            WatchLease("token", is_ready=True, address=ADDRESS),
            FeedState(epoch="token", is_listing=True),
            WatchStep.TAKE,
            id="list incomplete",
        ),
        pytest.param(
            WatchLease("token", is_ready=True, address="auth-2:3025"), FEED, WatchStep.TAKE, id="another auth"
        ),
    ],
)
def test_step_of_a_round(lease: WatchLease | None, feed: FeedState, expected_step: WatchStep) -> None:
    assert decide_step(lease, feed, {ADDRESS}) is expected_step


@pytest.mark.parametrize("round_interval", [0.6, 2.0, 5.0, 60.0])
def test_lease_survives_a_late_renewal(round_interval: float) -> None:
    """It lasts for a renewal with a response that takes its whole time, and, of long rounds, less than a round."""
    lease = lease_seconds(round_interval)
    assert lease > renewal_seconds(round_interval) + response_seconds(round_interval)
    assert round_interval < 2.0 or lease < round_interval
