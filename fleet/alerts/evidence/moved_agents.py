"""The agents of an incident that other causes strand now: after its own failure, a second one holds them. Pure.

docs/reference/alerts.md, "Several causes at once".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np

from fleet.alerts.facts import cause_codes_of, cause_of_code
from fleet.alerts.wording.words import format_agents
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.verdicts import AFFECTED_STATES, State

#: Maximum number of causes in a sentence.
_MAX_CAUSES = 3


@dataclass(frozen=True, slots=True)
class NamedIncident:
    """The open incident that stands for a cause: that of the cause, or the one that inhibits it."""

    cause_key: str
    cause_name: str
    #: Number of the incident in URLs.
    number: int


@dataclass(frozen=True, slots=True)
class MovedAgents:
    """Agents of an incident that another incident affects now."""

    incident: NamedIncident
    stranded_count: int
    at_risk_count: int

    @property
    def count(self) -> int:
        """Number of affected agents."""
        return self.stranded_count + self.at_risk_count


def find_moved_agents(
    table: FleetTable,
    agent_ids: Collection[str],
    own_key: str,
    find_incident: Callable[[str], NamedIncident | None],
) -> tuple[MovedAgents, ...]:
    """Return which of the agents other incidents affect now, most agents first.

    `own_key`: key of the cause of their incident; `find_incident` returns the open incident of a cause by key.
    """
    affected = np.flatnonzero(np.isin(table.verdicts["state"], AFFECTED_STATES))
    ids = frozenset(agent_ids)
    indices = np.array([index for index in affected.tolist() if table.ids[index] in ids], np.intp)
    if not len(indices):
        return ()
    is_stranded = table.verdicts["state"][indices] == State.STRANDED
    cause_codes = cause_codes_of(table.verdicts, indices)
    counts_by_incident: dict[NamedIncident, list[int]] = {}
    for cause_code in np.unique(cause_codes).tolist():
        incident = find_incident(cause_of_code(table, cause_code).key)
        if incident is None or incident.cause_key == own_key:
            continue
        counts = counts_by_incident.setdefault(incident, [0, 0])
        has_cause = cause_codes == cause_code
        counts[0] += int(np.count_nonzero(has_cause & is_stranded))
        counts[1] += int(np.count_nonzero(has_cause & ~is_stranded))
    return tuple(
        sorted(
            (MovedAgents(incident, *counts) for incident, counts in counts_by_incident.items()),
            key=lambda moved_agents: (-moved_agents.count, moved_agents.incident.number),
        )
    )


def describe_moved_agents(moved_agents: Iterable[MovedAgents], peak_count: int) -> str:
    """Return `its 12 agents are stranded because of proxy-2 now (incident 7)` as a clause; without agents "".

    `peak_count`: number of agents of the incident at its peak. Of fewer: `8 of its 12 agents are …`.
    """
    shown_agents = tuple(moved_agents)[:_MAX_CAUSES]
    clauses = []
    for position, agents in enumerate(shown_agents):
        if position:
            subject = f"{agents.count:,}"
        elif agents.count >= peak_count:
            subject = f"its {format_agents(agents.count)}"
        else:
            subject = f"{agents.count:,} of its {format_agents(peak_count)}"
        incident = agents.incident
        clauses.append(
            f"{subject} {'is' if agents.count == 1 else 'are'} {_describe_states(agents)} because of "
            f"{incident.cause_name} now (incident {incident.number})"
        )
    return ", ".join(clauses[:-1]) + (" and " if len(clauses) > 1 else "") + (clauses or [""])[-1]


def _describe_states(agents: MovedAgents) -> str:
    if not agents.at_risk_count:
        return "stranded"
    return "stranded or at risk" if agents.stranded_count else "at risk"
