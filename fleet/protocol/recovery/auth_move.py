"""Decisions of an agent that is advised to connect to another auth: RFD 226, "Periodic Auth Reconnects".

The agent opens a second connection and moves only after another auth received a heartbeat on it; otherwise it keeps its
connection and reports why. Pure: fleet/nodes/agent/auth_moves.py makes the connections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

#: Minimum number of trials, for any number of addresses: several auths may be behind one address.
_LEAST_TRIALS = 3
#: Maximum number of trials, for any number of addresses: an agent must report before its campaign's timeout.
_MOST_TRIALS = 5
#: Trials that may lead back to the same auth. Each costs little; with two auths behind a random choice, one agent of
#: four thousand stays after so many.
_MOST_LED_BACK = 12
_LED_BACK_PROBLEM = "the connection reached the auth that the agent is to leave"


class AuthMoveOutcome(StrEnum):
    """Result of the advice to connect to another auth."""

    MOVED = "moved"
    STAYED = "stayed"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Result of one trial connection."""

    #: Id of the auth at the other end; empty if unknown.
    auth_id: str = ""
    #: The auth is draining: it takes no new connections.
    is_draining: bool = False
    #: Why the connection or the heartbeat failed; empty after a successful heartbeat.
    problem: str = ""


def max_trials(address_count: int) -> int:
    """Return the maximum number of trials, without those that led back, after which the agent keeps its connection."""
    return min(max(address_count, _LEAST_TRIALS), _MOST_TRIALS)


def should_try_again(problems: Sequence[str], address_count: int) -> bool:
    """Return whether the agent makes another trial after trials with these problems."""
    led_back_count = sum(problem == _LED_BACK_PROBLEM for problem in problems)
    return led_back_count < _MOST_LED_BACK and len(problems) - led_back_count < max_trials(address_count)


def is_on_another_auth(current_auth_id: str, leave_auth_id: str) -> bool:
    """Return whether an agent is connected to another auth than the one to leave; an unknown auth may be that one."""
    return bool(leave_auth_id and current_auth_id) and current_auth_id != leave_auth_id


def unfit_reason(trial: TrialResult, leave_auth_id: str) -> str:
    """Return why an agent does not move to the auth of a trial; empty when it moves."""
    if trial.problem:
        return trial.problem
    if leave_auth_id and trial.auth_id == leave_auth_id:
        return _LED_BACK_PROBLEM
    if trial.is_draining:
        return f"auth {trial.auth_id or '(unknown)'} is draining and takes no new connections"
    return ""


def stay_reason(problems: Sequence[str]) -> str:
    """Return why an agent keeps its connection, with each different problem of its trials."""
    return f"no other auth accepted a heartbeat: {'; '.join(dict.fromkeys(problems))}"
