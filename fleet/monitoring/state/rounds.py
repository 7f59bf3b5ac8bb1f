"""Who runs a round, who polls a shard, and who was the last to end: claims that expire by themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from redis import Redis

from fleet.monitoring.state.connect import map_redis_errors
from fleet.monitoring.state.keys import Keys

#: A claim outlives its round by far, so that a late task finds it; seconds.
_CLAIM_TTL = 600
#: Answers 1 to the one who removes the last member.
_FINISH = """
if redis.call('SREM', KEYS[1], ARGV[1]) == 1 and redis.call('EXISTS', KEYS[1]) == 0 then return 1 end
return 0
"""


class Rounds:
    """The rounds of every cluster."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def claim(self, cluster: str, number: int) -> bool:
        """Become the one who starts the round: however many beats there are, one does. Raises StateUnavailable."""
        with map_redis_errors():
            return bool(self._redis.set(self._keys(cluster).round_claim(number), 1, nx=True, ex=_CLAIM_TTL))

    def begin(self, cluster: str, number: int, shards: Iterable[int]) -> int | None:
        """Open the round with its shards; answers the round before it if that never ended. Raises StateUnavailable."""
        keys = self._keys(cluster)
        members = [str(shard) for shard in shards]
        with map_redis_errors(), self._redis.pipeline(transaction=True) as pipe:
            pipe.getset(keys.open_round, number)
            if members:
                pipe.sadd(keys.pending_shards(number), *members)
                pipe.expire(keys.pending_shards(number), _CLAIM_TTL)
            previous_round = cast("bytes | None", pipe.execute()[0])
        if previous_round is None or int(previous_round) >= number:
            return None
        with map_redis_errors():
            deleted_count = self._redis.delete(keys.pending_shards(int(previous_round)))
        return int(previous_round) if deleted_count else None

    def claim_shard(self, cluster: str, number: int, shard: int) -> bool:
        """Become the one who polls the shard. Raises StateUnavailable."""
        key = self._keys(cluster).shard_claim(number, shard)
        with map_redis_errors():
            return bool(self._redis.set(key, 1, nx=True, ex=_CLAIM_TTL))

    def finish(self, cluster: str, number: int, shard: int) -> bool:
        """Say that the shard has ended; True to the one who says so last. Raises StateUnavailable."""
        script = self._redis.register_script(_FINISH)
        with map_redis_errors():
            return bool(script(keys=[self._keys(cluster).pending_shards(number)], args=[shard]))

    def _keys(self, cluster: str) -> Keys:
        return Keys(self._prefix, cluster)
