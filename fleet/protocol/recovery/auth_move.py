"""When an agent follows the advice to connect to another auth: RFD 226, "Periodic Auth Reconnects".

The agent tries another auth beside the one it has, and goes over only when that one took a heartbeat; otherwise it
stays where it is and says why. Pure: the shell is fleet/nodes/agent/auth_moves.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

#: Several auths may be behind one address: so many trials, whatever the number of addresses.
_LEAST_TRIALS = 3
#: With many addresses no more than so many: an agent must answer before a campaign gives it up.
_MOST_TRIALS = 5
#: A trial that led back costs little, and what chooses at random leads back again: with two auths after so many, one
#: agent of four thousand stays.
_MOST_LED_BACK = 12
_LED_BACK = "the connection led back to the auth that is to be left"


class AuthMoveOutcome(StrEnum):
    """What came of the advice."""

    MOVED = "moved"
    STAYS = "stays"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class Trial:
    """What was seen of a connection that was opened to go over to."""

    #: The auth at its other end; empty when it did not say.
    auth_id: str = ""
    #: The auth takes no new connections.
    is_draining: bool = False
    #: Why the connection or the heartbeat failed; empty when the heartbeat was taken.
    problem: str = ""


def trial_count(addresses: int) -> int:
    """Return how many connections to other auths, or to none, are tried before the agent stays."""
    return min(max(addresses, _LEAST_TRIALS), _MOST_TRIALS)


def should_try_again(problems: Sequence[str], addresses: int) -> bool:
    """Return whether the agent tries once more after trials with these problems."""
    led_back = sum(problem == _LED_BACK for problem in problems)
    return led_back < _MOST_LED_BACK and len(problems) - led_back < trial_count(addresses)


def is_on_another_auth(connected_to: str, leave: str) -> bool:
    """Return whether an agent is not connected to the auth that it is to leave; an unknown auth may be that one."""
    return bool(leave and connected_to) and connected_to != leave


def unfit_reason(trial: Trial, leave: str) -> str:
    """Return why an agent does not go over to the auth of a trial; empty when it does."""
    if trial.problem:
        return trial.problem
    if leave and trial.auth_id == leave:
        return _LED_BACK
    if trial.is_draining:
        return f"auth {trial.auth_id or 'there'} takes no new connections"
    return ""


def stay_reason(problems: Sequence[str]) -> str:
    """Return why an agent stays, each problem of its trials once."""
    return f"no other auth took a heartbeat: {'; '.join(dict.fromkeys(problems))}"
