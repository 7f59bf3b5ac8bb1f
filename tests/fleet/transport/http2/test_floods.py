"""What a connection bears of a peer that makes it work for nothing."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import pytest

from fleet.transport.http2 import floods
from fleet.transport.http2.floods import IdleFrameBudget, ResetBudget
from fleet.transport.http2.frames import Code, ConnectionBrokenError


def times(count: int, act: Callable[[], None]) -> None:
    for _ in range(count):
        act()


def test_resets_at_once_and_over_time() -> None:
    """A thousand at once, and two hundred more for each second that passes; never more than a thousand saved up."""
    now = [0.0]
    resets = ResetBudget(lambda: now[0])
    times(1_000, resets.count)
    with pytest.raises(ConnectionBrokenError) as caught:
        resets.count()
    assert caught.value.code is Code.ENHANCE_YOUR_CALM
    resets = ResetBudget(lambda: now[0])
    for seconds in (3600.0, 3605.0):
        now[0] = seconds
        times(1_000, resets.count)
    with pytest.raises(ConnectionBrokenError):
        resets.count()


@pytest.mark.parametrize(("now", "is_free"), [(9.8, False), (9.91, True), (10.5, True)])
def test_resets_at_the_deadline_of_the_client_are_free(now: float, is_free: bool) -> None:
    """A client resets what it does not wait for any longer; a busy server reads a request late."""
    resets = ResetBudget(lambda: now)
    times(1_000, resets.count)
    with contextlib.nullcontext() if is_free else pytest.raises(ConnectionBrokenError):
        resets.count_client_reset(10.0)


def test_resets_without_a_deadline_are_counted() -> None:
    """A client that cancels a call soon after its begin has the server work for nothing."""
    resets = ResetBudget(lambda: 1e6)
    times(1_000, lambda: resets.count_client_reset(math.inf))
    with pytest.raises(ConnectionBrokenError):
        resets.count_client_reset(math.inf)


def test_late_reset_of_each_ended_stream_is_free_once() -> None:
    """The end of a stream and the reset by its client cross; more resets than streams are a flood."""
    resets = ResetBudget(lambda: 0.0)
    times(1_000, resets.count)
    times(5_000, resets.record_ended_stream)
    times(5_000, lambda: resets.count_client_reset(None))
    with pytest.raises(ConnectionBrokenError):
        resets.count_client_reset(None)


def test_stream_that_its_client_reset_gives_no_late_reset() -> None:
    """It was reset already."""
    resets = ResetBudget(lambda: 0.0)
    resets.count_client_reset(0.0)
    resets.record_ended_stream()
    times(1_000, lambda: resets.count_client_reset(None))
    with pytest.raises(ConnectionBrokenError):
        resets.count_client_reset(None)


def test_pings_without_data() -> None:
    """A hundred at once, and ten more for each second; the words are those that gRPC clients know."""
    now = [0.0]
    idle = IdleFrameBudget(lambda: now[0])
    times(100, lambda: idle.count_ping(0))
    now[0] = 1.0
    times(10, lambda: idle.count_ping(0))
    with pytest.raises(ConnectionBrokenError, match=r"^too_many_pings$") as caught:
        idle.count_ping(0)

    assert caught.value.code is Code.ENHANCE_YOUR_CALM


def test_pings_after_data_are_free() -> None:
    """A client that measures bandwidth pings after data, thousands of times a second."""
    idle = IdleFrameBudget(lambda: 0.0)
    for sent in range(5_000):
        idle.count_ping(sent)


def test_other_frames_that_move_nothing() -> None:
    """They have a budget of their own."""
    idle = IdleFrameBudget(lambda: 0.0)
    times(100, lambda: idle.count_ping(0))
    times(100, idle.count_other)
    with pytest.raises(ConnectionBrokenError, match="without effect"):
        idle.count_other()


@pytest.mark.parametrize(("size", "frames"), [(1 << 30, 0), (0, 1 << 20)])
def test_peer_that_does_not_read(size: int, frames: int) -> None:
    """Bytes it does not take, or frames it has us write at once, are bounded."""
    floods.check_unsent(0, 0)
    with pytest.raises(ConnectionBrokenError):
        floods.check_unsent(size, frames)
