"""A rollout of policies as decisions: whose turn it is, what comes next for an instance, what holds it up. Pure.

One instance at a time, or a few: drained, restarted, and well again before the next one. docs/policies.md, "Rollouts".
Times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.vocabulary.numbers import number, ranges, read
from fleet.vocabulary.tags import Tag, Tone


class StepState(Tag):
    """How far one instance is."""

    WAITING = "waiting", Tone.QUIET
    DRAINING = "draining", Tone.BUSY
    RESTARTING = "restarting", Tone.BUSY
    #: It runs with what is wanted; it is to stay well for a while.
    CHECKING = "checking", Tone.BUSY
    OK = "ok", Tone.GOOD
    FAILED = "failed", Tone.BAD
    SKIPPED = "skipped", Tone.QUIET


UNDER_WAY = (StepState.DRAINING, StepState.RESTARTING, StepState.CHECKING)


@dataclass(frozen=True, slots=True)
class Terms:
    """How a rollout goes about it."""

    at_once: int = number(1, 1, 10, "Instances at a time")
    #: How long who is on an instance may take to leave.
    drain: int = number(2, 0, 600, "Drain before a restart", "seconds")
    settle: int = number(5, 0, 600, "Well for so long before the next", "seconds")
    #: How long each state may take.
    patience: int = number(90, 10, 3_600, "Give up on an instance after", "seconds")


RANGES = ranges(Terms)


@dataclass(frozen=True, slots=True)
class Read:
    """Terms as somebody wrote them; `problems` by field."""

    terms: Terms
    problems: Mapping[str, str] = field(default_factory=dict)


def read_terms(given: Mapping[str, object]) -> Read:
    """Read terms; fields left out have their default, unknown ones are named."""
    values, problems = read(given, Terms)
    return Read(Terms() if problems else Terms(**values), problems)


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """An instance as it answers now."""

    #: Empty when it does not answer.
    run_id: str = ""
    #: It runs with all that is wanted, and with nothing that is wanted no more.
    runs_wanted: bool = False
    #: How it does not, as a sentence.
    differs: str = ""
    #: It says SERVING.
    serving: bool = False
    #: Why it does not answer.
    error: str = ""


class Move(StrEnum):
    """What to do with an instance."""

    NOTHING = "nothing"
    RESTART = "restart"
    CHECK = "check"
    FINISH = "finish"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Next:
    """What comes next for one instance, and the sentence that goes with it."""

    move: Move
    detail: str = ""


def following(
    state: StepState, *, since: float, run_id: str, seen: NodeSeen, terms: Terms, now: float
) -> Next:
    """What comes next for an instance under way; `run_id` is the run that was to end."""
    waited = now - since
    if state is StepState.DRAINING:
        return Next(Move.RESTART) if waited >= terms.drain else Next(Move.NOTHING, "draining")
    if state is StepState.RESTARTING:
        if seen.run_id and seen.run_id != run_id:
            if seen.runs_wanted:
                return Next(Move.CHECK)
            return Next(Move.FAIL, f"it started again, but {seen.differs or 'something else decides there'}")
        why = seen.error or "it still runs as before"
        # That it is away for a moment is no error: what the connection says is for when it stays away.
        said = "it does not answer yet" if seen.error else why
        return Next(Move.NOTHING, said) if waited < terms.patience else _late(terms, "come back", why)
    if state is StepState.CHECKING:
        if not seen.serving:
            why = seen.error or "it says NOT_SERVING"
            return Next(Move.NOTHING, why) if waited < terms.patience else _late(terms, "get well", why)
        return (
            Next(Move.FINISH)
            if waited >= terms.settle
            else Next(Move.NOTHING, "well; to stay so for a while")
        )
    raise AssertionError(f"an instance that is {state.value} is not under way")


def turns(
    states: Sequence[StepState], terms: Terms, others_sick: Sequence[str]
) -> tuple[tuple[int, ...], str]:
    """The places in the list whose turn it is, and what they wait for when it is nobody's."""
    under_way = sum(state in UNDER_WAY for state in states)
    waiting = [place for place, state in enumerate(states) if state is StepState.WAITING]
    free = terms.at_once - under_way
    if not waiting or free <= 0:
        return (), ""
    if others_sick:
        return (), f"waits until {', '.join(others_sick)} {'is' if len(others_sick) == 1 else 'are'} well"
    return tuple(waiting[:free]), ""


def _late(terms: Terms, what: str, why: str) -> Next:
    return Next(Move.FAIL, f"it did not {what} within {terms.patience} s: {why}")
