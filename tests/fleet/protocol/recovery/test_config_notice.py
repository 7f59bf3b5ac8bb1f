"""The time until agents act on a new config, by announce TTL and number of tunnels."""

from __future__ import annotations

import random
import statistics

import pytest

from fleet.protocol.recovery import announce, config_notice


@pytest.mark.parametrize(("tunnel_count", "seconds"), [(0, 1.0), (500, 1.5), (1_000, 2.0), (1_000_000, 60.0)])
def test_more_tunnels_spread_the_requests_longer(tunnel_count: int, seconds: float) -> None:
    """An auth handles about 1,000 heartbeats a second."""
    assert config_notice.spread_seconds_of(tunnel_count) == seconds


@pytest.mark.parametrize(
    ("ttl", "proxy_count", "seconds"),
    [(10.0, 1, 2.25), (10.0, 3, 2.75), (600.0, 4, 5.25), (None, 4, 5.25)],
)
def test_reaction_time_follows_the_interval_of_reads(
    ttl: float | None, proxy_count: int, seconds: float
) -> None:
    """A proxy reads every fifth of its TTL, at least every 5 s; the last of many does so at its end.

    A single agent then fetches the config after 1.25 s in the mean.
    """
    assert config_notice.reaction_seconds_of(ttl, 0, proxy_count) == seconds


@pytest.mark.parametrize("tunnels_per_agent", [1, 2, 3, 4])
def test_reaction_time_is_that_of_the_last_agent(tunnels_per_agent: int) -> None:
    """The first of its proxies that reads the config tells an agent; its heartbeat fetches it."""
    chance = random.Random(17)
    agents, proxies, ttl = 60, 4, 10.0
    tunnel_count = agents * tunnels_per_agent // proxies
    spread = config_notice.spread_seconds_of(tunnel_count)

    def act_last() -> float:
        read_at = [chance.random() * ttl / 5 for _ in range(proxies)]
        return max(
            min(at + chance.random() * spread for at in chance.sample(read_at, tunnels_per_agent))
            + announce.NEWS_DELAY * (1 + chance.random())
            for _ in range(agents)
        )

    forecast = config_notice.reaction_seconds_of(ttl, tunnel_count, proxies, tunnels_per_agent)
    assert forecast == pytest.approx(statistics.fmean(act_last() for _ in range(300)), rel=0.1)
