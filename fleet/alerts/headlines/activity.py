"""What happens on purpose in a fleet, and what ended recently, in the words of the headline. Pure.

Agents that a campaign moves, and instances that a rollout restarts, look like a failure to whoever does not know of
the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.alerts.headlines.actions import HeadlineAction
from fleet.alerts.wording.words import format_agents, format_since
from fleet.protocol.durations import format_clock_time
from fleet.vocabulary.campaigns import ConnectionKind
from fleet.vocabulary.changes import ChangeKind, ChangeState
from fleet.vocabulary.name_lists import join_names
from fleet.vocabulary.rollouts import RolloutStepState

#: Seconds for which the headline names what has ended: a change, or an incident if nothing is wrong.
RECENT_SECONDS = 600.0
#: Number of changes that ended, of those that are not running, that the headline describes; pages link to all.
_MAX_ENDED = 1
#: Number of recent incidents that the headline links to, and of names in one sentence.
MAX_RECOVERIES = 3
_MAX_NAMES = 3
_KIND_WORDS = {
    ChangeKind.RECONNECT: "campaign",
    ChangeKind.POLICY: "rollout",
    ChangeKind.NETWORKING_CONFIG: "config change",
    ChangeKind.SERVICE: "service change",
    ChangeKind.DEGRADE: "degradation",
    ChangeKind.RETIRE: "retirement",
}
#: Kinds that move agents by a campaign.
_CAMPAIGN_KINDS = frozenset({ChangeKind.RECONNECT, ChangeKind.SERVICE})
_STEP_PREDICATES = {
    RolloutStepState.DRAINING: "is draining",
    RolloutStepState.RESTARTING: "is restarting",
    RolloutStepState.VERIFYING: "has restarted and must stay healthy",
}
#: The same as a label of the instance.
_STEP_WORDS = {
    RolloutStepState.DRAINING: "draining",
    RolloutStepState.RESTARTING: "restarting",
    RolloutStepState.VERIFYING: "restarted",
}
#: What a campaign does with the instances that its agents leave.
_LEAVING_WORDS = "agents moving away"


@dataclass(frozen=True, slots=True)
class ChangeProgress:
    """A change that Refloat carries out, or that ended recently. Times are seconds since the epoch."""

    number: int
    kind: ChangeKind
    state: ChangeState
    #: What it changes, in one line: `agent_connection_count 1 → 2`.
    title: str
    #: The user who started it; of a program without a user, its own name.
    actor_name: str
    started_at: float
    #: None while Refloat carries it out, and while it verifies the result.
    ended_at: float | None = None
    #: Agents of a campaign or instances of a rollout, and those with a result; 0: not known.
    total_count: int = 0
    finished_count: int = 0
    failed_count: int = 0
    #: Of a rollout: instances that are not restarted. They are part of `total_count`.
    skipped_count: int = 0
    #: Of a campaign: the connection that moves, and the names of the instances that the agents leave.
    connection: ConnectionKind = ConnectionKind.TUNNEL
    instances_to_leave: tuple[str, ...] = ()
    #: Of a rollout: name and state of each instance in progress, and what its instances are: `proxies`.
    steps: tuple[tuple[str, RolloutStepState], ...] = ()
    #: Until when those that have restarted must stay healthy, before the next ones restart.
    checks_end_at: float | None = None
    instances_noun: str = "instances"
    #: Why it waits, or why it is in its state: an error, or why it is paused.
    detail: str = ""

    @property
    def is_running(self) -> bool:
        """Return whether Refloat carries the change out now."""
        return self.state in (ChangeState.RUNNING, ChangeState.PAUSED)


@dataclass(frozen=True, slots=True)
class RecentRecovery:
    """An incident that ended recently."""

    number: int
    #: What it was about, in the past tense, without a full stop; and the name of its cause.
    summary: str
    cause_name: str
    #: Start of the recovery, seconds since the epoch: the incident is resolved only after it has lasted for minutes.
    recovered_at: float


@dataclass(frozen=True, slots=True)
class Activity:
    """What happens on purpose in a fleet, and what ended recently; the newest first."""

    changes: tuple[ChangeProgress, ...] = ()
    recoveries: tuple[RecentRecovery, ...] = ()
    #: Number of incidents that ended recently, if `recoveries` has only the newest ones.
    recovery_count: int = 0


NO_ACTIVITY = Activity()


@dataclass(frozen=True, slots=True)
class HeadlineChange:
    """A change as the headline tells of it."""

    number: int
    #: `campaign`, `rollout` or `config change`.
    kind: str
    #: What it does, and how far it is.
    sentence: str
    is_running: bool
    total_count: int
    finished_count: int
    #: Page of the change, below the prefix of the cluster.
    path: str
    #: By name of each instance that it acts on now: what happens with the instance, `restarting`.
    instances: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return how pages name it: `Campaign 3`."""
        return f"{self.kind.capitalize()} {self.number}"


