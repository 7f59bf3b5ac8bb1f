"""Agent pool: the times at which an agent dials."""

from __future__ import annotations

import pytest

from fleet.protocol.recovery.agent_pool import AgentPool, LinearBackoff, free_duplicates_of
from fleet.protocol.recovery.discovery import DiscoveredProxy
from fleet.protocol.recovery.tracker import Tracker


def test_backoff_grows_to_its_ceiling() -> None:
    """0, then 1 s to 8 s in steps, each with half jitter: [d/2, d)."""
    low, high = LinearBackoff(), LinearBackoff()
    assert [low.next_pause(0.0, 0.0) for _ in range(10)] == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4]
    assert [high.next_pause(0.0, 1.0) for _ in range(10)] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 8]


def test_backoff_of_another_step() -> None:
    """Multiples of the step, up to the ceiling."""
    backoff = LinearBackoff(step=4.0, ceiling=10.0)
    assert [backoff.next_pause(0.0, 0.0) for _ in range(5)] == [0, 2, 4, 5, 5]


def test_backoff_starts_over_when_unused() -> None:
    """It starts over after 32 s (four ceilings) without use."""
    backoff = LinearBackoff()
    backoff.next_pause(0.0, 0.0)
    backoff.next_pause(32.0, 0.0)
    assert backoff.next_pause(64.0, 0.0) == 1.0
    assert backoff.next_pause(96.1, 0.0) == 0.0
    backoff.next_pause(96.1, 0.0)
    backoff.reset()
    assert backoff.next_pause(96.2, 0.0) == 0.0


def test_pool_dials_one_at_a_time() -> None:
    """There is no second attempt during an attempt or its pause; afterwards the next proxy is dialled."""
    pool = AgentPool(Tracker("main"))
    pool.tracker.track_expected([DiscoveredProxy("a"), DiscoveredProxy("b")], 0.0)
    first = pool.next_dial(0.0)
    assert first is not None
    assert pool.next_dial(0.0) is None
    assert pool.wake_at(0.0) is None
    first.claim("a")
    pool.on_dial_end(1.0, 0.5)  # first pause: 0
    second = pool.next_dial(1.0)
    assert second is not None
    second.release()
    pool.on_dial_end(2.0, 0.0)  # second pause: 0.5 s
    assert pool.next_dial(2.4) is None
    assert pool.wake_at(2.4) == pytest.approx(2.5)
    assert pool.next_dial(2.5) is not None


def test_pool_waits_for_the_next_expiry() -> None:
    """With enough tunnels only an event or the next expiry can change the decision."""
    pool = AgentPool(Tracker("main", connection_count=1))
    lease = pool.next_dial(0.0)
    assert lease is not None
    lease.claim("a")
    pool.on_dial_end(0.0, 0.0)
    pool.tracker.track_expected([DiscoveredProxy("a", ttl=10.0)], 0.0)
    assert pool.next_dial(0.0) is None
    assert pool.wake_at(0.0) == 10.0


def test_pool_redials_at_once_after_a_duplicate() -> None:
    """There is no pause six times; then pauses grow from 0 as usual."""
    pool = AgentPool(Tracker("main"))
    pauses = [_pause_after_failed_dial(pool, now=0.0, is_duplicate=True) for _ in range(9)]
    assert pauses == [0.0] * 7 + [0.5, 1.0]
    # Unused for long, it starts over.
    assert [_pause_after_failed_dial(pool, now=50.0, is_duplicate=True) for _ in range(8)] == [0.0] * 7 + [
        0.5
    ]


def test_more_proxies_allow_more_duplicates() -> None:
    """Of 4 n dials, 2 % miss a given one of n proxies; at most 32 dials follow without a pause."""
    assert [free_duplicates_of(count) for count in (1, 2, 4, 100)] == [6, 8, 16, 32]
    pool = AgentPool(Tracker("main"))
    pool.tracker.track_expected([DiscoveredProxy(name) for name in "abc"], 0.0)
    dial_count = 0
    while (lease := pool.next_dial(0.0)) is not None:
        lease.release()
        pool.on_dial_end(0.0, 0.0, is_duplicate=True)
        dial_count += 1
    # After the 12 free ones, the first pause is 0, too.
    assert dial_count == 12 + 2
    assert pool.wake_at(0.0) == 0.5


def test_pool_pauses_after_failed_dials() -> None:
    """No dial follows at once if no proxy responded."""
    pool = AgentPool(Tracker("main"))
    assert [_pause_after_failed_dial(pool, now=0.0, is_duplicate=False) for _ in range(3)] == [0.0, 0.5, 1.0]


def test_pool_reset_ends_the_pause() -> None:
    """A pause that has begun ends, too."""
    pool = AgentPool(Tracker("main"))
    for _ in range(9):
        _pause_after_failed_dial(pool, now=0.0, is_duplicate=True)
    assert pool.next_dial(0.0) is None
    pool.reset_backoff()
    lease = pool.next_dial(0.0)
    assert lease is not None
    lease.release()
    pool.on_dial_end(0.0, 0.0, is_duplicate=True)
    assert pool.next_dial(0.0) is not None


def _pause_after_failed_dial(pool: AgentPool, *, now: float, is_duplicate: bool) -> float:
    """Return the pause after one failed dial, in seconds; the clock stands still."""
    pool._next_dial_at = None
    lease = pool.next_dial(now)
    assert lease is not None
    lease.release()
    pool.on_dial_end(now, 0.0, is_duplicate=is_duplicate)
    wake_at = pool.wake_at(now)
    return 0.0 if wake_at is None else wake_at - now
