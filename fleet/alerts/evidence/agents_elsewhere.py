"""Say which other incidents affect the agents of an incident now: the I/O around `moved_agents`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fleet.alerts.evidence.copies import read_agent_ids
from fleet.alerts.evidence.evidence import EvidenceError
from fleet.alerts.evidence.moved_agents import NamedIncident, describe_moved_agents, find_moved_agents
from fleet.models.incidents import Incident as IncidentRow
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.incidents import Incident
from fleet.vocabulary.verdicts import AFFECTED_STATES


def describe_agents_elsewhere(
    incident: Incident,
    row: IncidentRow,
    table: FleetTable,
    incidents: Mapping[str, Incident],
    incident_rows: Mapping[str, IncidentRow],
) -> str:
    """Return `its 12 agents are stranded because of proxy-2 now (incident 7)` as a clause; empty if nothing does.

    Empty also while agents are affected by the incident itself, and if it has no copy of its agents. `incidents` and
    `incident_rows`: unresolved incidents of the cluster by key. Raises DatabaseError.
    """
    if incident.affected_count or not incident.peak_count or table.stale:
        return ""
    # Reading a copy takes milliseconds, and a hundred incidents may end in the same second.
    if not np.isin(table.verdicts["state"], AFFECTED_STATES).any():
        return ""
    try:
        agent_ids = read_agent_ids(row.pk)
    except EvidenceError:
        return ""
    if not agent_ids:
        return ""

    def find_incident(key: str) -> NamedIncident | None:
        """Return the incident of a cause, or the one that inhibits it."""
        candidate = incidents.get(key)
        if candidate is not None and candidate.inhibited_by in incidents:
            candidate = incidents[candidate.inhibited_by]
        if candidate is None or candidate.key not in incident_rows:
            return None
        return NamedIncident(candidate.key, candidate.cause.label, incident_rows[candidate.key].pk)

    moved_agents = find_moved_agents(table, agent_ids, incident.key, find_incident)
    return describe_moved_agents(moved_agents, incident.peak_count)
