"""Reading of the parts of *Data health*. Each waits at most some seconds, and says why it could not be read."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, cast

from django.db import Error
from redis import Redis
from redis.exceptions import RedisError

from fleet.management.data_health import problems as rules
from fleet.management.data_health.facts import (
    MAX_ROWS,
    ClockRow,
    ClocksPart,
    DataHealth,
    DataProblem,
    EvidencePart,
    FeedRow,
    FeedsPart,
    QueueRow,
    QueuesPart,
    RoundsPart,
    ServicesPart,
    TargetRow,
    TargetsPart,
    WorkerRow,
    WorkersPart,
)
from fleet.management.data_health.queued_tasks import read_task
from fleet.management.doctor import database_checks, file_checks, process_checks, redis_checks
from fleet.management.doctor.findings import CheckFinding
from fleet.models.clusters import Cluster
from fleet.monitoring.evidence import LISTS, PRESENCE, FeedFreshness, Timing
from fleet.monitoring.state import StateError
from fleet.monitoring.state.codec import unpack_feed
from fleet.monitoring.state.connect import map_redis_errors
from fleet.monitoring.state.keys import Keys
from fleet.monitoring.state.poll_log import PollLog, ShardEntry
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.watch_leases import WatchLeases
from fleet.monitoring.state.worker_reports import WorkerReport, WorkerReports
from fleet.monitoring.views import InstanceView
from fleet.source_plugins.declaration import list_missing
from fleet.source_plugins.registry import find_source
from fleet.vocabulary.instances import InstanceFacts, InstanceState

logger = logging.getLogger(__name__)

PartT = TypeVar(
    "PartT",
    RoundsPart,
    WorkersPart,
    QueuesPart,
    TargetsPart,
    ClocksPart,
    FeedsPart,
    EvidencePart,
    ServicesPart,
)
_HOUR_SECONDS = 3600.0
#: Seconds in which rounds of two schedulers mean that both are running.
_SCHEDULER_SECONDS = 60.0
#: Seconds without a report until a worker counts as stopped.
_WORKER_SILENT_SECONDS = 30.0
_TIMEOUT_TEXT = re.compile(r"timed out|in time|deadline", re.IGNORECASE)
_FEED_NAMES = {PRESENCE: "list of agents", LISTS: "list of auths and proxies"}


@dataclass(frozen=True, slots=True)
class Installation:
    """Where the data is: values of the settings."""

    reader: Reader
    redis_url: str
    prefix: str
    celery_key_prefix: str
    queues: tuple[str, ...]
    round_interval: float
    home: Path


def read_data_health(cluster: str, installation: Installation, now: float) -> DataHealth:
    """Return whether the data of a cluster can be trusted at `now`. Raises nothing: parts have errors instead."""
    with contextlib.closing(redis_checks.open_client(installation.redis_url)) as client:
        session = _HealthReader(cluster, installation, client, now)
        services = _isolate(ServicesPart, session.read_services)
        # Without Redis each further part would wait for the same timeout.
        reads = _Reads(session)
        rounds = reads.read(RoundsPart, session.read_rounds)
        workers, queues = (
            reads.read(WorkersPart, session.read_workers),
            reads.read(QueuesPart, session.read_queues),
        )
        targets = reads.read(TargetsPart, session.read_targets)
        clocks, feeds = (
            reads.read(ClocksPart, session.read_clocks),
            reads.read(FeedsPart, session.read_feeds),
        )
        evidence = reads.read(EvidencePart, session.read_evidence)
    problems = _sort(
        (
            *rules.find_round_problems(rounds, cluster, now),
            *rules.find_worker_problems(workers, queues, now),
            *rules.find_queue_problems(queues, now),
            *rules.find_target_problems(targets),
            *rules.find_clock_problems(clocks),
            *rules.find_feed_problems(feeds),
            *rules.find_evidence_problems(evidence, cluster),
            *rules.find_service_problems(services),
        )
    )
    verdict, sentence = rules.conclude(problems, rounds, targets, now)
    return DataHealth(
        cluster,
        now,
        verdict,
        sentence,
        problems,
        rounds,
        workers,
        queues,
        targets,
        clocks,
        feeds,
        evidence,
        services,
    )


def _sort(problems: Iterable[DataProblem]) -> tuple[DataProblem, ...]:
    return tuple(sorted(problems, key=lambda problem: not problem.is_blinding))


def _isolate(part_type: type[PartT], read: Callable[[], PartT]) -> PartT:
    """Return a part; with why it cannot be read as its error."""
    try:
        return read()
    except (StateError, RedisError, Error, OSError) as error:
        return part_type(error=" ".join(str(error).split()).rstrip(".") or type(error).__name__)
    except Exception as error:  # the page is for when things break: no part may hide the others
        logger.exception("the part %s of data health cannot be read", part_type.__name__)
        return part_type(error=f"{type(error).__name__}: {error}")


class _Reads:
    """Reads parts that need Redis; after Redis did not respond once, the others get the same error."""

    def __init__(self, session: _HealthReader) -> None:
        self._error = session.redis_error

    def read(self, part_type: type[PartT], read: Callable[[], PartT]) -> PartT:
        """Return a part."""
        return part_type(error=self._error) if self._error else _isolate(part_type, read)


class _HealthReader:
    """One reading of all parts."""

    def __init__(self, cluster: str, installation: Installation, client: Redis, now: float) -> None:
        self._cluster = cluster
        self._installation = installation
        self._redis = client
        self._now = now
        self._log = PollLog(client, installation.prefix)
        #: Why Redis cannot be used, as a clause; set by `read_services`.
        self.redis_error = ""

    def read_services(self) -> ServicesPart:
        """Return the findings of Redis, the database, the disk and alerting. Sets `redis_error`."""
        findings = list(self._check_redis())
        with contextlib.suppress(Error):  # a finding about the database says why
            findings += database_checks.check_open_database()
            findings += self._check_alerting()
        findings += self._check_disk()
        return ServicesPart(findings=tuple(findings))

    def read_rounds(self) -> RoundsPart:
        """Return the newest rounds. Raises StateError, Error."""
        row, now = self._row, self._now
        reader = self._installation.reader
        summary = reader.summary(self._cluster, now)
        timing = Timing(round_interval=summary.interval)
        rounds = self._log.read_rounds(self._cluster)
        return RoundsPart(
            is_paused=row is not None and row.is_paused,
            has_addresses=row is None or bool(row.auths),
            interval=summary.interval,
            stale_after=timing.stale_after,
            as_of=summary.as_of,
            # Of rounds that stopped nothing is known.
            is_probe_failing=summary.as_of is not None
            and now - summary.as_of <= timing.stale_after
            and reader.table(self._cluster, now).fleet.blind,
            rounds=tuple(entry for entry in rounds if now - entry.ended_at <= _HOUR_SECONDS),
        )

    def read_workers(self) -> WorkersPart:
        """Return the worker processes. Raises StateError."""
        reports = WorkerReports(self._redis, self._installation.prefix)
        redis_now = reports.read_redis_time()
        web_offset = time.time() - redis_now
        silent_after = max(_WORKER_SILENT_SECONDS, 3 * self._installation.round_interval)
        shards: dict[str, ShardEntry] = {}
        for shard in self._log.read_shards(self._cluster):
            shards.setdefault(shard.worker, shard)
        rows = [
            _worker_row_of(report, shards, redis_now, web_offset, silent_after) for report in reports.read()
        ]
        recent = [row for row in rows if row.age <= _HOUR_SECONDS]
        return WorkersPart(workers=tuple(recent[:MAX_ROWS]), silent_after=silent_after)

    def read_queues(self) -> QueuesPart:
        """Return the queues, and what shows that the scheduler runs. Raises StateError, RedisError."""
        installation, now = self._installation, self._now
        rows, ticks = [], list[tuple[float, str]]()
        for tasks in process_checks.read_queued_tasks(
            self._redis, installation.celery_key_prefix, installation.queues
        ):
            oldest = read_task(tasks.oldest, installation.round_interval)
            newest = read_task(tasks.newest, installation.round_interval)
            if newest is not None and newest.is_of_scheduler:
                ticks.append((newest.enqueued_at, newest.origin))
            age = None if oldest is None else max(0.0, now - oldest.enqueued_at)
            rows.append(QueueRow(tasks.name, tasks.length, age))
        rounds = self._log.read_rounds(self._cluster)
        ticks += [(entry.enqueued_at, entry.scheduler) for entry in rounds if entry.scheduler]
        schedulers = dict.fromkeys(
            origin for at, origin in sorted(ticks, reverse=True) if now - at <= _SCHEDULER_SECONDS
        )
        # The tasks of the queue actions report too, and all regular ones come from the scheduler.
        report_times = [report.redis_at for report in WorkerReports(self._redis, installation.prefix).read()]
        with map_redis_errors():
            backlog = self._redis.llen(Keys(installation.prefix, self._cluster).outbox)
        return QueuesPart(
            queues=tuple(rows),
            ticked_at=max([at for at, _ in ticks] + report_times, default=None),
            schedulers=tuple(schedulers),
            history_backlog=int(backlog),
        )

    def read_targets(self) -> TargetsPart:
        """Return the instances whose newest poll failed or is late. Raises StateError."""
        views = self._polled_views
        stale_after = Timing(round_interval=self._installation.round_interval).stale_after
        rows = [
            row for view in views if (row := _target_row_of(view.facts, stale_after, self._now)) is not None
        ]
        rows.sort(key=lambda row: (row.since or self._now, row.name))
        return TargetsPart(
            count=len(views),
            rows=tuple(rows[:MAX_ROWS]),
            failing_count=sum(bool(row.error) for row in rows),
            late_count=sum(row.is_late for row in rows),
            timeout_count=sum(row.is_timeout for row in rows),
        )

    def read_clocks(self) -> ClocksPart:
        """Return the clocks of Redis and of the instances. Raises StateError."""
        started_at = time.time()
        redis_at = WorkerReports(self._redis, self._installation.prefix).read_redis_time()
        ended_at = time.time()
        views = self._polled_views
        rows = [
            ClockRow(facts.id, facts.name, facts.kind, facts.clock_offset)
            for facts in (view.facts for view in views)
            if facts.clock_offset is not None
        ]
        rows.sort(key=lambda row: (-abs(row.offset), row.name))
        return ClocksPart(
            redis_offset=max(0.0, redis_at - ended_at) or min(0.0, redis_at - started_at),
            rows=tuple(rows[:MAX_ROWS]),
            count=len(views),
            unknown_count=len(views) - len(rows),
        )

    def read_feeds(self) -> FeedsPart:
        """Return feeds that started over or are stale, and the watch. Raises StateError."""
        prefix, now = self._installation.prefix, self._now
        with map_redis_errors():
            blobs = cast("dict[bytes, bytes]", self._redis.hgetall(Keys(prefix, self._cluster).feeds))
        names = {str(view.facts.index): f"tunnels of {view.facts.name}" for view in self._polled_views}
        stale_after = Timing(round_interval=self._installation.round_interval).stale_after
        stale_feeds = [
            FeedRow(name, freshness.responded_at)
            for key, blob in sorted(blobs.items())
            if (name := (_FEED_NAMES | names).get(key.decode())) is not None
            and _is_failing(freshness := unpack_feed(blob).freshness, stale_after, now)
        ]
        lease = WatchLeases(self._redis, prefix).peek(self._cluster)
        resets = self._log.read_feed_resets(self._cluster)
        return FeedsPart(
            resets=tuple(reset for reset in resets if now - reset.at <= _HOUR_SECONDS),
            stale_feeds=tuple(stale_feeds[:MAX_ROWS]),
            is_watch_held=lease is not None,
            is_watch_ready=lease is not None and lease.is_ready,
            watch_address="" if lease is None else lease.address,
        )

    def read_evidence(self) -> EvidencePart:
        """Return what the source of the cluster cannot tell. Raises StateError, Error."""
        row = self._row
        slug = "" if row is None else row.source
        source = find_source(slug) if slug else None
        if source is None:
            return EvidencePart(
                error=f"the source {slug} of this cluster is not installed"
                if slug
                else "the cluster has no row yet"
            )
        reader = self._installation.reader
        findings = reader.missing_capabilities(self._cluster)
        reasons = list_missing(source, findings)
        return EvidencePart(
            source=source.label,
            declared_missing=tuple(
                (capability, reason)
                for capability, reason in reasons.items()
                if capability not in source.capabilities
            ),
            found_missing=tuple(
                (capability, reason)
                for capability, reason in reasons.items()
                if capability in source.capabilities
            ),
            list_notice=reader.list_notice(self._cluster),
        )

    @functools.cached_property
    def _row(self) -> Cluster | None:
        with contextlib.suppress(Error):  # a finding about the database says why
            return Cluster.objects.filter(pk=self._cluster).first()
        return None

    @functools.cached_property
    def _polled_views(self) -> list[InstanceView]:
        views = self._installation.reader.instances(self._cluster, self._now)
        return [
            view
            for view in views
            if view.facts.poll_address and view.facts.attempts and view.state is not InstanceState.GONE
        ]

    def _check_redis(self) -> Iterator[CheckFinding]:
        url = self._installation.redis_url
        try:
            facts = redis_checks.read_redis(self._redis, time.time)
        except RedisError as problem:
            finding = redis_checks.describe_failure(problem, url)
            self.redis_error = finding.summary.rstrip(".")
            yield finding
            return
        yield from redis_checks.check_redis(facts, url)

    def _check_disk(self) -> Iterator[CheckFinding]:
        home = self._installation.home
        yield from file_checks.check_disk_space(home, shutil.disk_usage(home).free)

    def _check_alerting(self) -> Iterator[CheckFinding]:
        evaluations = process_checks.read_evaluations()
        own = {cluster: at for cluster, at in evaluations.items() if cluster == self._cluster}
        yield from process_checks.check_evaluations(own, self._now)


def _worker_row_of(
    report: WorkerReport,
    shards: dict[str, ShardEntry],
    redis_now: float,
    web_offset: float,
    silent_after: float,
) -> WorkerRow:
    age = max(0.0, redis_now - report.redis_at)
    row = WorkerRow(
        *(report.queue, report.host, report.pid, report.version),
        age=age,
        is_alive=age <= silent_after,
        clock_offset=(report.at - report.redis_at) - web_offset,
    )
    shard = shards.get(f"{report.host}:{report.pid}") if report.queue == "polls" else None
    if shard is None:
        return row
    return replace(
        row,
        last_round=shard.round_number,
        last_round_age=max(0.0, redis_now - shard.ended_at),
        has_probe_succeeded=shard.probe_succeeded,
    )


def _target_row_of(facts: InstanceFacts, stale_after: float, now: float) -> TargetRow | None:
    """Return the row of an instance whose newest poll failed or is late; None for any other."""
    newest = facts.attempts[0]
    age = now - newest.at
    is_late = age > stale_after
    if newest.ok and not is_late:
        return None
    return TargetRow(
        *(facts.id, facts.name, facts.kind, max(0.0, age)),
        error="" if newest.ok else newest.error or "no response",
        since=facts.sick_since,
        is_late=is_late,
        is_timeout=not newest.ok and bool(_TIMEOUT_TEXT.search(newest.error)),
    )


def _is_failing(freshness: FeedFreshness, stale_after: float, now: float) -> bool:
    """Return whether a feed is asked, but has had no good response for too long."""
    if freshness.attempted_at is None or now - freshness.attempted_at > stale_after:
        return False  # it is not asked any more: the rounds say so
    return freshness.responded_at is None or now - freshness.responded_at > stale_after
