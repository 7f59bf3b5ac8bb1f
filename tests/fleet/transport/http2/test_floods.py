"""Limits for a peer that causes work without effect."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import pytest

from fleet.transport.http2 import floods
from fleet.transport.http2.floods import IdleFrameBudget, ResetBudget
from fleet.transport.http2.frames import ErrorCode, Http2ConnectionError


def repeat(count: int, action: Callable[[], None]) -> None:
    for _ in range(count):
        action()


def test_resets_at_once_and_over_time() -> None:
    """A thousand at once, and 200 more per second; never more than a thousand in reserve."""
    now = [0.0]
    resets = ResetBudget(lambda: now[0])
    repeat(1_000, resets.count)
    with pytest.raises(Http2ConnectionError) as caught:
        resets.count()
    assert caught.value.code is ErrorCode.ENHANCE_YOUR_CALM
    resets = ResetBudget(lambda: now[0])
    for seconds in (3600.0, 3605.0):
        now[0] = seconds
        repeat(1_000, resets.count)
    with pytest.raises(Http2ConnectionError):
        resets.count()


@pytest.mark.parametrize(("now", "is_free"), [(9.8, False), (9.91, True), (10.5, True)])
def test_resets_at_the_deadline_of_the_client_are_free(now: float, is_free: bool) -> None:
    """Clients reset calls at their deadline; a busy server reads the request late."""
    resets = ResetBudget(lambda: now)
    repeat(1_000, resets.count)
    with contextlib.nullcontext() if is_free else pytest.raises(Http2ConnectionError):
        resets.count_client_reset(10.0)


def test_resets_without_a_deadline_are_counted() -> None:
    """A client that cancels calls right after their start causes work without effect."""
    resets = ResetBudget(lambda: 1e6)
    repeat(1_000, lambda: resets.count_client_reset(math.inf))
    with pytest.raises(Http2ConnectionError):
        resets.count_client_reset(math.inf)


def test_late_reset_of_each_ended_stream_is_free_once() -> None:
    """The end of a stream and the client's reset may cross; more resets than streams are a flood."""
    resets = ResetBudget(lambda: 0.0)
    repeat(1_000, resets.count)
    repeat(5_000, resets.record_ended_stream)
    repeat(5_000, lambda: resets.count_client_reset(None))
    with pytest.raises(Http2ConnectionError):
        resets.count_client_reset(None)


def test_reset_stream_allows_no_late_reset() -> None:
    resets = ResetBudget(lambda: 0.0)
    resets.count_client_reset(0.0)
    resets.record_ended_stream()
    repeat(1_000, lambda: resets.count_client_reset(None))
    with pytest.raises(Http2ConnectionError):
        resets.count_client_reset(None)


def test_pings_without_data() -> None:
    """A hundred at once, and ten more per second; the reason is the one that gRPC clients know."""
    now = [0.0]
    idle_frames = IdleFrameBudget(lambda: now[0])
    repeat(100, lambda: idle_frames.count_ping(0))
    now[0] = 1.0
    repeat(10, lambda: idle_frames.count_ping(0))
    with pytest.raises(Http2ConnectionError, match=r"^too_many_pings$") as caught:
        idle_frames.count_ping(0)

    assert caught.value.code is ErrorCode.ENHANCE_YOUR_CALM


def test_pings_after_data_are_free() -> None:
    """Clients that measure bandwidth ping after data, thousands of times per second."""
    idle_frames = IdleFrameBudget(lambda: 0.0)
    for data_count in range(5_000):
        idle_frames.count_ping(data_count)


def test_other_idle_frames_have_their_own_budget() -> None:
    idle_frames = IdleFrameBudget(lambda: 0.0)
    repeat(100, lambda: idle_frames.count_ping(0))
    repeat(100, idle_frames.count_other_frame)
    with pytest.raises(Http2ConnectionError, match="without effect"):
        idle_frames.count_other_frame()


@pytest.mark.parametrize(("size", "frames"), [(1 << 30, 0), (0, 1 << 20)])
def test_unsent_data_is_bounded(size: int, frames: int) -> None:
    """Both bytes that the peer does not read and frames that it makes us write are limited."""
    floods.check_unsent(0, 0)
    with pytest.raises(Http2ConnectionError):
        floods.check_unsent(size, frames)
