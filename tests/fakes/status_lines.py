"""Status lines of Fleet now, for both of its builders: the server's and the script's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.alerts.causes import UninhibitedCause
from fleet.vocabulary.verdicts import State


@dataclass(frozen=True, slots=True)
class StatusCase:
    """Numbers of agents and current causes, and the status line that they have."""

    counts: Mapping[State, int]
    causes: tuple[UninhibitedCause, ...]
    state: State
    text: str


def cause(description: str, *agent_states: State) -> UninhibitedCause:
    """Return a cause that affects agents in these states."""
    return UninhibitedCause(description.split()[0], description, frozenset(agent_states))


_BACKEND = "both auths failed at the same time, probably because of the auth backend"

STATUS_CASES = (
    StatusCase({State.HEALTHY: 3, State.STRANDED: 0}, (), State.HEALTHY, "No stranded agents."),
    StatusCase(
        {State.HEALTHY: 3},
        (cause("proxy-1 is not responding"),),
        State.AT_RISK,
        "No stranded agents, but proxy-1 is not responding.",
    ),
    StatusCase({State.STRANDED: 1, State.UNKNOWN: 1}, (), State.STRANDED, "1 agent stranded."),
    StatusCase(
        {State.STRANDED: 1200, State.HEALTHY: 9},
        (cause("auth-1 has expired", State.STRANDED, State.AT_RISK), cause("proxy-2 is not responding")),
        State.STRANDED,
        "1,200 agents stranded: auth-1 has expired. Also: proxy-2 is not responding.",
    ),
    StatusCase(
        {State.STRANDED: 17},
        (cause(_BACKEND, State.STRANDED), cause("proxy-1 has expired", State.STRANDED)),
        State.STRANDED,
        f"17 agents stranded: {_BACKEND}; proxy-1 has expired.",
    ),
    StatusCase(
        {State.AT_RISK: 2, State.DEGRADED: 9},
        tuple(cause(f"proxy-{number} is unhealthy", State.AT_RISK) for number in range(1, 6)),
        State.AT_RISK,
        "No stranded agents, but 2 agents at risk: proxy-1 is unhealthy, proxy-2 is unhealthy, "
        "proxy-3 is unhealthy and 2 more causes are active.",
    ),
    StatusCase(
        {State.DEGRADED: 19, State.HEALTHY: 1},
        (cause("proxy-1 is not responding"), cause("proxy-3 is degraded", State.DEGRADED)),
        State.DEGRADED,
        "No stranded agents, but 19 agents degraded: proxy-3 is degraded. Also: proxy-1 is not responding.",
    ),
    StatusCase(
        {State.UNKNOWN: 19, State.RETIRED: 1, State.NEVER: 1},
        (cause("no instance of the cluster responds", State.UNKNOWN),),
        State.UNKNOWN,
        "Agent states are unknown: no instance of the cluster responds.",
    ),
    StatusCase(
        {State.UNKNOWN: 1, State.HEALTHY: 3},
        (cause("proxy-1 has expired"),),
        State.UNKNOWN,
        "1 agent unknown. No other agents are stranded. Also: proxy-1 has expired.",
    ),
)
