"""Claims on rounds and shards, which expire, and the detection of a round's last shard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from redis import Redis

from fleet.monitoring.state.connect import map_redis_errors
from fleet.monitoring.state.keys import Keys

#: Lifetime of a claim in seconds: much longer than a round, so that late tasks find it.
_CLAIM_TTL_SECONDS = 600
#: Returns 1 to the caller that removes the last member.
_FINISH = """
if redis.call('SREM', KEYS[1], ARGV[1]) == 1 and redis.call('EXISTS', KEYS[1]) == 0 then return 1 end
return 0
"""


class Rounds:
    """Rounds of every cluster."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def claim(self, cluster: str, round_number: int) -> bool:
        """Claim the start of a round; return False when another process has it. Raises StateUnavailableError."""
        with map_redis_errors():
            return bool(
                self._redis.set(
                    self._keys(cluster).round_claim(round_number), 1, nx=True, ex=_CLAIM_TTL_SECONDS
                )
            )

    def begin(self, cluster: str, round_number: int, shards: Iterable[int]) -> int | None:
        """Open a round with its shards; return the previous round if it never ended. Raises StateUnavailableError."""
        keys = self._keys(cluster)
        members = [str(shard) for shard in shards]
        with map_redis_errors(), self._redis.pipeline(transaction=True) as pipe:
            pipe.getset(keys.open_round, round_number)
            if members:
                pipe.sadd(keys.pending_shards(round_number), *members)
                pipe.expire(keys.pending_shards(round_number), _CLAIM_TTL_SECONDS)
            previous_round = cast("bytes | None", pipe.execute()[0])
        if previous_round is None or int(previous_round) >= round_number:
            return None
        with map_redis_errors():
            deleted_count = self._redis.delete(keys.pending_shards(int(previous_round)))
        return int(previous_round) if deleted_count else None

    def claim_shard(self, cluster: str, round_number: int, shard: int) -> bool:
        """Claim a shard; return False when another process has it. Raises StateUnavailableError."""
        key = self._keys(cluster).shard_claim(round_number, shard)
        with map_redis_errors():
            return bool(self._redis.set(key, 1, nx=True, ex=_CLAIM_TTL_SECONDS))

    def finish_shard(self, cluster: str, round_number: int, shard: int) -> bool:
        """Mark a shard as finished; return whether it was the last one of the round. Raises StateUnavailableError."""
        script = self._redis.register_script(_FINISH)
        with map_redis_errors():
            return bool(script(keys=[self._keys(cluster).pending_shards(round_number)], args=[shard]))

    def _keys(self, cluster: str) -> Keys:
        return Keys(self._prefix, cluster)
