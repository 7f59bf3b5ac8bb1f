"""What matchers match now: agents and incidents, counted for the pages of silences and maintenance windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dashboards.shared import record_reader
from dashboards.shared.pages import sentence_of
from fleet.alerts import store
from fleet.alerts.evaluator import match_agents
from fleet.alerts.facts import affected_agents_of
from fleet.alerts.matchers import (
    Matcher,
    MatcherError,
    are_agent_matchers,
    match_names,
    matches_everything,
    matches_incident,
    parse_matchers,
)
from fleet.models.incidents import Incident
from fleet.monitoring.state import StateError
from fleet.monitoring.views import FleetTable
from fleet.vocabulary import incidents as incident_values
from fleet.vocabulary.incidents import IncidentState

#: Names of incidents that a page lists.
_LISTED_COUNT = 5


@dataclass(frozen=True, slots=True)
class FleetScope:
    """The agents and the unresolved incidents of a cluster, read once for many matchers."""

    cluster: str
    table: FleetTable | None
    #: Why there is no table, as a sentence; empty if there is one.
    error: str
    incidents: tuple[tuple[Incident, incident_values.Incident], ...]


@dataclass(frozen=True, slots=True)
class SilenceMatches:
    """What matchers match now."""

    agent_count: int = 0
    rows: tuple[Incident, ...] = ()
    is_everything: bool = False
    is_about_agents: bool = False
    #: Why the matchers cannot be compared, as a sentence; empty if they can.
    error: str = ""
    names: tuple[str, ...] = field(default=())

    @property
    def listed_names(self) -> tuple[str, ...]:
        """The names of the first incidents."""
        return self.names[:_LISTED_COUNT]

    @property
    def unlisted_count(self) -> int:
        """The number of the other incidents."""
        return len(self.names) - len(self.listed_names)


def read_scope(cluster: str, now: float) -> FleetScope:
    """Read the agents and the unresolved incidents of a cluster."""
    rows = Incident.objects.filter(cluster=cluster).exclude(state=IncidentState.RESOLVED.value)
    incidents = tuple((row, store.incident_of(row)) for row in rows)
    try:
        return FleetScope(cluster, record_reader.reader().table(cluster, now), "", incidents)
    except StateError as error:
        return FleetScope(cluster, None, f"The fleet state cannot be read: {error}.", incidents)


def find_text_matches(text: str, scope: FleetScope) -> SilenceMatches:
    """Return what the text of matchers matches."""
    try:
        return find_matches(parse_matchers(text), scope)
    except MatcherError as error:
        return SilenceMatches(error=sentence_of(error))


def find_matches(matchers: Sequence[Matcher], scope: FleetScope) -> SilenceMatches:
    """Return what matchers match."""
    is_everything, table = matches_everything(matchers), scope.table
    if table is None:
        return SilenceMatches(is_everything=is_everything, error=scope.error)
    if are_agent_matchers(matchers):
        mask = match_agents(table, matchers, _masks_by_agent_set(table, scope.cluster))
        rows = tuple(row for row, _ in scope.incidents if mask[affected_agents_of(table, row.key)].any())
        agent_count = int(np.count_nonzero(mask))
    else:
        rows = tuple(row for row, incident in scope.incidents if matches_incident(matchers, incident))
        # Count agents once that several incidents affect, for example one of their auth and one of the loss rate.
        agent_count = len({index for row in rows for index in affected_agents_of(table, row.key).tolist()})
    names = tuple(row.cause_name or row.key for row in rows)
    return SilenceMatches(agent_count, rows, is_everything, are_agent_matchers(matchers), names=names)


def _masks_by_agent_set(
    table: FleetTable, cluster: str
) -> dict[str, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    patterns = store.read_agent_set_patterns(cluster)
    return {name: match_names(table.names, set_patterns) for name, set_patterns in patterns.items()}
