"""Whom an incident affects, for its page and the API: live, or from the copy that was kept at its peak.

docs/reference/alerts.md, "Evidence of an incident".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from dashboards.alerts import incident_figures
from dashboards.alerts.incident_list import PAGE_SIZE, locate_page
from dashboards.alerts.presenters import find_common_attributes
from dashboards.shared import presenters
from dashboards.shared.map_links import cause_query_of, map_url_of
from dashboards.shared.presenters import AgentRow
from dashboards.shared.rewind import add_at
from fleet.alerts import notifications, store
from fleet.alerts.evidence.agents_elsewhere import describe_agents_elsewhere
from fleet.alerts.evidence.copies import read_evidence
from fleet.alerts.evidence.evidence import (
    CopyMark,
    Evidence,
    EvidenceError,
    agent_views_of,
    instance_views_of,
    table_of_evidence,
)
from fleet.alerts.notifications import agents_path
from fleet.models.incidents import Incident as IncidentRow
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.incidents import Incident, IncidentState

#: Value of the parameter `evidence` that shows the copy while the incident is open.
PEAK = "peak"
NOW = "now"
_NO_COPY_SENTENCE = (
    "The affected agents are not known any more: this incident has no copy of its evidence. Incidents "
    "that an earlier version of Refloat opened have none."
)

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class AffectedAgentsPage:
    """One page of the affected agents, with the charts and common attributes of all of them."""

    agents: Sequence[AgentRow]
    #: Number of affected agents, on all pages; None if it is not known.
    count: int | None
    #: When the copy was taken; None for live data.
    taken_at: datetime | None
    page: int
    page_count: int
    #: Agents that the copy counts but does not list.
    unlisted_count: int
    common_attributes: Sequence[dict[str, Any]]
    figures: dict[str, Any] | None
    #: Why there are no agents, as a sentence.
    empty_reason: str = ""

    @property
    def first_number(self) -> int:
        """Number of the first agent of the page in the list."""
        return (self.page - 1) * PAGE_SIZE + 1

    @property
    def last_number(self) -> int:
        """Number of the last agent of the page in the list."""
        return (self.page - 1) * PAGE_SIZE + len(self.agents)

    @property
    def previous_page(self) -> int | None:
        """Number of the page before this one; None on the first page."""
        return self.page - 1 if self.page > 1 else None

    @property
    def next_page(self) -> int | None:
        """Number of the page after this one; None on the last page."""
        return self.page + 1 if self.page < self.page_count else None

    @property
    def more_agent_count(self) -> int:
        """Number of affected agents that are not on this page."""
        return max(0, (self.count or 0) - len(self.agents))


@dataclass(frozen=True, slots=True)
class EvidenceChoice:
    """The two views of an open incident whose copy has more agents than are affected now."""

    live_count: int | None
    peak_count: int
    peak_at: datetime | None
    is_peak_shown: bool


def show_no_agents(reason: str) -> AffectedAgentsPage:
    """Return that no agents can be listed, and why, as a sentence."""
    return AffectedAgentsPage((), None, None, 1, 1, 0, (), None, reason)


def explain_no_agents(incident: Incident, row: IncidentRow, table: FleetTable) -> str:
    """Return that an open incident affects no agents now, and which other incident does, as a sentence."""
    incident_rows = store.load_incident_rows(row.cluster_id)
    incidents = {key: store.incident_of(other_row) for key, other_row in incident_rows.items()}
    elsewhere = describe_agents_elsewhere(
        replace(incident, affected_count=0), row, table, incidents, incident_rows
    )
    return f"No agents are affected now{f': {elsewhere}' if elsewhere else ''}."


def present_live_agents(
    reader: Reader, table: FleetTable, indices: Indices, now: float, empty_reason: str
) -> AffectedAgentsPage:
    """Return the agents that an incident affects now: the first ones, because the list of agents has all.

    `empty_reason`: why there are none (`explain_no_agents`).
    """
    views_by_id = {view.facts.id: view for view in table.instances.values()}
    return AffectedAgentsPage(
        agents=[
            presenters.agent_row_of(reader.agent(table, int(index)), views_by_id, now)
            for index in indices[:PAGE_SIZE]
        ],
        count=len(indices),
        taken_at=None,
        page=1,
        page_count=1,
        unlisted_count=0,
        common_attributes=find_common_attributes(table, indices),
        figures=incident_figures.build_figures(table, indices),
        empty_reason=empty_reason,
    )


def present_peak_agents(
    incident: Incident, incident_id: int, page_text: str, now: float
) -> AffectedAgentsPage:
    """Return the agents that an incident affected at its peak, from its copy."""
    try:
        evidence = read_evidence(incident_id)
    except EvidenceError as error:
        return show_no_agents(f"The copy of the evidence cannot be read: {error}.")
    if evidence is None:
        return show_no_agents(
            _NO_COPY_SENTENCE if incident.peak_count else "This incident affected no agents."
        )
    return present_evidence(evidence, page_text, now, is_past=incident.state is IncidentState.RESOLVED)


def present_evidence(evidence: Evidence, page_text: str, now: float, *, is_past: bool) -> AffectedAgentsPage:
    """Return one page of a copy. A page that does not exist is the nearest one."""
    table = table_of_evidence(evidence)
    indices = np.arange(len(evidence.ids))
    page, page_count = locate_page(page_text, len(indices))
    positions = range((page - 1) * PAGE_SIZE, min(page * PAGE_SIZE, len(indices)))
    views_by_id = {view.facts.id: view for view in instance_views_of(evidence).values()}
    return AffectedAgentsPage(
        agents=[
            presenters.agent_row_of(view, views_by_id, now) for view in agent_views_of(evidence, positions)
        ],
        count=evidence.affected_count,
        taken_at=presenters.to_moment_or_none(evidence.taken_at),
        page=page,
        page_count=page_count,
        unlisted_count=evidence.affected_count - len(indices),
        common_attributes=find_common_attributes(table, indices),
        figures=incident_figures.build_figures(table, indices, evidence.agent_count_by_pair, is_past=is_past),
    )


def peak_time_of(incident: Incident, copy_mark: CopyMark | None) -> float:
    """Return when most agents were affected: the time of the copy, or the best that an incident without one has."""
    if copy_mark is not None:
        return copy_mark.taken_at
    return notifications.peak_time_of(incident)


def map_links_of(incident: Incident, copy_mark: CopyMark | None, url_prefix: str) -> list[dict[str, str]]:
    """Return `url` and `label` of the maps of an incident, filtered by cause: live if it is open, and at its peak."""
    query = cause_query_of(incident.cause)
    is_resolved = incident.state is IncidentState.RESOLVED
    links = [] if is_resolved else [{"url": map_url_of(url_prefix, query=query), "label": "View on map"}]
    if is_resolved or incident.peak_count:
        at = peak_time_of(incident, copy_mark)
        links.append({"url": map_url_of(url_prefix, at=at, query=query), "label": "View map at the peak"})
    return links


def agents_link_of(
    incident: Incident, affected_count: int, copy_mark: CopyMark | None, url_prefix: str
) -> dict[str, str] | None:
    """Return `url` and `label` of the list of agents of an incident; None if it never affected any.

    The list of the present is empty when no agents are affected now: the link then leads to the peak, by the history.
    """
    url = f"{url_prefix}{agents_path(incident.cause)}"
    if affected_count and incident.state is not IncidentState.RESOLVED:
        return {"url": url, "label": "View affected agents"}
    if not incident.peak_count:
        return None
    return {
        "url": add_at(url, peak_time_of(incident, copy_mark)),
        "label": "View agents at the peak",
    }


def choose_evidence(
    incident: Incident,
    copy_mark: CopyMark | None,
    choice_text: str,
    read_live: Callable[[], AffectedAgentsPage],
    read_peak: Callable[[], AffectedAgentsPage],
) -> tuple[AffectedAgentsPage, EvidenceChoice | None]:
    """Return the agents to show, and the choice between live data and the copy if there is one.

    A resolved incident shows its copy. An open one shows live data, and offers a copy of more agents.
    """
    if incident.state is IncidentState.RESOLVED:
        return read_peak(), None
    live = read_live()
    if copy_mark is None or copy_mark.affected_count <= (live.count or 0):
        return live, None
    # Nobody is affected any more, or the data are out of date: the copy says who was.
    is_peak_shown = choice_text == PEAK or (not live.count and choice_text != NOW)
    choice = EvidenceChoice(
        live_count=live.count,
        peak_count=copy_mark.affected_count,
        peak_at=presenters.to_moment_or_none(copy_mark.taken_at),
        is_peak_shown=is_peak_shown,
    )
    return (read_peak() if is_peak_shown else live), choice
