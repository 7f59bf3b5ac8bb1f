"""API route of data health: the object that the page shows. docs/reference/data-health.md."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Router

from dashboards.fleet.api.schemas import Problem
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import require_cluster
from dashboards.shared.api.parameters import Schema
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.presenters import to_moment_or_none
from dashboards.system.data_health.current import read_current_health
from fleet.management.data_health.facts import DataHealth
from fleet.models.access import Permission
from fleet.models.moments import to_moment

router = Router()
per_cluster = PerCluster(router)
_VIEW = ApiAccess(Permission.VIEW_FLEET)


class DataProblemItem(Schema):
    """What is broken, and what to do."""

    part: str
    """`rounds`, `workers`, `queues`, `targets`, `clocks`, `feeds`, `evidence` or `services`."""
    is_blinding: bool
    """Whether the data cannot be trusted at all because of it."""
    summary: str
    """What was seen."""
    remedy: str
    """What to do."""
    path: str
    """Path of the page that helps, or `#part` of the page Data health; empty without one."""


class RoundItem(Schema):
    """A polling round."""

    number: int
    """Number of the round."""
    started_at: datetime
    """When a worker started it."""
    ended_at: datetime
    """When it was concluded."""
    duration_ms: int
    """How long it took."""
    is_late: bool
    """Whether it took longer than the interval between rounds."""
    is_complete: bool
    """Whether all of its shards were polled."""


class RoundsItem(Schema):
    """The rounds of the last hour."""

    error: str
    """Why this part could not be read; empty if it could."""
    is_paused: bool
    """Whether the cluster is paused."""
    has_addresses: bool
    """Whether the cluster has addresses to poll."""
    interval_ms: int
    """Time between rounds."""
    as_of: datetime | None
    """When the newest round was concluded; null before the first one."""
    is_probe_failing: bool
    """Whether the self-probe of the pollers fails."""
    rounds: list[RoundItem]
    """At most 720, newest first."""


class WorkerItem(Schema):
    """A worker process."""

    queue: str
    """Queue that it serves."""
    host: str
    """Machine."""
    pid: int
    """Process id."""
    version: str
    """Version of Refloat."""
    age_ms: int
    """Time since its last report."""
    is_alive: bool
    """Whether it reported recently."""
    clock_offset_ms: int
    """How far its clock is ahead of that of the web server; negative: behind."""
    last_round: int | None
    """Of a poller: the last round of this cluster that it polled; null without one."""
    has_probe_succeeded: bool | None
    """Of a poller: whether its last self-probe succeeded; null without one."""


class WorkersItem(Schema):
    """The worker processes of the last hour."""

    error: str
    """Why this part could not be read; empty if it could."""
    workers: list[WorkerItem]
    """By queue, the newest report first."""


class QueueItem(Schema):
    """A queue of tasks."""

    name: str
    """`polls` or `actions`."""
    length: int
    """Tasks that wait."""
    oldest_age_ms: int | None
    """Age of the oldest task; null if the queue is empty or the task does not tell."""


class QueuesItem(Schema):
    """The queues and the scheduler."""

    error: str
    """Why this part could not be read; empty if it could."""
    queues: list[QueueItem]
    """Every queue."""
    ticked_at: datetime | None
    """When the scheduler last enqueued a task; null without a trace."""
    schedulers: list[str]
    """Processes that enqueued rounds in the last minute: exactly one is right."""
    history_backlog: int
    """Rounds whose history waits for the database."""


class TargetItem(Schema):
    """An instance that did not respond or was not polled in time."""

    id: str
    """Id of the instance."""
    name: str
    """Name of the instance."""
    kind: str
    """`auth` or `proxy`."""
    age_ms: int | None
    """Time since the last attempt."""
    error: str
    """Error of the last attempt; empty if it succeeded."""
    since: datetime | None
    """Since when; null if not known."""
    is_late: bool
    """Whether the last attempt is older than three rounds."""
    is_timeout: bool
    """Whether the last attempt timed out."""


class TargetsItem(Schema):
    """The instances that pollers ask."""

    error: str
    """Why this part could not be read; empty if it could."""
    count: int
    """Instances that are polled."""
    failing_count: int
    """Of these, instances that did not respond."""
    late_count: int
    """Of these, instances that were not polled in the last three rounds."""
    timeout_count: int
    """Of these, instances whose last poll timed out."""
    rows: list[TargetItem]
    """At most 50, the longest problem first."""


class ClockItem(Schema):
    """The clock of an instance."""

    id: str
    """Id of the instance."""
    name: str
    """Name of the instance."""
    kind: str
    """`auth` or `proxy`."""
    offset_ms: int
    """How far it is ahead of the clock of the worker; negative: behind. Below one second it counts as 0."""


class ClocksItem(Schema):
    """Clocks of Redis and of the instances, against those of Refloat."""

    error: str
    """Why this part could not be read; empty if it could."""
    redis_offset_ms: int | None
    """How far the clock of Redis is ahead of that of the web server; negative: behind."""
    rows: list[ClockItem]
    """At most 50, the largest difference first."""
    unknown_count: int
    """Instances that report no time."""


class FeedResetItem(Schema):
    """A feed that started over."""

    at: datetime
    """When."""
    feed: str
    """`presence`, or the id of a proxy."""
    reason: str
    """`new-epoch`, `gap` or `conflict`."""


class StaleFeedItem(Schema):
    """A feed without a good response for three rounds."""

    name: str
    """Name of the feed."""
    responded_at: datetime | None
    """When it last responded; null: never."""


class FeedsItem(Schema):
    """Incremental feeds, and the watch."""

    error: str
    """Why this part could not be read; empty if it could."""
    resets: list[FeedResetItem]
    """Feeds that started over in the last hour, at most 200, newest first."""
    stale_feeds: list[StaleFeedItem]
    """Feeds that cannot be read."""
    is_watch_held: bool
    """Whether a worker holds a watch of the cluster."""
    is_watch_ready: bool
    """Whether changes of the watch are received."""
    watch_address: str
    """Address of the watched instance; empty without one."""


class MissingItem(Schema):
    """A capability that the cluster does not have."""

    capability: str
    """Capability, as in `GET /clusters/{cluster}/settings`."""
    label: str
    """Its name."""
    reason: str
    """Why."""
    is_declared: bool
    """Whether the product never has it; otherwise the newest round found it missing."""


class SourceEvidenceItem(Schema):
    """What the source of the cluster cannot tell."""

    error: str
    """Why this part could not be read; empty if it could."""
    source: str
    """Product of the cluster."""
    missing_capabilities: list[MissingItem]
    """Missing capabilities."""
    list_notice: str
    """What to know of its lists, as a sentence; empty if nothing."""


class FindingItem(Schema):
    """A finding of the doctor."""

    name: str
    """Name of the check, as in `refloat doctor`."""
    verdict: str
    """`ok`, `warning`, `error` or `skipped`."""
    summary: str
    """What was seen."""
    remedy: str
    """What to do; empty if nothing."""


class ServicesItem(Schema):
    """Redis, the database, the disk and alerting."""

    error: str
    """Why this part could not be read; empty if it could."""
    findings: list[FindingItem]
    """Every check."""


class DataHealthResponse(Schema):
    """Whether the data of a cluster can be trusted."""

    cluster: str
    """Id of the cluster."""
    at: datetime
    """When this was read."""
    verdict: str
    """`good`, `degraded` or `blind`."""
    sentence: str
    """The answer in one or two sentences."""
    problems: list[DataProblemItem]
    """What is broken, the worst first."""
    rounds: RoundsItem
    """How rounds go, and whether the self-probe succeeds."""
    workers: WorkersItem
    """Worker processes and their last reports."""
    queues: QueuesItem
    """Tasks that wait, and the scheduler."""
    targets: TargetsItem
    """Instances that do not respond, or were polled too long ago."""
    clocks: ClocksItem
    """How far the clocks of Redis and of the instances differ."""
    feeds: FeedsItem
    """Feeds that started over or cannot be read, and the watch."""
    evidence: SourceEvidenceItem
    """What the product of the cluster does not tell, with the reason."""
    services: ServicesItem
    """Checks of Redis, the database, alerting and the disk."""


@per_cluster.get(
    "/data-health",
    auth=_VIEW,
    response={200: DataHealthResponse, frozenset({400, 401, 403, 404, 503}): Problem},
)
def get_data_health(request: HttpRequest, cluster: str) -> Any:
    """Get whether the data can be trusted.

    The response has a verdict, what is broken with what to do, and the parts that it follows from. It is also returned
    when Redis or the workers are down: a part that cannot be read has an `error`.
    """
    return response_of(read_current_health(require_cluster(cluster)))


def response_of(health: DataHealth) -> DataHealthResponse:
    """Return data health as a document of the API."""
    rounds, queues, feeds, evidence = health.rounds, health.queues, health.feeds, health.evidence
    reasons = [(*pair, True) for pair in evidence.declared_missing]
    reasons += [(*pair, False) for pair in evidence.found_missing]
    document: dict[str, Any] = {
        "cluster": health.cluster,
        "at": to_moment(health.at),
        "verdict": health.verdict.value,
        "sentence": health.sentence,
        "problems": [asdict(problem) for problem in health.problems],
        "rounds": {
            "error": rounds.error,
            "is_paused": rounds.is_paused,
            "has_addresses": rounds.has_addresses,
            "interval_ms": _to_ms(rounds.interval),
            "as_of": to_moment_or_none(rounds.as_of),
            "is_probe_failing": rounds.is_probe_failing,
            "rounds": [
                {
                    "number": entry.number,
                    "started_at": to_moment(entry.started_at),
                    "ended_at": to_moment(entry.ended_at),
                    "duration_ms": _to_ms(entry.seconds),
                    "is_late": entry.seconds > rounds.interval,
                    "is_complete": entry.is_complete,
                }
                for entry in rounds.rounds
            ],
        },
        "workers": {
            "error": health.workers.error,
            "workers": [
                asdict(row) | {"age_ms": _to_ms(row.age), "clock_offset_ms": _to_ms(row.clock_offset)}
                for row in health.workers.workers
            ],
        },
        "queues": {
            "error": queues.error,
            "queues": [
                asdict(row) | {"oldest_age_ms": None if row.oldest_age is None else _to_ms(row.oldest_age)}
                for row in queues.queues
            ],
            "ticked_at": to_moment_or_none(queues.ticked_at),
            "schedulers": list(queues.schedulers),
            "history_backlog": queues.history_backlog,
        },
        "targets": {
            **asdict(health.targets),
            "rows": [
                asdict(row)
                | {
                    "kind": row.kind.value,
                    "age_ms": None if row.age is None else _to_ms(row.age),
                    "since": to_moment_or_none(row.since),
                }
                for row in health.targets.rows
            ],
        },
        "clocks": {
            "error": health.clocks.error,
            "redis_offset_ms": None
            if health.clocks.redis_offset is None
            else _to_ms(health.clocks.redis_offset),
            "rows": [
                asdict(row) | {"kind": row.kind.value, "offset_ms": _to_ms(row.offset)}
                for row in health.clocks.rows
            ],
            "unknown_count": health.clocks.unknown_count,
        },
        "feeds": {
            **asdict(feeds),
            "resets": [asdict(reset) | {"at": to_moment(reset.at)} for reset in feeds.resets],
            "stale_feeds": [
                {"name": feed.name, "responded_at": to_moment_or_none(feed.responded_at)}
                for feed in feeds.stale_feeds
            ],
        },
        "evidence": {
            "error": evidence.error,
            "source": evidence.source,
            "missing_capabilities": [
                {
                    "capability": capability.value,
                    "label": capability.label,
                    "reason": reason,
                    "is_declared": is_declared,
                }
                for capability, reason, is_declared in reasons
            ],
            "list_notice": evidence.list_notice,
        },
        "services": {
            "error": health.services.error,
            "findings": [
                asdict(finding) | {"verdict": finding.verdict.value} for finding in health.services.findings
            ],
        },
    }
    return DataHealthResponse(**document)


def _to_ms(seconds: float) -> int:
    return round(seconds * 1000)
