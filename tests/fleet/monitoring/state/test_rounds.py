from __future__ import annotations

import pytest
from redis import Redis

from fleet.monitoring.state.keys import Keys
from fleet.monitoring.state.rounds import Rounds, RoundStart


@pytest.fixture
def rounds(redis: Redis, prefix: str) -> Rounds:
    """Return rounds with a unique prefix."""
    return Rounds(redis, prefix)


def test_round_is_claimed_once(rounds: Rounds) -> None:
    """Clusters are independent."""
    assert rounds.claim("default", 7)
    assert not rounds.claim("default", 7)
    assert rounds.claim("default", 8)
    assert rounds.claim("east", 7)


def test_finish_returns_true_for_the_last_shard(rounds: Rounds) -> None:
    """Once, even if a shard finishes again."""
    assert rounds.begin("default", 7, [0, 1]) is None
    assert rounds.claim_shard("default", 7, 0)
    assert not rounds.claim_shard("default", 7, 0)
    assert not rounds.finish_shard("default", 7, 1)
    assert not rounds.finish_shard("default", 7, 1)
    assert rounds.finish_shard("default", 7, 0)
    assert not rounds.finish_shard("default", 7, 0)


def test_begin_returns_the_unfinished_round(rounds: Rounds) -> None:
    """A finished round is not returned; a late shard does not finish it again."""
    rounds.begin("default", 7, [0, 1])
    rounds.finish_shard("default", 7, 0)
    assert rounds.begin("default", 8, [0]) == 7
    assert not rounds.finish_shard("default", 7, 1)
    assert rounds.finish_shard("default", 8, 0)
    assert rounds.begin("default", 9, [0]) is None


def test_claim_has_the_start(redis: Redis, prefix: str, rounds: Rounds) -> None:
    """Of the process that won; a claim of another version, and no claim, have none."""
    start = RoundStart(10.0, "gen1@host", 9.9)
    rounds.claim("default", 7, start)
    rounds.claim("default", 7, RoundStart(11.0))
    assert rounds.read_start("default", 7) == start
    redis.set(Keys(prefix, "default").round_claim(8), 1)
    assert rounds.read_start("default", 8) is None
    assert rounds.read_start("default", 9) is None
