from __future__ import annotations

import time
from dataclasses import replace

import pytest
from redis import Redis

from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.worker_reports import MAX_WORKERS, WorkerReport, WorkerReports

_REPORT = WorkerReport("polls", "host-a", 1, "0.1.0", 1000.0)


def test_newest_report_of_each_process(redis: Redis, prefix: str) -> None:
    """With the time of Redis, which is the same clock for all."""
    reports = WorkerReports(redis, prefix)
    for report in (_REPORT, replace(_REPORT, at=1001.0), replace(_REPORT, queue="actions", pid=2)):
        reports.write(report)
    actions, polls = reports.read()
    assert (actions.queue, polls.queue, polls.at) == ("actions", "polls", 1001.0)
    assert abs(polls.redis_at - reports.read_redis_time()) < 60
    assert abs(reports.read_redis_time() - time.time()) < 60


def test_processes_that_restart_fill_no_memory(redis: Redis, prefix: str) -> None:
    """Each has another process id; the living ones come back by themselves."""
    reports = WorkerReports(redis, prefix)
    for pid in range(MAX_WORKERS + 1):
        reports.write(replace(_REPORT, pid=pid))
    assert [report.pid for report in reports.read()] == [MAX_WORKERS]


def test_dead_redis() -> None:
    with pytest.raises(StateUnavailableError):
        WorkerReports(connect("redis://127.0.0.1:1/0"), "nobody").read()
