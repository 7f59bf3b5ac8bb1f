"""Decisions of a policy rollout: which instances are next, what to do with each, what the rollout waits for. Pure.

One instance at a time, or a few: drained, restarted, and healthy again before the next. docs/reference/policies.md,
"Rollouts".
Times are seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from enum import StrEnum

from fleet.protocol.durations import format_clock_time
from fleet.vocabulary.numbers import number_field, parse_numbers, ranges_of
from fleet.vocabulary.tags import TagEnum, Tone


class RolloutStepState(TagEnum):
    """The state of one instance in a rollout."""

    PENDING = "pending", Tone.QUIET
    DRAINING = "draining", Tone.BUSY
    RESTARTING = "restarting", Tone.BUSY
    #: The instance runs with the desired values, and must stay healthy for the soak time.
    VERIFYING = "verifying", Tone.BUSY
    SUCCEEDED = "succeeded", Tone.GOOD
    FAILED = "failed", Tone.BAD
    SKIPPED = "skipped", Tone.QUIET


IN_PROGRESS_STATES = (RolloutStepState.DRAINING, RolloutStepState.RESTARTING, RolloutStepState.VERIFYING)


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """The settings of a rollout."""

    #: Instances that are drained or restarted at the same time.
    concurrency: int = number_field(1, 1, 10, "Concurrency", "instances")
    #: Time that connections have to leave an instance before its restart, seconds.
    drain_seconds: int = number_field(2, 0, 600, "Drain time", "seconds")
    #: Time that a restarted instance must stay healthy before the next one starts, seconds.
    soak_seconds: int = number_field(5, 0, 600, "Soak time", "seconds")
    #: Longest time for the restart of an instance, and again for its recovery, seconds.
    timeout_seconds: int = number_field(90, 10, 3_600, "Per-instance timeout", "seconds")


SETTING_RANGES = ranges_of(RolloutSettings)
#: Seconds from the end of the drain time until a restarted instance is healthy, with the steps of the rollout: what a
#: local test fleet needs.
DEFAULT_RESTART_SECONDS = 2.5


@dataclass(frozen=True, slots=True)
class RolloutCounts:
    """The number of instances of a rollout in each state."""

    pending_count: int = 0
    #: Draining, restarting, or verified to be healthy.
    in_progress_count: int = 0
    #: Restarted, and running with the desired values.
    succeeded_count: int = 0
    failed_count: int = 0
    #: Not restarted: the rollout was aborted, or the instance needed no restart.
    skipped_count: int = 0

    @property
    def total_count(self) -> int:
        """The number of all instances."""
        return sum(astuple(self))

    @property
    def percent(self) -> int:
        """The percentage of all instances that have restarted."""
        return 100 * self.succeeded_count // self.total_count if self.total_count else 100


@dataclass(frozen=True, slots=True)
class ParsedRolloutSettings:
    """Parsed rollout settings; `problems` by field."""

    settings: RolloutSettings
    problems: Mapping[str, str] = field(default_factory=dict)


def parse_rollout_settings(raw_values: Mapping[str, object]) -> ParsedRolloutSettings:
    """Parse rollout settings. Missing fields get their default; unknown fields are problems."""
    numbers, problems = parse_numbers(raw_values, RolloutSettings)
    return ParsedRolloutSettings(RolloutSettings() if problems else RolloutSettings(**numbers), problems)


@dataclass(frozen=True, slots=True)
class InstanceProbe:
    """What an instance reports now."""

    #: The run of the instance (a new id after each start); empty when it does not respond.
    run_id: str = ""
    #: The instance runs with exactly the desired values.
    has_desired_values: bool = False
    #: The first difference from the desired values, as a sentence; empty: none.
    drift: str = ""
    #: The instance reports SERVING.
    serving: bool = False
    #: Why the instance does not respond; empty when it does.
    error: str = ""


class StepAction(StrEnum):
    """What a rollout does with an instance next."""

    NOTHING = "nothing"
    RESTART = "restart"
    CHECK = "check"
    FINISH = "finish"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class NextStep:
    """The next move for one instance, and the sentence to show."""

    action: StepAction
    detail: str = ""


def decide_next_step(
    state: RolloutStepState,
    *,
    since: float,
    run_id: str,
    probe: InstanceProbe,
    settings: RolloutSettings,
    now: float,
) -> NextStep:
    """Return the next move for an instance in progress. `run_id`: the run that the restart is to end."""
    waited_seconds = now - since
    if state is RolloutStepState.DRAINING:
        return (
            NextStep(StepAction.RESTART)
            if waited_seconds >= settings.drain_seconds
            else NextStep(StepAction.NOTHING, "draining")
        )
    if state is RolloutStepState.RESTARTING:
        if probe.run_id and probe.run_id != run_id:
            if probe.has_desired_values:
                return NextStep(StepAction.CHECK)
            return NextStep(
                StepAction.FAIL,
                f"the instance restarted, but {probe.drift or 'a setting on its host overrides the desired values'}",
            )
        reason = probe.error or "the instance has not restarted yet"
        # A short absence is expected: the connection error is shown only after the timeout.
        wait_reason = "restarting; not responding yet" if probe.error else reason
        return (
            NextStep(StepAction.NOTHING, wait_reason)
            if waited_seconds < settings.timeout_seconds
            else _timeout_failure(settings, "restart", reason)
        )
    if state is RolloutStepState.VERIFYING:
        if not probe.serving:
            reason = probe.error or "the instance reports NOT_SERVING"
            return (
                NextStep(StepAction.NOTHING, reason)
                if waited_seconds < settings.timeout_seconds
                else _timeout_failure(settings, "become healthy", reason)
            )
        return (
            NextStep(StepAction.FINISH)
            if waited_seconds >= settings.soak_seconds
            else NextStep(
                StepAction.NOTHING,
                f"healthy; must stay healthy until {format_clock_time(since + settings.soak_seconds)}",
            )
        )
    raise AssertionError(f"an instance in the state {state.value} is not in progress")


def choose_steps_to_start(
    states: Sequence[RolloutStepState], settings: RolloutSettings, sick_instances: Sequence[str]
) -> tuple[tuple[int, ...], str]:
    """Return the positions of the instances to start now, and what the rollout waits for when there are none."""
    in_progress_count = sum(state in IN_PROGRESS_STATES for state in states)
    pending_indices = [index for index, state in enumerate(states) if state is RolloutStepState.PENDING]
    free_slots = settings.concurrency - in_progress_count
    if not pending_indices or free_slots <= 0:
        return (), ""
    if sick_instances:
        return (), f"waiting for {', '.join(sick_instances)} to become healthy"
    return tuple(pending_indices[:free_slots]), ""


def estimate_rollout_seconds(
    instance_count: int, settings: RolloutSettings, restart_seconds: float = DEFAULT_RESTART_SECONDS
) -> float:
    """Return the seconds until all instances have restarted: groups of `concurrency`, one after the other."""
    group_count = -(-instance_count // settings.concurrency)
    return group_count * (settings.drain_seconds + restart_seconds + settings.soak_seconds)


def count_steps(states: Iterable[RolloutStepState]) -> RolloutCounts:
    """Return the number of instances in each state."""
    count_by_state = Counter(states)
    return RolloutCounts(
        pending_count=count_by_state[RolloutStepState.PENDING],
        in_progress_count=sum(count_by_state[state] for state in IN_PROGRESS_STATES),
        succeeded_count=count_by_state[RolloutStepState.SUCCEEDED],
        failed_count=count_by_state[RolloutStepState.FAILED],
        skipped_count=count_by_state[RolloutStepState.SKIPPED],
    )


def describe_progress(states_by_name: Mapping[str, RolloutStepState]) -> str:
    """Return how far an aborted rollout came: `restarted 1 of 3 instances, 1 skipped; auth-2 is restarting`."""
    counts = count_steps(states_by_name.values())
    noun = "instance" if counts.total_count == 1 else "instances"
    parts = [f"restarted {counts.succeeded_count} of {counts.total_count} {noun}"]
    parts += [f"{counts.skipped_count} skipped"] if counts.skipped_count else []
    parts += [f"{counts.failed_count} failed"] if counts.failed_count else []
    active_parts = [
        f"{name} is {'being verified' if state is RolloutStepState.VERIFYING else state.label}"
        for name, state in states_by_name.items()
        if state in IN_PROGRESS_STATES
    ]
    return "; ".join([", ".join(parts), *active_parts])


def describe_result(states: Sequence[RolloutStepState]) -> str:
    """Return the result of a rollout whose instances have all succeeded or were skipped, as a sentence."""
    if not states:
        return "desired values stored; no restarts"
    skipped_count = sum(state is RolloutStepState.SKIPPED for state in states)
    restarted_count = len(states) - skipped_count
    if not restarted_count:
        return f"no instance restarted, {skipped_count} skipped"
    skipped_note = f", {skipped_count} skipped" if skipped_count else ""
    return f"{restarted_count} instance{'' if restarted_count == 1 else 's'} restarted{skipped_note}"


def describe_reconnects(reconnect_count: int | None) -> str:
    """Return how often agents reconnected, as the end of the result of a rollout; empty when None or 0."""
    if not reconnect_count:
        return ""
    return f"; agents reconnected {f'{reconnect_count:,} times' if reconnect_count > 1 else 'once'}"


def _timeout_failure(settings: RolloutSettings, action: str, reason: str) -> NextStep:
    return NextStep(
        StepAction.FAIL,
        f"timed out: the instance did not {action} within {settings.timeout_seconds} s: {reason}",
    )
