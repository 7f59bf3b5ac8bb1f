from __future__ import annotations

import time
from dataclasses import replace

import pytest
from django.test import Client
from pytest_django import Settings

from dashboards.shared import record_reader
from fleet import __version__
from fleet.models.alerting import AlertClock
from fleet.models.clusters import ensure_default_cluster
from fleet.monitoring.state.poll_log import FeedReset, FeedResetReason, PollLog, RoundEntry, ShardEntry
from fleet.monitoring.state.reader import open_reader
from fleet.monitoring.state.worker_reports import WorkerReport, WorkerReports
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.instances import Poll, PollAttempt
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db
_DEAD_REDIS = "redis://127.0.0.1:1/0"


@pytest.fixture
def viewer(client: Client, person: MakeUser) -> Client:
    """A browser of somebody who may only look."""
    client.force_login(person("viewer"))
    return client


@pytest.fixture
def healthy(record: Writer, live_settings: Settings) -> PollLog:
    """A cluster with living workers, a scheduler, and rounds of 0.2 s."""
    live_settings.CELERY_BROKER_TRANSPORT_OPTIONS = {
        **live_settings.CELERY_BROKER_TRANSPORT_OPTIONS,
        "global_keyprefix": f"{live_settings.REFLOAT_PREFIX}:celery:",
    }
    now = record_reader.current_time()
    cluster = ensure_default_cluster(["auth-1:3025"])
    AlertClock.objects.create(cluster=cluster, evaluated_at=now)
    reports = WorkerReports(record.redis, record.prefix)
    for queue, pid in (("polls", 11), ("actions", 12)):
        reports.write(WorkerReport(queue, "host-a", pid, __version__, time.time()))
    log = PollLog(record.redis, record.prefix)
    for number in range(5):
        at = now - 5 + number
        log.add_round("default", RoundEntry(100 + number, at - 0.2, at, "gen9@host-a", at - 0.3))
        log.add_shard("default", ShardEntry(100 + number, 0, "host-a:11", at, 0.2, 4, 0, True))
    return log


def test_good_data(viewer: Client, healthy: PollLog) -> None:
    """No problem: one sentence says that the data can be trusted."""
    page = viewer.get("/data-health/")
    health = page.context["health"]
    assert [problem.summary for problem in health.problems] == []
    assert health.verdict == "good"
    text = page.content.decode()
    assert "You can trust this data" in text
    assert "and all of 4 instances responded" in text
    assert page.context["chart"].count == 5
    assert "gen9@host-a" in text


