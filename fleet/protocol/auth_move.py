"""When an agent follows the advice to connect to another auth: RFD 226, "Periodic Auth Reconnects".

The agent tries another auth beside the one it has, and goes over only when that one took a heartbeat; otherwise it
stays where it is and says why. Pure: the shell is fleet/nodes/agent_auth_moves.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

#: A balancer or a proxy may lead back to the auth that is to be left: so many trials, whatever the number of addresses.
_LEAST_TRIALS = 3
#: With many addresses no more than so many: an agent must answer before a campaign gives it up.
_MOST_TRIALS = 5


class Outcome(StrEnum):
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
    draining: bool = False
    #: Why the connection or the heartbeat failed; empty when the heartbeat was taken.
    problem: str = ""


def trial_count(addresses: int) -> int:
    """Return how many connections are tried before the agent stays."""
    return min(max(addresses, _LEAST_TRIALS), _MOST_TRIALS)


def is_elsewhere(connected_to: str, leave: str) -> bool:
    """Return whether an agent is not connected to the auth that it is to leave; an unknown auth may be that one."""
    return bool(leave and connected_to) and connected_to != leave


def why_unfit(trial: Trial, leave: str) -> str:
    """Return why an agent does not go over to the auth of a trial; empty when it does."""
    if trial.problem:
        return trial.problem
    if leave and trial.auth_id == leave:
        return "the connection led back to the auth that is to be left"
    if trial.draining:
        return f"auth {trial.auth_id or 'there'} takes no new connections"
    return ""


def stay_reason(problems: Sequence[str]) -> str:
    """Return why an agent stays, each problem of its trials once."""
    return f"no other auth took a heartbeat: {'; '.join(dict.fromkeys(problems))}"
