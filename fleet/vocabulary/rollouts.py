"""A rollout of policies as decisions: whose turn it is, what comes next for an instance, what holds it up. Pure.

One instance at a time, or a few: drained, restarted, and well again before the next one. docs/policies.md, "Rollouts".
Times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.vocabulary.numbers import number_field, ranges_of, parse_numbers
from fleet.vocabulary.tags import TagEnum, Tone


class RolloutStepState(TagEnum):
    """How far one instance is."""

    WAITING = "waiting", Tone.QUIET
    DRAINING = "draining", Tone.BUSY
    RESTARTING = "restarting", Tone.BUSY
    #: It runs with what is wanted; it is to stay well for a while.
    CHECKING = "checking", Tone.BUSY
    OK = "ok", Tone.GOOD
    FAILED = "failed", Tone.BAD
    SKIPPED = "skipped", Tone.QUIET


IN_PROGRESS = (RolloutStepState.DRAINING, RolloutStepState.RESTARTING, RolloutStepState.CHECKING)


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """How a rollout goes about it."""

    at_once: int = number_field(1, 1, 10, "Instances at a time")
    #: How long who is on an instance may take to leave.
    drain: int = number_field(2, 0, 600, "Drain before a restart", "seconds")
    settle: int = number_field(5, 0, 600, "Well for so long before the next", "seconds")
    #: How long each state may take.
    patience: int = number_field(90, 10, 3_600, "Give up on an instance after", "seconds")


RANGES = ranges_of(RolloutSettings)


@dataclass(frozen=True, slots=True)
class ParsedRolloutSettings:
    """Terms as somebody wrote them; `problems` by field."""

    settings: RolloutSettings
    problems: Mapping[str, str] = field(default_factory=dict)


def parse_rollout_settings(raw_values: Mapping[str, object]) -> ParsedRolloutSettings:
    """Read terms; fields left out have their default, unknown ones are named."""
    numbers, problems = parse_numbers(raw_values, RolloutSettings)
    return ParsedRolloutSettings(RolloutSettings() if problems else RolloutSettings(**numbers), problems)


@dataclass(frozen=True, slots=True)
class InstanceProbe:
    """An instance as it answers now."""

    #: Empty when it does not answer.
    run_id: str = ""
    #: It runs with all that is wanted, and with nothing that is wanted no more.
    has_desired_values: bool = False
    #: How it does not, as a sentence.
    drift: str = ""
    #: It says SERVING.
    serving: bool = False
    #: Why it does not answer.
    error: str = ""


class StepAction(StrEnum):
    """What to do with an instance."""

    NOTHING = "nothing"
    RESTART = "restart"
    CHECK = "check"
    FINISH = "finish"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class NextStep:
    """What comes next for one instance, and the sentence that goes with it."""

    action: StepAction
    detail: str = ""


def decide_next_step(
    state: RolloutStepState, *, since: float, run_id: str, probe: InstanceProbe, settings: RolloutSettings, now: float
) -> NextStep:
    """What comes next for an instance under way; `run_id` is the run that was to end."""
    waited_seconds = now - since
    if state is RolloutStepState.DRAINING:
        return NextStep(StepAction.RESTART) if waited_seconds >= settings.drain else NextStep(StepAction.NOTHING, "draining")
    if state is RolloutStepState.RESTARTING:
        if probe.run_id and probe.run_id != run_id:
            if probe.has_desired_values:
                return NextStep(StepAction.CHECK)
            return NextStep(StepAction.FAIL, f"it started again, but {probe.drift or 'something else decides there'}")
        reason = probe.error or "it still runs as before"
        # That it is away for a moment is no error: what the connection says is for when it stays away.
        pending_reason = "it does not answer yet" if probe.error else reason
        return NextStep(StepAction.NOTHING, pending_reason) if waited_seconds < settings.patience else _timeout_failure(settings, "come back", reason)
    if state is RolloutStepState.CHECKING:
        if not probe.serving:
            reason = probe.error or "it says NOT_SERVING"
            return NextStep(StepAction.NOTHING, reason) if waited_seconds < settings.patience else _timeout_failure(settings, "get well", reason)
        return (
            NextStep(StepAction.FINISH)
            if waited_seconds >= settings.settle
            else NextStep(StepAction.NOTHING, "well; to stay so for a while")
        )
    raise AssertionError(f"an instance that is {state.value} is not under way")


def choose_steps_to_start(
    states: Sequence[RolloutStepState], settings: RolloutSettings, sick_instances: Sequence[str]
) -> tuple[tuple[int, ...], str]:
    """The places in the list whose turn it is, and what they wait for when it is nobody's."""
    in_progress_count = sum(state in IN_PROGRESS for state in states)
    waiting_indices = [index for index, state in enumerate(states) if state is RolloutStepState.WAITING]
    free_slots = settings.at_once - in_progress_count
    if not waiting_indices or free_slots <= 0:
        return (), ""
    if sick_instances:
        return (), f"waits until {', '.join(sick_instances)} {'is' if len(sick_instances) == 1 else 'are'} well"
    return tuple(waiting_indices[:free_slots]), ""


def _timeout_failure(settings: RolloutSettings, action: str, reason: str) -> NextStep:
    return NextStep(StepAction.FAIL, f"it did not {action} within {settings.patience} s: {reason}")
