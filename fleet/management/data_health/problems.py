"""What is broken, from the parts of *Data health*, and the verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from fleet.management.data_health.facts import (
    ClocksPart,
    DataProblem,
    DataVerdict,
    EvidencePart,
    FeedsPart,
    QueuesPart,
    RoundsPart,
    ServicesPart,
    TargetsPart,
    WorkersPart,
)
from fleet.management.doctor.clock_checks import RECOMMENDED_OFFSET_SECONDS
from fleet.management.doctor.findings import CheckVerdict, format_count
from fleet.management.doctor.process_checks import MAX_QUEUE_LENGTH, start_remedy_of
from fleet.monitoring.state.poll_log import FeedResetReason
from fleet.protocol.durations import format_readable
from fleet.vocabulary.name_lists import join_names

#: Share of the last hour's rounds from which late ones are a problem.
_LATE_SHARE = 0.1
#: Rounds whose history may wait for the database.
_MAX_HISTORY_BACKLOG = 60
#: Seconds without a task from which the scheduler has stopped; it enqueues one each second.
_MAX_TICK_AGE_SECONDS = 30.0
#: Feeds that may start over in an hour without a problem: an instance that restarts has new feeds.
_MAX_FEED_RESETS = 5
_RUNBOOK = ("/alerts/runbooks/console/", "Runbook")
_NTP = "Synchronize the clocks with NTP: run `timedatectl` on the machines."


def find_round_problems(part: RoundsPart, cluster: str, now: float) -> Iterator[DataProblem]:
    """Yield why the newest round is too old, and rounds that take too long."""
    page = (f"/clusters/{quote(cluster)}/", "Cluster")
    if part.error:
        yield DataProblem(
            "rounds",
            True,
            f"The fleet data cannot be read: {part.error}.",
            "Start Redis, or correct REDIS_URL; Refloat rebuilds its data within a few rounds.",
            *_RUNBOOK,
        )
        return
    if part.is_paused:
        yield DataProblem(
            "rounds",
            True,
            "This cluster is paused, so Refloat does not poll it.",
            "Resume the cluster on its page.",
            *page,
        )
    elif not part.has_addresses:
        yield DataProblem(
            "rounds",
            True,
            "This cluster has no addresses of auths, so Refloat does not poll it.",
            "Enter the address of an auth on the page of the cluster.",
            *page,
        )
    elif part.as_of is None:
        yield DataProblem(
            "rounds",
            True,
            "No polling round has been completed yet.",
            "If this lasts longer than a minute, start the scheduler and the worker of the queue polls.",
            *_RUNBOOK,
        )
    elif now - part.as_of > part.stale_after:
        yield DataProblem(
            "rounds",
            True,
            f"The newest round ended {_ago(now - part.as_of)}, so all agents are shown as unknown.",
            "See the problems of workers, queues and services below: one of them stops the rounds.",
            *_RUNBOOK,
        )
    elif part.is_probe_failing:
        yield DataProblem(
            "rounds",
            True,
            "The self-probe of the pollers fails, so failures to reach instances are not evidence.",
            "Give the machine of the worker of the queue polls more CPU, and check its network.",
            *_RUNBOOK,
        )
    yield from _find_slow_rounds(part)


def _find_slow_rounds(part: RoundsPart) -> Iterator[DataProblem]:
    count = len(part.rounds)
    late_count = sum(entry.seconds > part.interval for entry in part.rounds)
    incomplete_count = sum(not entry.is_complete for entry in part.rounds)
    if late_count > _LATE_SHARE * count:
        yield DataProblem(
            "rounds",
            False,
            f"{late_count:,} of the last {format_count(count, 'round')} took longer than the interval of "
            f"{format_readable(part.interval)}.",
            "Start another worker of the queue polls, or raise REFLOAT_ROUND_INTERVAL.",
        )
    if incomplete_count > _LATE_SHARE * count:
        yield DataProblem(
            "rounds",
            False,
            f"{incomplete_count:,} of the last {format_count(count, 'round')} were concluded without all of their "
            "shards.",
            "Check whether a worker of the queue polls stops or is too slow; start another one.",
        )


def find_worker_problems(part: WorkersPart, queues: QueuesPart, now: float) -> Iterator[DataProblem]:
    """Yield queues without a living worker, versions that differ, and clocks that differ.

    Workers report after tasks: without tasks, because the scheduler stopped, nothing is known of them.
    """
    if part.error or queues.error:
        return  # the rounds and services have the reason
    for tasks in queues.queues:
        queue, workers = tasks.name, [worker for worker in part.workers if worker.queue == tasks.name]
        has_tasks = tasks.length > 0 or is_ticking(queues, now)
        if not has_tasks or any(worker.is_alive for worker in workers):
            continue
        effect = "nothing is polled" if queue == "polls" else "changes, drains and history do not proceed"
        last_sign = (
            f"last reported {_ago(min(worker.age for worker in workers))}"
            if workers
            else "has not reported in the last 24 h"
        )
        yield DataProblem(
            "workers",
            False,
            f"The worker of the queue {queue} {last_sign}: it is not running, or it is stuck, so {effect}.",
            start_remedy_of(f"refloat-worker@{queue}"),
            *_RUNBOOK,
        )
    alive = [worker for worker in part.workers if worker.is_alive]
    versions = sorted({worker.version for worker in alive})
    if len(versions) > 1:
        yield DataProblem(
            "workers",
            False,
            f"The workers run different versions of Refloat: {join_names(versions)}.",
            "Restart the workers of the older version.",
        )
    skewed = [worker for worker in alive if abs(worker.clock_offset) >= RECOMMENDED_OFFSET_SECONDS]
    for host in sorted({worker.host for worker in skewed}):
        offset = max((worker.clock_offset for worker in skewed if worker.host == host), key=abs)
        yield DataProblem(
            "clocks",
            False,
            f"The clock of the workers on {host} is {_describe_offset(offset)} the clock of this web server, so the "
            "age of the data is wrong.",
            _NTP,
        )


def is_ticking(part: QueuesPart, now: float) -> bool:
    """Return whether the scheduler enqueued a task recently."""
    return part.ticked_at is not None and now - part.ticked_at <= _MAX_TICK_AGE_SECONDS


def find_queue_problems(part: QueuesPart, now: float) -> Iterator[DataProblem]:
    """Yield queues that fill, a scheduler that stopped or runs twice, and history that waits."""
    if part.error:
        return
    for queue in part.queues:
        if queue.length >= MAX_QUEUE_LENGTH:
            age = "" if queue.oldest_age is None else f"; the oldest was enqueued {_ago(queue.oldest_age)}"
            yield DataProblem(
                "queues",
                False,
                f"{format_count(queue.length, 'task')} wait in the queue {queue.name}{age}.",
                f"Start a worker of the queue {queue.name}, or another one if it is running.",
            )
    if not is_ticking(part, now):
        last_sign = (
            "has left no trace" if part.ticked_at is None else f"last ticked {_ago(now - part.ticked_at)}"
        )
        yield DataProblem(
            "queues",
            False,
            f"The scheduler (beat) {last_sign}: it starts no polling rounds.",
            start_remedy_of("refloat-beat"),
            *_RUNBOOK,
        )
    if len(part.schedulers) > 1:
        yield DataProblem(
            "queues",
            False,
            f"{len(part.schedulers)} schedulers (beat) are running: {join_names(part.schedulers)}.",
            "Stop all but one: exactly one process may start rounds.",
        )
    if part.history_backlog > _MAX_HISTORY_BACKLOG:
        yield DataProblem(
            "queues",
            False,
            f"The history of {format_count(part.history_backlog, 'round')} waits for the database.",
            "Check the database and the worker of the queue actions; above 10,000 rounds history is dropped.",
        )


def find_target_problems(part: TargetsPart) -> Iterator[DataProblem]:
    """Yield instances that do not respond or are not polled in time."""
    if part.error:
        return
    names = [row.name for row in part.rows]
    page = ("#targets", "Instances")
    if part.count and part.failing_count == part.count:
        yield DataProblem(
            "targets",
            True,
            f"None of {format_count(part.count, 'instance')} responds, so the state of the fleet is unknown.",
            "Check the network between the workers and the fleet, and test the connection to the cluster.",
            *page,
        )
    elif part.failing_count:
        yield DataProblem(
            "targets",
            False,
            f"{part.failing_count:,} of {format_count(part.count, 'instance')} did not respond to the last poll: "
            f"{_name_some(names, part.failing_count)}.",
            "Check these instances: their evidence is as old as their last response.",
            *page,
        )
    if part.late_count and part.late_count < part.count:
        yield DataProblem(
            "targets",
            False,
            f"{format_count(part.late_count, 'instance')} of {part.count:,} were not polled in the last three rounds.",
            "Start another worker of the queue polls, or raise REFLOAT_ROUND_INTERVAL.",
            "#targets",
            "Instances",
        )


def find_clock_problems(part: ClocksPart) -> Iterator[DataProblem]:
    """Yield clocks that differ by more than people can ignore."""
    if part.error:
        return
    if part.redis_offset is not None and abs(part.redis_offset) >= RECOMMENDED_OFFSET_SECONDS:
        yield DataProblem(
            "clocks",
            False,
            f"The clock of Redis is {_describe_offset(part.redis_offset)} the clock of this web server.",
            _NTP,
        )
    skewed = [row for row in part.rows if abs(row.offset) >= RECOMMENDED_OFFSET_SECONDS]
    if skewed:
        first = skewed[0]
        more = "" if len(skewed) == 1 else f" ({len(skewed) - 1} more differ)"
        yield DataProblem(
            "clocks",
            False,
            f"The clock of {first.name} is {_describe_offset(first.offset)} the clock of the workers{more}: the "
            "expiry of its agents is shown wrong.",
            _NTP,
            "#clocks",
            "Clocks",
        )


def find_feed_problems(part: FeedsPart) -> Iterator[DataProblem]:
    """Yield feeds that start over too often, and lists that are not read."""
    if part.error:
        return
    if len(part.resets) > _MAX_FEED_RESETS:
        dropped_count = sum(reset.reason is FeedResetReason.CONFLICT for reset in part.resets)
        suffix = f"; {dropped_count} answers were dropped" if dropped_count else ""
        yield DataProblem(
            "feeds",
            False,
            f"Feeds started over {len(part.resets)} times in the last hour{suffix}: changes between may be missing.",
            "Check whether the instances restart, and whether two installations poll with the same Redis prefix.",
            "#feeds",
            "Feeds",
        )
    for feed in part.stale_feeds:
        yield DataProblem(
            "feeds",
            False,
            f"The {feed.name} could not be read in the last rounds.",
            "Test the connection to the cluster: the test names the request that fails.",
        )


def find_evidence_problems(part: EvidencePart, cluster: str) -> Iterator[DataProblem]:
    """Yield what the newest round found missing; what the product never has is no problem."""
    if part.error:
        return
    page = (f"/clusters/{quote(cluster)}/", "Cluster")
    for capability, reason in part.found_missing:
        yield DataProblem(
            "evidence",
            False,
            f"Not available: {capability.label}. {reason}",
            f"{capability.effect} Correct the cause that is named, or accept the gap.",
            *page,
        )
    if part.list_notice:
        yield DataProblem(
            "evidence", False, part.list_notice, "Enter another address on the page of the cluster.", *page
        )


def find_service_problems(part: ServicesPart) -> Iterator[DataProblem]:
    """Yield what the doctor found wrong with Redis, the database, the disk or alerting."""
    for finding in part.findings:
        if finding.verdict in (CheckVerdict.ERROR, CheckVerdict.WARNING):
            yield DataProblem("services", False, finding.summary, finding.remedy)


def conclude(
    problems: Sequence[DataProblem], rounds: RoundsPart, targets: TargetsPart, now: float
) -> tuple[DataVerdict, str]:
    """Return the verdict and its sentence."""
    blinding = next((problem for problem in problems if problem.is_blinding), None)
    if blinding is not None:
        return DataVerdict.BLIND, f"Do not trust what this console shows of this cluster. {blinding.summary}"
    age = _ago(0.0 if rounds.as_of is None else now - rounds.as_of)
    if problems:
        noun = format_count(len(problems), "problem")
        return (
            DataVerdict.DEGRADED,
            f"The newest round ended {age}, but {noun} may make parts of the data wrong.",
        )
    count = format_count(targets.count, "instance")
    sentence = f"You can trust this data: the newest round ended {age}, and all of {count} responded."
    return DataVerdict.GOOD, sentence


def _ago(seconds: float) -> str:
    return "less than 1 s ago" if seconds < 1 else f"{format_readable(round(seconds, 0))} ago"


def _describe_offset(offset: float) -> str:
    return f"{format_readable(round(abs(offset), 1))} {'ahead of' if offset > 0 else 'behind'}"


def _name_some(names: Sequence[str], count: int) -> str:
    first_names = list(names[:3])
    return join_names(
        [*first_names, f"{count - len(first_names):,} more"] if count > len(first_names) else first_names
    )
