"""Changes an operator makes to a cluster: kinds, states, who may follow whom, and what a confirmation must hold.

docs/changes.md. Pure: the rows are in `fleet.models.changes`, the work is in `fleet.changes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.vocabulary.looks import LabelledEnum
from fleet.vocabulary.tags import TagEnum, Tone

#: With more agents touched than this, the cluster's name must be typed.
TYPED_NAME_ABOVE_AGENTS = 100
#: Characters of a reason, least and most.
REASON_LENGTH = (3, 500)


class ChangeKind(LabelledEnum):
    """What is changed."""

    NETWORKING_CONFIG = "networking-config", "networking config"
    POLICY = "policy", "policies"
    RECONNECT = "reconnect", "reconnects"


#: Who may confirm what: values of `fleet.models.access.Permission`.
PERMISSION_OF: Mapping[ChangeKind, str] = {
    ChangeKind.NETWORKING_CONFIG: "change_config",
    ChangeKind.POLICY: "change_config",
    ChangeKind.RECONNECT: "act_on_fleet",
}


#: Seconds after which a plan is too old to agree to: the fleet has moved on, and its list of agents is forgotten.
PLAN_TTL_SECONDS: Mapping[ChangeKind, float] = {
    ChangeKind.NETWORKING_CONFIG: 900.0,
    ChangeKind.POLICY: 3600.0,
    ChangeKind.RECONNECT: 3600.0,
}


class ChangeState(TagEnum):
    """How far a change is."""

    #: Its consequences were computed; nobody agreed to them yet.
    PLANNED = "planned", Tone.DASHED
    #: Somebody agreed; a cluster that asks for two people waits for the second.
    CONFIRMED = "confirmed", Tone.BUSY
    RUNNING = "running", Tone.BUSY
    PAUSED = "paused", Tone.BUSY
    #: Done; what comes of it is compared with the plan.
    VERIFYING = "verifying", Tone.BUSY
    VERIFIED = "verified", Tone.GOOD
    FAILED = "failed", Tone.BAD
    CANCELLED = "cancelled", Tone.DASHED
    #: A later change took it back.
    UNDONE = "undone", Tone.DASHED

    @property
    def is_final(self) -> bool:
        """Nothing more happens to it, unless it is undone."""
        return TRANSITIONS[self] <= {ChangeState.UNDONE}


#: Who may follow whom.
TRANSITIONS: Mapping[ChangeState, frozenset[ChangeState]] = {
    ChangeState.PLANNED: frozenset({ChangeState.CONFIRMED, ChangeState.CANCELLED}),
    ChangeState.CONFIRMED: frozenset({ChangeState.RUNNING, ChangeState.CANCELLED, ChangeState.FAILED}),
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
#: Something may happen to it at any moment.
LIVE_STATES = frozenset(state for state in ChangeState if not state.is_final) - {ChangeState.PLANNED}
#: A change in one of these has its cluster to itself.
EXCLUSIVE_STATES = (ChangeState.RUNNING, ChangeState.PAUSED)


class ActorKind(LabelledEnum):
    """Who acts."""

    PERSON = "person", "people"
    TOKEN = "token", "tokens"
    SYSTEM = "system", "the console"


@dataclass(frozen=True, slots=True)
class Actor:
    """Somebody who acts, as the audit log names them for ever."""

    kind: ActorKind
    #: A user's name, a token with its owner, or the part of the console that acted by itself.
    name: str
    #: The user behind it; None for the system.
    user_id: int | None = None


#: The console itself, where nobody asked.
SYSTEM_ACTOR = Actor(ActorKind.SYSTEM, "the console")


@dataclass(frozen=True, slots=True)
class ConfirmationRequirements:
    """What a confirmation must hold."""

    #: The word to type, or empty.
    expected_name: str
    #: Whether a second person must agree.
    second_approver: bool


def confirmation_requirements_of(*, cluster: str, agents: int, production: bool, second_approver: bool) -> ConfirmationRequirements:
    """What confirming asks for: the cluster's name above 100 agents or on a production cluster."""
    return ConfirmationRequirements(cluster if production or agents > TYPED_NAME_ABOVE_AGENTS else "", second_approver)


def confirmation_problems(requirements: ConfirmationRequirements, *, reason: str, typed_name: str) -> dict[str, str]:
    """What is missing in a confirmation, by field (`reason`, `typed`), as sentences; empty when nothing is."""
    low, high = REASON_LENGTH
    problems = {}
    if len(reason.strip()) < low:
        problems["reason"] = f"say why, in {low} characters or more: the next person will want to know"
    elif len(reason.strip()) > high:
        problems["reason"] = f"longer than {high} characters"
    elif "\0" in reason:
        problems["reason"] = "holds a NUL"
    if requirements.expected_name and typed_name.strip() != requirements.expected_name:
        problems["typed"] = f"type the cluster's name, {requirements.expected_name}, to show that you mean it"
    return problems
