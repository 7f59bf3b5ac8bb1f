"""Checks of the console's processes: polling rounds, the scheduler, the workers and the alerting process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from celery import Celery
from redis import Redis

from fleet.management.doctor import CHECK_TIMEOUT_SECONDS
from fleet.management.doctor.findings import CheckFinding, error, format_count, ok, skip, warning
from fleet.models.alerting import AlertClock
from fleet.models.clusters import Cluster
from fleet.monitoring.evidence import Timing
from fleet.monitoring.state.reader import Reader
from fleet.protocol.durations import format_readable

#: Tasks in a queue from which its worker is dead or too slow: the scheduler adds one task per second at most.
MAX_QUEUE_LENGTH = 10
#: Age of the last evaluation of the alert rules from which the alerting process has stopped, seconds.
MAX_EVALUATION_AGE_SECONDS = 60.0
_START_REMEDY = "Start it with `refloat serve`, or as a service: {service}. Its log shows why it ended."


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """The newest polling round of a cluster."""

    cluster: str
    has_auths: bool
    #: End of the round, seconds since the epoch; None: no round ended yet.
    as_of: float | None
    #: Seconds between rounds.
    interval: float

    def is_fresh(self, now: float) -> bool:
        """Return whether pages show the data of the round as current."""
        return self.as_of is not None and now - self.as_of <= Timing(round_interval=self.interval).stale_after


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """A Celery queue."""

    name: str
    worker_count: int
    length: int
    #: Seconds since the oldest task in the queue expired; None: it has not, or there is none.
    oldest_expired_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class QueuedTasks:
    """The tasks in a Celery queue: their number, and the messages of the oldest and the newest one; empty: none."""

    name: str
    length: int
    oldest: bytes
    newest: bytes


def start_remedy_of(service: str) -> str:
    """Return how to start a process of the console. `service`: of systemd, `refloat-beat`."""
    return _START_REMEDY.format(service=f"`systemctl start {service}`")


def read_clusters() -> dict[str, bool]:
    """Return for each cluster that is not paused whether it has addresses of auths. Raises DatabaseError."""
    return {
        cluster: bool(auths)
        for cluster, auths in Cluster.objects.filter(is_paused=False).values_list("pk", "auths")
    }


def read_rounds(
    client: Redis, prefix: str, has_auths_by_cluster: Mapping[str, bool], now: float
) -> list[RoundFacts]:
    """Return the newest round of each cluster. Raises StateUnavailableError."""
    reader = Reader(client, prefix)
    facts = []
    for cluster, has_auths in has_auths_by_cluster.items():
        summary = reader.summary(cluster, now)
        facts.append(RoundFacts(cluster, has_auths, summary.as_of, summary.interval))
    return facts


def read_queues(client: Redis, key_prefix: str, names: Sequence[str], now: float) -> list[QueueFacts]:
    """Return the facts of the queues, after waiting for the workers to respond.

    Raises RedisError and kombu's OperationalError. `key_prefix`: of Celery's keys.
    """
    worker_counts = _count_workers(names)
    return [
        QueueFacts(
            tasks.name, worker_counts[tasks.name], tasks.length, read_expired_seconds(tasks.oldest, now)
        )
        for tasks in read_queued_tasks(client, key_prefix, names)
    ]


def read_queued_tasks(client: Redis, key_prefix: str, names: Sequence[str]) -> list[QueuedTasks]:
    """Return the tasks of the queues, without asking the workers. Raises RedisError."""
    tasks = []
    for name in names:
        key = key_prefix + name
        with client.pipeline(transaction=True) as pipe:
            pipe.llen(key)
            pipe.lindex(key, -1)
            pipe.lindex(key, 0)
            length, oldest, newest = cast("tuple[int, bytes | None, bytes | None]", pipe.execute())
        tasks.append(QueuedTasks(name, length, oldest or b"", newest or b""))
    return tasks


def read_expired_seconds(message: bytes, now: float) -> float | None:
    """Return the seconds since a Celery message expired; None if it did not, or if it cannot be read."""
    try:
        expires_at = datetime.fromisoformat(json.loads(message)["headers"]["expires"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    seconds = now - expires_at.timestamp()
    return seconds if seconds > 0 else None


def check_rounds(rounds: Sequence[RoundFacts], now: float) -> Iterator[CheckFinding]:
    """Yield the age of the newest round of each cluster."""
    for facts in rounds:
        subject = f"Cluster {facts.cluster}"
        if not facts.has_auths:
            yield warning(
                "polling-rounds",
                f"{subject} has no addresses of auths, so it is not polled.",
                "Enter the addresses of some auths (host:port) on the page of the cluster, or set REFLOAT_AUTHS.",
            )
        elif facts.as_of is None:
            yield error(
                "polling-rounds",
                f"{subject} was never polled.",
                "Start the scheduler and the worker of the queue polls: see the findings below.",
            )
        elif not facts.is_fresh(now):
            age = format_readable(max(0.0, now - facts.as_of))
            yield error(
                "polling-rounds",
                f"{subject} was last polled {age} ago, so all its agents are unknown.",
                "Start the scheduler and the worker of the queue polls: see the findings below.",
            )
        else:
            age = format_readable(round(max(0.0, now - facts.as_of), 1))
            yield ok("polling-rounds", f"{subject} was last polled {age} ago.")
    if not rounds:
        yield skip("polling-rounds", "There is no cluster, or all are paused.")


def check_queue(queue: QueueFacts, *, is_proven_alive: bool) -> CheckFinding:
    """Return whether a worker serves a queue, and keeps up.

    `is_proven_alive`: a recent result proves it. A worker that runs a long task does not respond meanwhile.
    """
    name, tasks = f"worker-{queue.name}", format_count(queue.length, "task")
    remedy = start_remedy_of(f"refloat-worker@{queue.name}")
    has_backlog = queue.length >= MAX_QUEUE_LENGTH
    if not queue.worker_count and not is_proven_alive:
        summary = f"No worker of the queue {queue.name} responded within {CHECK_TIMEOUT_SECONDS:.0f} s"
        if has_backlog:
            return error(name, f"{summary}, and {tasks} wait.", remedy)
        return warning(name, f"{summary}: it is not running, or it is busy.", remedy)
    if has_backlog:
        age = queue.oldest_expired_seconds
        suffix = "" if age is None else f"; the oldest expired {format_readable(age)} ago"
        return warning(
            name,
            f"The queue {queue.name} has {tasks}{suffix}.",
            f"Start another worker of the queue {queue.name}, or give the machine more CPU.",
        )
    return ok(
        name,
        f"The queue {queue.name} has {tasks} and {format_count(max(queue.worker_count, 1), 'worker')}.",
    )


def check_scheduler(rounds: Sequence[RoundFacts], queues: Sequence[QueueFacts], now: float) -> CheckFinding:
    """Return whether beat runs. Its only trace are tasks, so fresh rounds or filling queues prove it."""
    polled_rounds = [facts for facts in rounds if facts.has_auths]
    if any(facts.is_fresh(now) for facts in polled_rounds):
        return ok("scheduler", "The scheduler (beat) starts polling rounds.")
    if any(queue.length for queue in queues):
        return skip("scheduler", "Tasks wait in the queues, so the scheduler (beat) cannot be checked.")
    if not polled_rounds:
        return skip("scheduler", "No cluster is polled, so the scheduler (beat) cannot be checked.")
    return error(
        "scheduler",
        "No polling round starts, and the queues are empty: the scheduler (beat) is not running.",
        start_remedy_of("refloat-beat"),
    )


def read_evaluations() -> dict[str, float | None]:
    """Return the time of the last evaluation of the alert rules by cluster. Raises DatabaseError."""
    evaluations: dict[str, float | None] = dict.fromkeys(Cluster.objects.values_list("pk", flat=True))
    evaluations.update(AlertClock.objects.values_list("cluster_id", "evaluated_at"))
    return evaluations


def check_evaluations(
    evaluated_at_by_cluster: Mapping[str, float | None], now: float
) -> Iterator[CheckFinding]:
    """Yield the age of the last evaluation of the alert rules of each cluster."""
    remedy = start_remedy_of("refloat-alerts")
    for cluster, evaluated_at in sorted(evaluated_at_by_cluster.items()):
        subject = f"The alert rules of cluster {cluster}"
        if evaluated_at is None:
            summary = f"{subject} were never evaluated: the alerting process is not running."
            yield error("alerting", summary, remedy)
            continue
        age_seconds = max(0.0, now - evaluated_at)
        age = format_readable(round(age_seconds, 1))
        if age_seconds > MAX_EVALUATION_AGE_SECONDS:
            summary = (
                f"{subject} were last evaluated {age} ago: the alerting process is not running or is stuck."
            )
            yield error("alerting", summary, remedy)
        else:
            yield ok("alerting", f"{subject} were last evaluated {age} ago.")


def _count_workers(names: Sequence[str]) -> dict[str, int]:
    """Return the number of workers that respond, by queue."""
    app = Celery("refloat-doctor", set_as_current=False)
    app.config_from_object("django.conf:settings", namespace="CELERY")
    # One attempt: the retries of the settings are for programs that run for ever.
    app.conf.broker_connection_max_retries = 0
    try:
        queues_by_worker: Mapping[str, Any] = (
            app.control.inspect(timeout=CHECK_TIMEOUT_SECONDS).active_queues() or {}
        )
    finally:
        app.close()
    return {
        name: sum(any(queue["name"] == name for queue in queues) for queues in queues_by_worker.values())
        for name in names
    }
