"""Which worker processes are alive: each reports after its tasks. For *Data health*, docs/reference/data-health.md.

Of the whole installation, so the key belongs to no cluster.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import cast

from redis import Redis

from fleet.monitoring.state.connect import map_redis_errors
from fleet.monitoring.state.keys import InstallationKeys

#: Most processes; when there are more, all are dropped, and those alive report again within seconds.
MAX_WORKERS = 200
_TTL_SECONDS = 86_400
#: ARGV: field, report, most fields, seconds. The time of Redis is added: it is the clock that all workers share.
_WRITE = """
local time = redis.call('TIME')
if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  redis.call('DEL', KEYS[1])
end
redis.call('HSET', KEYS[1], ARGV[1], time[1] .. '.' .. string.format('%06d', tonumber(time[2])) .. ' ' .. ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[4])
return 0
"""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a worker process reported last."""

    queue: str
    host: str
    pid: int
    #: Version of Refloat.
    version: str
    #: When the process reported, by its own clock, seconds since the epoch.
    at: float
    #: By the clock of Redis; 0 before it was written.
    redis_at: float = 0.0


class WorkerReports:
    """Reports of every worker. Every method raises StateUnavailableError."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._key = InstallationKeys(prefix).worker_reports
        self._write = redis.register_script(_WRITE)

    def write(self, report: WorkerReport) -> None:
        """Store a report in place of the last one of the same process and queue."""
        fields = {name: content for name, content in asdict(report).items() if name != "redis_at"}
        field = f"{report.queue}@{report.host}:{report.pid}"
        with map_redis_errors():
            self._write(
                keys=[self._key],
                args=[field, json.dumps(fields, separators=(",", ":")), MAX_WORKERS, _TTL_SECONDS],
            )

    def read(self) -> tuple[WorkerReport, ...]:
        """Return all reports of the last day, by queue, the newest first."""
        with map_redis_errors():
            blobs = cast("list[bytes]", self._redis.hvals(self._key))
        reports = [_unpack(blob) for blob in blobs]
        return tuple(sorted(reports, key=lambda report: (report.queue, -report.redis_at)))

    def read_redis_time(self) -> float:
        """Return the clock of Redis, seconds since the epoch."""
        with map_redis_errors():
            seconds, microseconds = self._redis.time()
        return seconds + microseconds / 1e6


def _unpack(blob: bytes) -> WorkerReport:
    redis_at, _, text = blob.decode().partition(" ")
    return WorkerReport(**json.loads(text), redis_at=float(redis_at))
