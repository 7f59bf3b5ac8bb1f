"""Selected agents: rows that were checked in the list, or all that match its filters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from django.http import HttpRequest, QueryDict

from dashboards.fleet import agent_query
from dashboards.fleet.agent_list.filters import read_list_query
from dashboards.fleet.agent_query import QueryError
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.counts import format_agent_count
from fleet.vocabulary.verdicts import State

#: Agents in one action.
MAX_SELECTED = 10_000
#: Parameters with ids: one each, and one with many, a line each, because the number of fields of a form is limited.
_ID_PARAMETER, _IDS_PARAMETER = "agent", "agents"
#: Parameters of the filters of the list.
_FILTER_PARAMETERS = ("q", "state", "proxy", "auth")
#: A POST with this parameter only shows the form: the ids of many agents do not fit into an address.
_SHOW_PARAMETER = "show"


class SelectionError(Exception):
    """A selection that no action can use; the message says why."""


@dataclass(frozen=True, slots=True)
class AgentSelection:
    """The selected agents, as rows of the table."""

    indices: tuple[int, ...]
    names: tuple[str, ...]
    #: Agents with an unexpired heartbeat or a live tunnel, and stranded ones.
    alive_count: int
    stranded_count: int
    retired_count: int
    #: Name and value of the hidden fields that carry the selection.
    fields: tuple[tuple[str, str], ...]

    @property
    def count(self) -> int:
        """The number of selected agents."""
        return len(self.indices)

    @property
    def subject(self) -> str:
        """The agents in words: the name of one agent, or their number."""
        return self.names[0] if self.count == 1 else format_agent_count(self.count)


def select_by_name(table: FleetTable, names_or_ids: Iterable[str], query: str, now: float) -> AgentSelection:
    """Return the agents with these names or ids, or, without any, those that match `query`. Raises SelectionError."""
    params = QueryDict(mutable=True)
    ids_by_name: dict[str, list[str]] = {}
    for agent_id, name in zip(table.ids, table.names, strict=True):
        ids_by_name.setdefault(name, []).append(agent_id)
    known_ids = set(table.ids)
    for text in names_or_ids:
        ids = [text] if text in known_ids else ids_by_name.get(text, [text])
        if len(ids) > 1:
            raise SelectionError(f"{len(ids)} agents have the name {text}. Use an id: {', '.join(ids[:5])}.")
        params.appendlist(_ID_PARAMETER, ids[0])
    if _ID_PARAMETER not in params and not query.strip():
        raise SelectionError("No agent is selected. Send names, ids or a filter.")
    params["q"] = query
    return select_agents(table, params, now)


def is_form_submitted(request: HttpRequest) -> bool:
    """Return whether the request submits the form of an action, and does not only show it."""
    return request.method == "POST" and _SHOW_PARAMETER not in request.POST


def read_agent_ids(params: QueryDict) -> list[str]:
    """Return the ids of checked rows, of the page that the list showed and of other pages."""
    return [
        *params.getlist(_ID_PARAMETER),
        *(agent_id for text in params.getlist(_IDS_PARAMETER) for agent_id in text.splitlines() if agent_id),
    ]


def read_selection(request: HttpRequest, table: FleetTable, now: float) -> tuple[AgentSelection | None, str]:
    """Return the selection of a form, and a sentence: why there is none, or that it is not the number that was shown.

    A form that is submitted has the number that it showed in `count`.
    """
    params = request.POST if request.method == "POST" else request.GET
    try:
        selection = select_agents(table, params, now)
    except SelectionError as error:
        return None, str(error)
    if is_form_submitted(request) and params.get("count") != str(selection.count):
        return selection, f"The filter matches {selection.subject} now. Review the number and confirm again."
    return selection, ""


def select_agents(table: FleetTable, params: QueryDict, now: float) -> AgentSelection:
    """Return the agents with the ids in `agent` and `agents`, or else all that match the filters of the list.

    Raises SelectionError for unknown ids, invalid filters, no agents and too many.
    """
    agent_ids = read_agent_ids(params)
    indices = _find_indices(table, agent_ids) if agent_ids else _find_matches(table, params)
    if not indices:
        raise SelectionError("No agent is selected. Select agents in the list.")
    if len(indices) > MAX_SELECTED:
        raise SelectionError(
            f"{format_agent_count(len(indices))} are selected, and one action takes at most {MAX_SELECTED:,}. "
            "Narrow the filter."
        )
    array = np.array(indices, np.intp)
    has_tunnel = np.zeros(len(table.ids), np.bool_)
    has_tunnel[table.tunnel_agents] = True
    states = table.verdicts["state"][array]
    return AgentSelection(
        tuple(indices),
        tuple(table.names[index] for index in indices),
        alive_count=int(np.count_nonzero(has_tunnel[array] | (table.heartbeats["expires_at"][array] > now))),
        stranded_count=int(np.count_nonzero(states == State.STRANDED)),
        retired_count=int(np.count_nonzero(states == State.RETIRED)),
        fields=((_IDS_PARAMETER, "\n".join(table.ids[index] for index in indices)),)
        if agent_ids
        else tuple((name, text) for name in _FILTER_PARAMETERS for text in params.getlist(name) if text),
    )


def _find_indices(table: FleetTable, agent_ids: Iterable[str]) -> list[int]:
    indices_by_id = {agent_id: index for index, agent_id in enumerate(table.ids)}
    unknown_ids = [agent_id for agent_id in agent_ids if agent_id not in indices_by_id]
    if unknown_ids:
        raise SelectionError(
            f"{format_agent_count(len(unknown_ids))} of the selection {'was' if len(unknown_ids) == 1 else 'were'} "
            f"not found: {', '.join(unknown_ids[:5])}. Select agents again."
        )
    return sorted({indices_by_id[agent_id] for agent_id in agent_ids})


def _find_matches(table: FleetTable, params: QueryDict) -> list[int]:
    try:
        return [int(index) for index in agent_query.select(table, read_list_query(params))]
    except QueryError as error:
        raise SelectionError(str(error)) from None