def describe_changes(
    activity: Activity, now: float, empty_proxy_names: Sequence[str] = ()
) -> tuple[HeadlineChange, ...]:
    """Return the changes as the headline tells of them, running ones first.

    `empty_proxy_names`: proxies that are OK and have no tunnels while others have some, as after their restart.
    """
    changes = sorted(activity.changes, key=lambda change: not change.is_running)
    return tuple(
        HeadlineChange(
            number=change.number,
            kind=_KIND_WORDS[change.kind],
            sentence=_describe_change(change, now, empty_proxy_names),
            is_running=change.is_running,
            total_count=change.total_count,
            finished_count=change.finished_count,
            path=f"/changes/{change.number}/",
            instances=_instances_of(change),
        )
        for change in changes
    )


def describe_activity(changes: Sequence[HeadlineChange]) -> str:
    """Return the running changes and the newest one that ended as sentences; empty without any."""
    ended_changes = [change for change in changes if not change.is_running]
    sentences = [change.sentence for change in changes if change.is_running]
    sentences += [change.sentence for change in ended_changes[:_MAX_ENDED]]
    return " ".join(sentences)


def find_restarting_instances(activity: Activity) -> frozenset[str]:
    """Return the names of the instances that a rollout drains, restarts or checks now."""
    return frozenset(
        name
        for change in activity.changes
        if change.kind is ChangeKind.POLICY and change.state in (ChangeState.RUNNING, ChangeState.CANCELLED)
        for name, _ in change.steps
    )


def describe_recoveries(activity: Activity, now: float) -> str:
    """Return the incidents that ended recently as a sentence; empty without any.

    Several incidents are counted and named without their agents: one agent may have been affected by each of them.
    """
    recoveries = activity.recoveries
    count = max(activity.recovery_count, len(recoveries))
    if not recoveries:
        return ""
    if count == 1:
        return f"Recovered at {format_since(recoveries[0].recovered_at, now)}: {recoveries[0].summary}."
    newest_at = max(recovery.recovered_at for recovery in recoveries)
    names = list(dict.fromkeys(recovery.cause_name for recovery in recoveries))[:_MAX_NAMES]
    omitted_count = count - len(recoveries[:_MAX_NAMES])
    names_text = f"{', '.join(names)} and {omitted_count:,} more" if omitted_count > 0 else join_names(names)
    return f"{count:,} incidents ended, the last at {format_since(newest_at, now)}: {names_text}."


def link_incident(number: int, cause_name: str) -> HeadlineAction:
    """Return the link to the page of an incident, which names its cause: `Open incident 4 (proxy-2)`."""
    return HeadlineAction(f"Open incident {number} ({cause_name})", f"/incidents/{number}/")


def link_activity(
    changes: Iterable[HeadlineChange], recoveries: Iterable[RecentRecovery]
) -> tuple[HeadlineAction, ...]:
    """Return links to the pages of changes and of incidents that ended recently."""
    links = [HeadlineAction(f"Open {change.kind} {change.number}", change.path) for change in changes]
    links += [
        link_incident(recovery.number, recovery.cause_name) for recovery in list(recoveries)[:MAX_RECOVERIES]
    ]
    return tuple(links)


