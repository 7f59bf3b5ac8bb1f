from __future__ import annotations

import pytest
from redis import Redis

from fleet.monitoring.state.rounds import Rounds


@pytest.fixture
def rounds(redis: Redis, prefix: str) -> Rounds:
    """Rounds with a prefix of their own."""
    return Rounds(redis, prefix)


def test_round_is_claimed_once(rounds: Rounds) -> None:
    """However many beats there are, one starts it; clusters do not get in each other's way."""
    assert rounds.claim("default", 7)
    assert not rounds.claim("default", 7)
    assert rounds.claim("default", 8)
    assert rounds.claim("east", 7)


def test_last_shard_is_told_so(rounds: Rounds) -> None:
    """Once, whoever ends again."""
    assert rounds.begin("default", 7, [0, 1]) is None
    assert rounds.claim_shard("default", 7, 0)
    assert not rounds.claim_shard("default", 7, 0)
    assert not rounds.finish("default", 7, 1)
    assert not rounds.finish("default", 7, 1)
    assert rounds.finish("default", 7, 0)
    assert not rounds.finish("default", 7, 0)


def test_unfinished_round_is_found_by_the_next(rounds: Rounds) -> None:
    """Its late shard does not conclude it a second time; a finished round is not found."""
    rounds.begin("default", 7, [0, 1])
    rounds.finish("default", 7, 0)
    assert rounds.begin("default", 8, [0]) == 7
    assert not rounds.finish("default", 7, 1)
    assert rounds.finish("default", 8, 0)
    assert rounds.begin("default", 9, [0]) is None
