"""The time until agents act on a new config, by announce TTL and number of tunnels."""

from __future__ import annotations

import pytest

from fleet.protocol.recovery import config_notice


@pytest.mark.parametrize(("tunnel_count", "seconds"), [(0, 1.0), (500, 1.5), (1_000, 2.0), (1_000_000, 60.0)])
def test_more_tunnels_spread_the_requests_longer(tunnel_count: int, seconds: float) -> None:
    """An auth handles about 1,000 heartbeats a second."""
    assert config_notice.spread_seconds_of(tunnel_count) == seconds


@pytest.mark.parametrize(
    ("ttl", "proxy_count", "seconds"), [(10.0, 1, 2.5), (10.0, 3, 3.0), (600.0, 4, 5.5), (None, 4, 5.5)]
)
def test_reaction_time_follows_the_interval_of_reads(
    ttl: float | None, proxy_count: int, seconds: float
) -> None:
    """A proxy reads every fifth of its TTL, at least every 5 s; the last of many does so at its end."""
    assert config_notice.reaction_seconds_of(ttl, 0, proxy_count) == seconds
