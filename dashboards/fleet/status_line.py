"""The status line of Fleet now: the most urgent state, its number of agents, and the causes. Pure.

js/status-line.js has the same rules for live counts: a test in tests/browser compares the results of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleet.alerts.causes import UninhibitedCause
from fleet.monitoring.views import Summary
from fleet.vocabulary.verdicts import State

#: Maximum number of named causes in each list.
_MAX_NAMED_CAUSES = 3
_HEADLINE_STATES = sorted(
    (state for state in State if state.look.headline_order), key=lambda state: state.look.headline_order
)


@dataclass(frozen=True, slots=True)
class StatusLine:
    """One or more sentences, and the agent state whose symbol and colours they have."""

    state: State
    text: str


def describe_status(summary: Summary, causes: Sequence[UninhibitedCause]) -> StatusLine:
    """Return the status of a fleet with its current causes (`find_causes`)."""
    if summary.as_of is None:
        return StatusLine(State.UNKNOWN, "No data yet: Refloat has not completed a poll of the fleet.")
    if summary.stale:
        return StatusLine(State.UNKNOWN, "Agent states are unknown: the data is too old.")
    worst = next((state for state in _HEADLINE_STATES if summary.counts.get(state)), None)
    if worst is None:
        clauses = _join_causes(causes)
        if clauses:
            return StatusLine(State.AT_RISK, f"No stranded agents, but {clauses}.")
        return StatusLine(State.HEALTHY, "No stranded agents.")
    worst_clauses = _join_causes([cause for cause in causes if worst in cause.agent_states])
    other_clauses = _join_causes([cause for cause in causes if worst not in cause.agent_states])
    text = _describe_state(worst, summary.counts) + (f": {worst_clauses}." if worst_clauses else ".")
    if worst is State.UNKNOWN and _has_known_agents(summary.counts):
        text += " No other agents are stranded."
    return StatusLine(worst, text + (f" Also: {other_clauses}." if other_clauses else ""))


def _describe_state(state: State, counts: Mapping[State, int]) -> str:
    if state is State.UNKNOWN and not _has_known_agents(counts):
        return "Agent states are unknown"
    agent_count = f"{counts[state]:,} agent{'' if counts[state] == 1 else 's'} {state.label}"
    return (
        agent_count if state in (State.STRANDED, State.UNKNOWN) else f"No stranded agents, but {agent_count}"
    )


def _has_known_agents(counts: Mapping[State, int]) -> bool:
    """Return whether the state of an agent that counts as the fleet is known."""
    return any(n for state, n in counts.items() if state not in (State.UNKNOWN, State.RETIRED, State.NEVER))


def _join_causes(causes: Sequence[UninhibitedCause]) -> str:
    clauses = [cause.description for cause in causes[:_MAX_NAMED_CAUSES]]
    more_count = len(causes) - len(clauses)
    if more_count:
        clauses.append(
            "1 more cause is active" if more_count == 1 else f"{more_count} more causes are active"
        )
    # "and" after a clause with a comma would look like a part of that clause.
    if len(clauses) < 2 or any(", " in clause for clause in clauses):
        return "; ".join(clauses)
    return f"{', '.join(clauses[:-1])} and {clauses[-1]}"
