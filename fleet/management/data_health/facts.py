"""The parts of *Data health*. Times are seconds since the epoch. A part with an `error` could not be read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from fleet.management.doctor.findings import CheckFinding
from fleet.monitoring.state.poll_log import FeedReset, RoundEntry
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceKind


class DataVerdict(StrEnum):
    """Whether the data can be trusted."""

    _value_: str
    label: str

    def __new__(cls, slug: str, label: str = "") -> Self:
        """Return a member that equals its slug."""
        member = str.__new__(cls, slug)
        member._value_, member.label = slug, label
        return member

    GOOD = "good", "Good"
    DEGRADED = "degraded", "Degraded"
    BLIND = "blind", "Blind"


@dataclass(frozen=True, slots=True)
class DataProblem:
    """What is broken, and what to do."""

    #: The part: `rounds`, `workers`, `queues`, `targets`, `clocks`, `feeds`, `evidence` or `services`.
    part: str
    #: The data cannot be trusted at all.
    is_blinding: bool
    #: One sentence: what was seen.
    summary: str
    #: One sentence: what to do.
    remedy: str
    #: Path in the console, without the prefix of the cluster, and its label; empty without one.
    path: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class RoundsPart:
    """The newest round, and those before it."""

    error: str = ""
    is_paused: bool = False
    has_addresses: bool = True
    #: Seconds between rounds.
    interval: float = 5.0
    #: Age of data from which every agent is unknown, seconds.
    stale_after: float = 15.0
    #: When the newest round was concluded; None: no round yet.
    as_of: float | None = None
    #: No self-probe of a poller has succeeded for `stale_after`: failures to reach instances are not evidence.
    is_probe_failing: bool = False
    #: Rounds of the last hour, at most 720, newest first.
    rounds: tuple[RoundEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker process, as it reported last."""

    queue: str
    host: str
    pid: int
    version: str
    #: Seconds since its last report.
    age: float
    is_alive: bool
    #: Seconds by which its clock is ahead of that of this web server; negative: behind.
    clock_offset: float
    #: Of a poller: the last round of the cluster of which it polled a shard, and the seconds since then; None without.
    last_round: int | None = None
    last_round_age: float | None = None
    has_probe_succeeded: bool | None = None


@dataclass(frozen=True, slots=True)
class WorkersPart:
    """The worker processes of the installation."""

    error: str = ""
    workers: tuple[WorkerRow, ...] = ()
    #: Seconds without a report until a process counts as stopped.
    silent_after: float = 30.0


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A Celery queue."""

    name: str
    length: int
    #: Seconds since the oldest task was enqueued; None: the queue is empty, or the task does not say.
    oldest_age: float | None = None


@dataclass(frozen=True, slots=True)
class QueuesPart:
    """The queues, and the scheduler (beat) that fills them."""

    error: str = ""
    queues: tuple[QueueRow, ...] = ()
    #: The newest task of the scheduler: when it was enqueued, and by which process; None without a trace.
    ticked_at: float | None = None
    #: Processes that enqueued rounds in the last minute, the newest first: more than one are too many.
    schedulers: tuple[str, ...] = ()
    #: Rounds whose history the database has not stored yet.
    history_backlog: int = 0


@dataclass(frozen=True, slots=True)
class TargetRow:
    """An instance whose newest poll failed or is late."""

    id: str
    name: str
    kind: InstanceKind
    #: Seconds since the last attempt; None: it was never polled.
    age: float | None
    #: Original text of the last error; empty if the last attempt succeeded.
    error: str
    since: float | None
    is_late: bool
    is_timeout: bool


@dataclass(frozen=True, slots=True)
class TargetsPart:
    """The instances that pollers ask."""

    error: str = ""
    count: int = 0
    #: Instances that did not respond or are late, at most `MAX_ROWS`.
    rows: tuple[TargetRow, ...] = ()
    failing_count: int = 0
    late_count: int = 0
    timeout_count: int = 0


@dataclass(frozen=True, slots=True)
class ClockRow:
    """The clock of an instance."""

    id: str
    name: str
    kind: InstanceKind
    #: Seconds by which it is ahead of the clock of the worker that asked; negative: behind.
    offset: float


@dataclass(frozen=True, slots=True)
class ClocksPart:
    """Clocks that differ."""

    error: str = ""
    #: Seconds by which the clock of Redis is ahead of that of this web server; negative: behind.
    redis_offset: float | None = None
    #: Instances, the largest difference first, at most `MAX_ROWS`.
    rows: tuple[ClockRow, ...] = ()
    #: Instances, and those of them that report no time.
    count: int = 0
    unknown_count: int = 0


@dataclass(frozen=True, slots=True)
class FeedRow:
    """A feed without a good response for too long."""

    name: str
    responded_at: float | None


@dataclass(frozen=True, slots=True)
class FeedsPart:
    """Incremental feeds, and the watch."""

    error: str = ""
    #: Feeds that started over in the last hour, newest first.
    resets: tuple[FeedReset, ...] = ()
    stale_feeds: tuple[FeedRow, ...] = ()
    #: A worker holds the watch: not, opening, or ready; and the watched address.
    is_watch_held: bool = False
    is_watch_ready: bool = False
    watch_address: str = ""


@dataclass(frozen=True, slots=True)
class EvidencePart:
    """What the source of the cluster cannot tell."""

    error: str = ""
    source: str = ""
    #: The source declares that it never has these; the others were found missing by the newest round.
    declared_missing: tuple[tuple[Capability, str], ...] = ()
    found_missing: tuple[tuple[Capability, str], ...] = ()
    list_notice: str = ""


@dataclass(frozen=True, slots=True)
class ServicesPart:
    """Redis, the database, the disk and alerting: findings of the doctor."""

    error: str = ""
    findings: tuple[CheckFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class DataHealth:
    """Whether the data of a cluster can be trusted."""

    cluster: str
    at: float
    verdict: DataVerdict
    #: The answer in one or two sentences.
    sentence: str
    #: Those that blind Refloat first.
    problems: tuple[DataProblem, ...]
    rounds: RoundsPart
    workers: WorkersPart
    queues: QueuesPart
    targets: TargetsPart
    clocks: ClocksPart
    feeds: FeedsPart
    evidence: EvidencePart
    services: ServicesPart


#: Most rows of a list of instances; the counts are of all.
MAX_ROWS = 50