def test_dead_redis(viewer: Client, live_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page answers; each part says why it cannot be read, and the database is still checked."""
    live_settings.REDIS_URL = _DEAD_REDIS
    reader = open_reader(_DEAD_REDIS, "nobody")
    monkeypatch.setattr(record_reader, "reader", lambda: reader)
    page = viewer.get("/data-health/")
    health = page.context["health"]
    assert page.status_code == 200
    assert health.verdict == "blind"
    assert health.problems[0].is_blinding
    assert "Start Redis" in health.problems[0].remedy
    assert all(part.error for part in (health.rounds, health.workers, health.queues, health.targets))
    assert "database-migrations" in {finding.name for finding in health.services.findings}
    assert page.content.decode().count("Cannot be read") == 7


def test_stopped_workers(
    viewer: Client, healthy: PollLog, record: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks wait in the queue and nobody reports: the worker is dead, and the data is blind."""
    record.redis.delete(f"{record.prefix}:.installation:worker-reports")
    record.redis.lpush(f"{record.prefix}:celery:polls", *[b"{}"] * 12)
    now = record_reader.current_time() + 100
    monkeypatch.setattr(record_reader, "current_time", lambda: now)
    health = viewer.get("/data-health/").context["health"]
    assert health.verdict == "blind"
    assert "The newest round ended 1 min 40 s ago" in health.problems[0].summary
    summaries = " ".join(problem.summary for problem in health.problems)
    assert "The worker of the queue polls has not reported in the last 24 h" in summaries
    assert "12 tasks wait in the queue polls" in summaries
    assert "The scheduler (beat) last ticked" in summaries
    # Nothing waits for this worker, because the scheduler stopped: nothing is known of it.
    assert "queue actions" not in summaries


def test_hostile_names(viewer: Client, healthy: PollLog, record: Writer) -> None:
    """Names and errors of instances are text, and their feeds too."""
    now, epoch = record_reader.current_time(), record.epoch("default")
    assert epoch is not None
    facts = record.load_instances("default")[0]
    error = "<script>alert(1)</script> timed out"
    poll = Poll(attempts=(PollAttempt(now - 1, ok=False, error=error),))
    record.write_instances("default", epoch, polls={facts.index: poll}, probed_at=now)
    healthy.add_feed_reset("default", FeedReset(now, "<b>", FeedResetReason.GAP))
    page = viewer.get("/data-health/")
    health = page.context["health"]
    assert health.verdict == "degraded"
    assert (health.targets.failing_count, health.targets.timeout_count) == (1, 1)
    text = page.content.decode()
    assert "<script>alert" not in text
    assert "&lt;b&gt;" in text


def test_skewed_clocks(viewer: Client, healthy: PollLog, record: Writer) -> None:
    """Of an instance against the worker, and of a worker against this web server."""
    now, epoch = record_reader.current_time(), record.epoch("default")
    assert epoch is not None
    facts = record.load_instances("default")[1]
    poll = Poll(attempts=(PollAttempt(now - 0.1, ok=True),), clock_offset=-40.0)
    record.write_instances("default", epoch, polls={facts.index: poll}, probed_at=now)
    reports = WorkerReports(record.redis, record.prefix)
    reports.write(WorkerReport("polls", "host-b", 1, __version__, time.time() + 30))
    health = viewer.get("/data-health/").context["health"]
    summaries = " ".join(problem.summary for problem in health.problems if problem.part == "clocks")
    assert "The clock of auth-2 is 40 s behind the clock of the workers" in summaries
    assert "on host-b is 30 s ahead of" in summaries


def test_paused_cluster(viewer: Client, healthy: PollLog) -> None:
    """Nothing is broken, but nothing is current: the page of the cluster resumes it."""
    row = ensure_default_cluster()
    row.is_paused = True
    row.save(update_fields=["is_paused"])
    page = viewer.get("/data-health/")
    assert page.context["health"].verdict == "blind"
    assert page.context["problems"][0][1] == "/clusters/default/"


def test_late_rounds_and_two_schedulers(viewer: Client, healthy: PollLog) -> None:
    now = record_reader.current_time()
    entry = RoundEntry(200, now - 3, now, "gen10@host-b", now - 3.1, is_complete=False)
    for number in range(3):
        healthy.add_round("default", replace(entry, number=200 + number))
    health = viewer.get("/data-health/").context["health"]
    summaries = " ".join(problem.summary for problem in health.problems)
    assert "3 of the last 8 rounds took longer than the interval of 1 s" in summaries
    assert "2 schedulers (beat) are running" in summaries
    assert "without all of their shards" in summaries


def test_api_returns_the_same(viewer: Client, healthy: PollLog) -> None:
    """The verdict and the problems of the page, without anything that JSON cannot have."""
    document = viewer.get("/api/v1/data-health").json()
    assert (document["verdict"], document["problems"]) == ("good", [])
    assert document["rounds"]["rounds"][0]["number"] == 104
    assert {worker["queue"] for worker in document["workers"]["workers"]} == {"polls", "actions"}
    assert viewer.get("/api/v1/clusters/default/data-health").status_code == 200
    assert viewer.get("/api/v1/clusters/nowhere/data-health").status_code in (403, 404)


def test_redis_of_the_record_is_not_changed(viewer: Client, healthy: PollLog, record: Writer) -> None:
    """Pages only read."""
    before = {key: record.redis.dump(key) for key in record.redis.keys(f"{record.prefix}*")}
    viewer.get("/data-health/")
    assert {key: record.redis.dump(key) for key in record.redis.keys(f"{record.prefix}*")} == before
