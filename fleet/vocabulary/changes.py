"""Changes that operators make to a cluster: kinds, states, their transitions, and the rules of a confirmation.

docs/reference/changes.md. Pure: the rows are in `fleet.models.changes`, the work is in `fleet.changes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.vocabulary.enum_types import LabelledEnum
from fleet.vocabulary.tags import TagEnum, Tone

#: Affected agents above which the operator must type the cluster's name.
TYPED_NAME_ABOVE_AGENTS = 100
#: Shortest and longest reason, characters.
REASON_LENGTH_RANGE = (3, 500)


class ChangeKind(LabelledEnum):
    """What a change is about."""

    NETWORKING_CONFIG = "networking-config", "config change"
    POLICY = "policy", "policy change"
    RECONNECT = "reconnect", "reconnect campaign"
    #: An instance is drained, with or without moving its agents, or accepts connections again.
    SERVICE = "service", "service change"
    DEGRADE = "degrade", "degradation"
    #: Agents are retired or reinstated.
    RETIRE = "retire", "retirement"


#: The permission to confirm a change, by kind: values of `fleet.models.access.Permission`.
PERMISSION_OF: Mapping[ChangeKind, str] = {
    ChangeKind.NETWORKING_CONFIG: "change_config",
    ChangeKind.POLICY: "change_config",
    ChangeKind.RECONNECT: "act_on_fleet",
    ChangeKind.SERVICE: "act_on_fleet",
    ChangeKind.DEGRADE: "act_on_fleet",
    ChangeKind.RETIRE: "act_on_fleet",
}


#: Seconds for which a plan can be confirmed, by kind. Older plans do not match the fleet any more.
PLAN_TTL_SECONDS: Mapping[ChangeKind, float] = {
    ChangeKind.NETWORKING_CONFIG: 900.0,
    ChangeKind.POLICY: 3600.0,
    ChangeKind.RECONNECT: 3600.0,
    ChangeKind.SERVICE: 3600.0,
    ChangeKind.DEGRADE: 3600.0,
    ChangeKind.RETIRE: 3600.0,
}


class ChangeState(TagEnum):
    """The state of a change."""

    #: Previewed, and not confirmed yet.
    PLANNED = "planned", Tone.DASHED
    #: Confirmed; waits for an approver where the cluster requires a review, and for its turn.
    CONFIRMED = "confirmed", Tone.BUSY
    RUNNING = "running", Tone.BUSY
    PAUSED = "paused", Tone.BUSY
    #: Applied; Refloat compares the result with the plan.
    VERIFYING = "verifying", Tone.BUSY
    VERIFIED = "verified", Tone.GOOD
    FAILED = "failed", Tone.BAD
    CANCELLED = "cancelled", Tone.DASHED
    #: A later change undid this one.
    UNDONE = "undone", Tone.DASHED

    @property
    def is_final(self) -> bool:
        """Whether the change has ended: it can only be undone."""
        return TRANSITIONS[self] <= {ChangeState.UNDONE}


#: The states that may follow a state.
TRANSITIONS: Mapping[ChangeState, frozenset[ChangeState]] = {
    ChangeState.PLANNED: frozenset({ChangeState.CONFIRMED, ChangeState.CANCELLED}),
    #: A drain, a degradation or a retirement is one request, so it is never running: it blocks no other change.
    ChangeState.CONFIRMED: frozenset(
        {
            ChangeState.RUNNING,
            ChangeState.VERIFYING,
            ChangeState.VERIFIED,
            ChangeState.CANCELLED,
            ChangeState.FAILED,
        }
    ),
    ChangeState.RUNNING: frozenset(
        {
            ChangeState.PAUSED,
            ChangeState.VERIFYING,
            ChangeState.VERIFIED,
            ChangeState.FAILED,
            ChangeState.CANCELLED,
        }
    ),
    ChangeState.PAUSED: frozenset({ChangeState.RUNNING, ChangeState.FAILED, ChangeState.CANCELLED}),
    ChangeState.VERIFYING: frozenset({ChangeState.VERIFIED, ChangeState.FAILED, ChangeState.UNDONE}),
    ChangeState.VERIFIED: frozenset({ChangeState.UNDONE}),
    ChangeState.FAILED: frozenset({ChangeState.UNDONE}),
    ChangeState.CANCELLED: frozenset({ChangeState.UNDONE}),
    ChangeState.UNDONE: frozenset(),
}
#: What pages call a change that was cancelled after it had started.
ABORTED_LABEL = "aborted"


def state_label_of(state: str, *, has_started: bool) -> str:
    """Return the state of a change as pages name it: a cancelled change that had started is `aborted`."""
    return ABORTED_LABEL if state == ChangeState.CANCELLED and has_started else ChangeState(state).label


#: States in which a change may move on at any moment.
LIVE_STATES = frozenset(state for state in ChangeState if not state.is_final) - {ChangeState.PLANNED}
#: States in which a change blocks the other changes of its cluster.
EXCLUSIVE_STATES = (ChangeState.RUNNING, ChangeState.PAUSED)


class ActorKind(LabelledEnum):
    """Who performs an action."""

    PERSON = "person", "person"
    TOKEN = "token", "API token"
    SYSTEM = "system", "Refloat"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who performs an action, as the audit log names them permanently."""

    kind: ActorKind
    #: A user's name, a token with its owner, or the name of the part of Refloat.
    name: str
    #: The user, or the owner of the token; None for the system.
    user_id: int | None = None


#: Refloat itself, where no person requested the action.
SYSTEM_ACTOR = Actor(ActorKind.SYSTEM, "Refloat")


@dataclass(frozen=True, slots=True)
class ConfirmationRequirements:
    """What the confirmation of a change requires."""

    #: The name that the operator must type; empty: none.
    expected_name: str
    #: Whether a second person must approve the change.
    review_required: bool


def confirmation_requirements_of(
    *, cluster: str, affected_count: int, is_production: bool, review_required: bool
) -> ConfirmationRequirements:
    """Return what a confirmation requires: the cluster's name above 100 agents or on a production cluster."""
    return ConfirmationRequirements(
        cluster if is_production or affected_count > TYPED_NAME_ABOVE_AGENTS else "", review_required
    )


def find_confirmation_problems(
    requirements: ConfirmationRequirements, *, reason: str, typed_name: str
) -> dict[str, str]:
    """Return what is wrong with a confirmation, as sentences by field (`reason`, `confirmation`); empty: nothing."""
    low, high = REASON_LENGTH_RANGE
    problems = {}
    if len(reason.strip()) < low:
        problems["reason"] = f"enter a reason of at least {low} characters"
    elif len(reason.strip()) > high:
        problems["reason"] = f"the reason is longer than {high} characters"
    elif "\0" in reason:
        problems["reason"] = "the reason contains a NUL character"
    if requirements.expected_name and typed_name.strip() != requirements.expected_name:
        problems["confirmation"] = f"to confirm, give the name of the cluster: {requirements.expected_name}"
    return problems
