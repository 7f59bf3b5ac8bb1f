"""What a worker process reports of its own work, for *Data health*: that it is alive, its shards, and its rounds."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable

from redis import Redis

from fleet import __version__
from fleet.monitoring.pollers.shard_poll import ShardResult
from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.poll_log import PollLog, RoundEntry, ShardEntry
from fleet.monitoring.state.rounds import Rounds
from fleet.monitoring.state.worker_reports import WorkerReport, WorkerReports

logger = logging.getLogger(__name__)

#: Seconds between two reports of a process: every task would double the commands of a small fleet.
_REPORT_SECONDS = 1.0


class PollReports:
    """Reports of this process. Use it only in the process that created it."""

    def __init__(self, redis: Redis, prefix: str, clock: Callable[[], float] = time.time) -> None:
        self._log = PollLog(redis, prefix)
        self._rounds = Rounds(redis, prefix)
        self._reports = WorkerReports(redis, prefix)
        self._clock = clock
        self._host, self._pid = socket.gethostname(), os.getpid()
        #: When this process last reported, by queue.
        self._reported_at: dict[str, float] = {}

    def note_alive(self, queue: str) -> None:
        """Report that this process serves a queue; at most once per second, and not while Redis is unavailable."""
        now = self._clock()
        if 0 <= now - self._reported_at.get(queue, 0.0) < _REPORT_SECONDS:
            return
        try:
            self._reports.write(WorkerReport(queue, self._host, self._pid, __version__, now))
        except StateUnavailableError:
            # The work itself needs Redis, too, and says so.
            logger.debug("this worker did not report that it is alive", exc_info=True)
        else:
            self._reported_at[queue] = now

    def note_shard(
        self, cluster: str, round_number: int, shard: int, shard_result: ShardResult, seconds: float
    ) -> None:
        """Report a polled shard. Raises StateUnavailableError."""
        self._log.add_shard(
            cluster,
            ShardEntry(
                round_number,
                shard,
                f"{self._host}:{self._pid}",
                self._clock(),
                seconds,
                target_count=len(shard_result.poll_results),
                failed_count=sum(bool(poll_result.error) for poll_result in shard_result.poll_results),
                probe_succeeded=shard_result.probe_succeeded,
            ),
        )

    def note_round(self, cluster: str, round_number: int, ended_at: float, *, is_complete: bool) -> None:
        """Report a concluded round. Raises StateUnavailableError."""
        start = self._rounds.read_start(cluster, round_number)
        if start is not None:
            entry = RoundEntry(
                *(round_number, start.started_at, ended_at, start.scheduler, start.enqueued_at),
                is_complete=is_complete,
            )
            self._log.add_round(cluster, entry)
