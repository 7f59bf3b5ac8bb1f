"""Claims on rounds and shards, which expire, and the detection of a round's last shard."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True, slots=True)
class RoundStart:
    """How a round was started. Seconds since the epoch."""

    started_at: float = 0.0
    #: The process that enqueued the round: `gen4711@host`; empty if it is not known.
    scheduler: str = ""
    #: When it was enqueued; 0: not known.
    enqueued_at: float = 0.0


class Rounds:
    """Rounds of every cluster."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def claim(self, cluster: str, round_number: int, start: RoundStart = RoundStart()) -> bool:
        """Claim the start of a round; return False when another process has it. Raises StateUnavailableError."""
        key = self._keys(cluster).round_claim(round_number)
        with map_redis_errors():
            return bool(self._redis.set(key, json.dumps(asdict(start)), nx=True, ex=_CLAIM_TTL_SECONDS))

    def read_start(self, cluster: str, round_number: int) -> RoundStart | None:
        """Return how a round was started; None after 10 min. Raises StateUnavailableError."""
        with map_redis_errors():
            blob = cast("bytes | None", self._redis.get(self._keys(cluster).round_claim(round_number)))
        fields = json.loads(blob or b"null")
        # A claim of another version is a number.
        return RoundStart(**fields) if isinstance(fields, dict) else None

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
