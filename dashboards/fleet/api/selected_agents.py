"""Requests of the API that act on several agents."""

from __future__ import annotations

from typing import Annotated

from ninja.errors import HttpError
from pydantic import Field

from dashboards.fleet.agent_selection import MAX_SELECTED, AgentSelection, SelectionError, select_by_name
from dashboards.shared.api.parameters import RequestBody
from fleet.monitoring.views import FleetTable


class SelectedAgentsRequest(RequestBody):
    """Agents by names or ids, or those that match a filter."""

    agents: Annotated[list[str], Field(max_length=MAX_SELECTED, default_factory=list)]
    """Names or ids of agents."""
    q: Annotated[str, Field(max_length=2000)] = ""
    """Filter of the Agents page, used when `agents` is empty."""

    def select(self, table: FleetTable, now: float) -> AgentSelection:
        """Return the agents. Raises HttpError 400 if one is unknown, and without any."""
        try:
            return select_by_name(table, self.agents, self.q, now)
        except SelectionError as error:
            raise HttpError(400, str(error)) from None
