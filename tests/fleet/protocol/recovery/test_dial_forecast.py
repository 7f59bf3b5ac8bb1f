"""The dials of the slowest agent through a load balancer, and the pauses between them."""

from __future__ import annotations

import random

import pytest

from fleet.protocol.recovery.agent_pool import AgentPool
from fleet.protocol.recovery.dial_forecast import dial_seconds_of
from fleet.protocol.recovery.discovery import DiscoveredProxy
from fleet.protocol.recovery.tracker import ClaimError, Tracker


def test_one_missing_tunnel_among_many_proxies_needs_no_pause() -> None:
    """The first dials reach a missing proxy, and duplicates are repeated at once."""
    assert dial_seconds_of(held_count=1, missing_count=1, proxy_count=20, agent_count=1_000) == 0.0
    assert dial_seconds_of(held_count=3, missing_count=1, proxy_count=4, agent_count=60) == 0.0


def test_nothing_missing_takes_no_time() -> None:
    """Also if an agent has a tunnel to every proxy, or no agent dials."""
    assert dial_seconds_of(2, 0, 4, 10) == dial_seconds_of(4, 1, 4, 10) == dial_seconds_of(1, 1, 4, 0) == 0.0


def test_pauses_grow_with_the_missing_tunnels_and_the_agents() -> None:
    """A pause follows each opened tunnel; of more agents the slowest is slower."""
    few, many = dial_seconds_of(1, 3, 4, 60), dial_seconds_of(1, 3, 4, 10_000)
    assert 0.0 < few < many
    assert dial_seconds_of(1, 199, 200, 10_000) > 3_600


@pytest.mark.parametrize(("held_count", "missing_count"), [(1, 3), (0, 4), (2, 2), (3, 1)])
def test_forecast_is_the_time_of_the_slowest_agent(held_count: int, missing_count: int) -> None:
    """As the agent pool schedules the dials of 4,000 agents to random proxies."""
    chance = random.Random(17)
    times = [_dial_all(held_count, missing_count, 4, chance) for _ in range(4_000)]
    for agent_count in (10, 60, 200):
        # Half of the time, none of so many agents is slower: ln 2 are in the mean.
        forecast = dial_seconds_of(held_count, missing_count, 4, agent_count)
        slower_count = sum(seconds > 1.4 * forecast + 2.0 for seconds in times) * agent_count / len(times)
        as_slow_count = sum(seconds >= 0.6 * forecast - 2.0 for seconds in times) * agent_count / len(times)
        assert slower_count < 1.0
        assert as_slow_count > 0.5


def _dial_all(held_count: int, missing_count: int, proxy_count: int, chance: random.Random) -> float:
    """Return when an agent has opened its missing tunnels; each dial takes no time."""
    names = [f"p{number}" for number in range(proxy_count)]
    pool = AgentPool(Tracker("main", connection_count=held_count))
    pool.tracker.track_expected([DiscoveredProxy(name, ttl=1e6) for name in names], 0.0)
    for name in names[:held_count]:
        lease = pool.tracker.try_acquire(0.0)
        assert lease is not None
        lease.claim(name)
    pool.tracker.set_connection_count(held_count + missing_count)
    now = opened_at = 0.0
    while True:
        lease = pool.next_dial(now)
        if lease is None:
            wake_at = pool.wake_at(now)
            if wake_at is None or wake_at > 1e5:
                return opened_at
            now = wake_at
            continue
        try:
            lease.claim(chance.choice(names))
            is_duplicate, opened_at = False, now
        except ClaimError:
            lease.release()
            is_duplicate = True
        pool.on_dial_end(now, chance.random(), is_duplicate=is_duplicate)