def _describe_change(change: ChangeProgress, now: float, empty_proxy_names: Sequence[str]) -> str:
    subject = f"{_KIND_WORDS[change.kind].capitalize()} {change.number}"
    if change.is_running:
        authorship = f", started by {change.actor_name} at {format_since(change.started_at, now)},"
        return f"{subject}{authorship} {_describe_running(change)}."
    at = "" if change.ended_at is None else f" at {format_since(change.ended_at, now)}"
    if change.state is ChangeState.VERIFYING:
        return f"{subject} was applied{at} and is being verified: {change.title}."
    if change.state is ChangeState.FAILED:
        return f"{subject} failed{at}: {change.detail.rstrip('.') or change.title}."
    verb = "was aborted" if change.state is ChangeState.CANCELLED else "ended"
    sentence = f"{subject} {verb}{at}: {_describe_result(change)}."
    if change.kind is not ChangeKind.POLICY or not change.finished_count or not empty_proxy_names:
        return sentence
    return f"{sentence} {_describe_empty_proxies(empty_proxy_names)}"


def _describe_empty_proxies(names: Sequence[str]) -> str:
    """Return why proxies that have restarted have no agents: nothing moves agents back."""
    subject = join_names(names) if len(names) <= _MAX_NAMES else f"{len(names):,} proxies"
    verb = "has" if len(names) == 1 else "have"
    return f"{subject} {verb} no agents yet: agents stay at the other proxies until they connect again."


def _describe_running(change: ChangeProgress) -> str:
    progress = _join_progress(_describe_progress(change), change.detail.removeprefix("paused: "))
    if change.state is ChangeState.PAUSED:
        return f"is paused: {progress}" if progress else "is paused"
    match change.kind:
        case ChangeKind.RECONNECT | ChangeKind.SERVICE:
            text = f"is moving {_agents_of(change)} {_destination_of(change)}"
        case ChangeKind.POLICY:
            count_text = f"{change.total_count:,} " if change.total_count else ""
            text = f"is restarting {count_text}{change.instances_noun}"
        case _:
            text = f"is in progress: {change.title}"
    return f"{text}: {progress}" if progress else text


def _join_progress(progress: str, wait_reason: str) -> str:
    if not wait_reason:
        return progress
    return f"{progress} ({wait_reason})" if progress else wait_reason


def _describe_progress(change: ChangeProgress) -> str:
    """Return how far a change is: `proxy-2 is restarting, 1 of 4 finished`."""
    if not change.total_count:
        return ""
    verb = "moved" if change.kind in _CAMPAIGN_KINDS else "finished"
    succeeded_count = change.finished_count - change.failed_count
    parts = [f"{name} {_predicate_of(state, change)}" for name, state in change.steps[:_MAX_NAMES]]
    parts.append(f"{succeeded_count:,} of {change.total_count:,} {verb}")
    if change.failed_count:
        parts.append(f"{change.failed_count:,} failed")
    if change.skipped_count:
        parts.append(f"{change.skipped_count:,} skipped")
    return ", ".join(parts)


def _predicate_of(state: RolloutStepState, change: ChangeProgress) -> str:
    is_timed = state is RolloutStepState.VERIFYING and change.checks_end_at is not None
    until = f" until {format_clock_time(change.checks_end_at or 0.0)}" if is_timed else ""
    return f"{_STEP_PREDICATES[state]}{until}"


def _describe_result(change: ChangeProgress) -> str:
    if not change.total_count:
        return change.title
    succeeded = f"{change.finished_count - change.failed_count:,} of {change.total_count:,}"
    match change.kind:
        case ChangeKind.RECONNECT | ChangeKind.SERVICE:
            return f"{succeeded} agents moved {_destination_of(change)}"
        case ChangeKind.POLICY:
            skipped_text = f", {change.skipped_count:,} skipped" if change.skipped_count else ""
            return "; ".join(
                [f"{succeeded} {change.instances_noun} restarted{skipped_text}"]
                + [f"{name} {_predicate_of(state, change)}" for name, state in change.steps[:_MAX_NAMES]]
            )
        case _:
            return change.title


def _agents_of(change: ChangeProgress) -> str:
    return format_agents(change.total_count) if change.total_count else "agents"


def _destination_of(change: ChangeProgress) -> str:
    names = change.instances_to_leave
    if names and len(names) <= _MAX_NAMES:
        return f"off {join_names(names)}"
    return "to other auths" if change.connection is ConnectionKind.AUTH else "to other proxies"


def _instances_of(change: ChangeProgress) -> dict[str, str]:
    if change.kind in _CAMPAIGN_KINDS:
        return dict.fromkeys(change.instances_to_leave, _LEAVING_WORDS) if change.is_running else {}
    return {name: _STEP_WORDS[state] for name, state in change.steps}
