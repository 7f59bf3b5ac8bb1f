"""Changes of a round, agent by agent: which rows are written, which changes browsers see, and which are recorded.

No I/O. docs/explanation/data-flow.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleet.monitoring.columns import NO_INSTANCE, ResourcePresence, pack_agent_evidence
from fleet.monitoring.events import AgentDelta
from fleet.monitoring.state.codec import Rows
from fleet.monitoring.state.outbox import AGENT_CHANGE
from fleet.monitoring.state.record import ClusterRecord
from fleet.vocabulary.verdicts import State

#: Maximum number of proxies of one agent in the history.
_MAX_TUNNEL_COUNT = 0xFF
#: Seconds by which a predicted time must change: the history has milliseconds.
_MIN_PREDICTION_CHANGE = 0.001
#: A list is faster than `State(number)`, for thousands of changes.
_STATES = [State(number) for number in range(len(State))]


def find_changed_rows(before: Rows, after: Rows) -> npt.NDArray[np.uint32]:
    """Return the indices of rows that differ in any field, and of new rows."""
    # As one run of words: comparing rows field by field, or the words of each row, takes ten times as long.
    word_count = after.dtype.itemsize // 4
    old = np.ascontiguousarray(before).view("<u4")
    new = np.ascontiguousarray(after).view("<u4")
    rows = np.flatnonzero(old != new[: len(old)]) // word_count
    changed_indices = rows[np.flatnonzero(np.diff(rows, prepend=-1))]
    return np.concatenate([changed_indices, np.arange(len(before), len(after))]).astype(np.uint32)


class ChangedAgents(NamedTuple):
    """Indices of the agents that a round changed, ascending."""

    #: State, cause, auth or proxy changed, so browsers must know; every new agent.
    visible_agents: npt.NDArray[np.uint32]
    #: Also those whose reason, prediction, tunnels or presence changed, so the history must know; no new agent without
    #: data.
    recorded_agents: npt.NDArray[np.uint32]


def find_changed_agents(
    previous_verdicts: Rows,
    verdicts: Rows,
    previous_places: Rows,
    places: Rows,
    changed_rows: npt.NDArray[np.uint32],
    now: float,
) -> ChangedAgents:
    """Return the agents among `changed_rows` whose change people can see, or whose change is recorded."""
    known_agents = changed_rows[changed_rows < len(previous_verdicts)]
    new_agents = changed_rows[len(known_agents) :]

    def differs(before: Rows, after: Rows, name: str) -> npt.NDArray[np.bool_]:
        different: npt.NDArray[np.bool_] = before[name][known_agents] != after[name][known_agents]
        return different

    is_visible = (
        differs(previous_verdicts, verdicts, "state")
        | differs(previous_verdicts, verdicts, "cause")
        | differs(previous_places, places, "auth")
        | differs(previous_places, places, "proxy")
    )
    is_recorded = (
        is_visible
        | differs(previous_verdicts, verdicts, "reason_and_recovery")
        | differs(previous_places, places, "proxies").any(axis=1)
        | differs(previous_places, places, "tunnel_count")
        | _has_new_presence(previous_places[known_agents], places[known_agents])
        | _has_new_prediction(previous_verdicts[known_agents], verdicts[known_agents], now)
    )
    has_data = (verdicts["state"][new_agents] != State.UNKNOWN) | (places["proxy"][new_agents] != NO_INSTANCE)
    return ChangedAgents(
        np.concatenate([known_agents[is_visible], new_agents]),
        np.concatenate([known_agents[is_recorded], new_agents[has_data]]),
    )


def _has_new_presence(before: Rows, after: Rows) -> npt.NDArray[np.bool_]:
    """Return which resources expired or came back; not those of rounds of an earlier version."""
    is_known = before["presence"] != ResourcePresence.NOT_RECORDED
    has_changed: npt.NDArray[np.bool_] = is_known & (before["presence"] != after["presence"])
    return has_changed


def _has_new_prediction(before: Rows, after: Rows, now: float) -> npt.NDArray[np.bool_]:
    """Return which predicted times are others; a time that has passed is the time of each round, and no change."""
    has_changed: npt.NDArray[np.bool_] = (
        np.abs(before["recovers_at"] - after["recovers_at"]) > _MIN_PREDICTION_CHANGE
    )
    strands_at = after["strands_at"]
    has_changed |= (np.abs(before["strands_at"] - strands_at) > _MIN_PREDICTION_CHANGE) & (strands_at > now)
    return has_changed


def history_rows_of(
    previous_verdicts: Rows,
    verdicts: Rows,
    places: Rows,
    memory: Rows,
    agents: npt.NDArray[np.uint32],
    record: ClusterRecord,
) -> tuple[Rows, npt.NDArray[np.uint16]]:
    """Return the AGENT_CHANGE rows of agents, and the proxies of their tunnels."""
    rows: Rows = np.zeros(len(agents), AGENT_CHANGE)
    rows["agent"], rows["old"] = agents, State.UNKNOWN
    is_known = agents < len(previous_verdicts)
    rows["old"][is_known] = previous_verdicts["state"][agents[is_known]]
    rows["new"] = verdicts["state"][agents]
    for name in ("auth", "proxy", "tunnel_count"):
        rows[name] = places[name][agents]
    for name in ("recovers_at", "strands_at", "cause", "reason_and_recovery"):
        rows[name] = verdicts[name][agents]
    heartbeats = record.heartbeats[agents]
    rows["via_proxy"] = heartbeats["via_proxy"]
    rows["evidence"] = pack_agent_evidence(heartbeats, memory[agents], places[agents])
    # The place has the first proxies only.
    is_changed = np.zeros(len(verdicts), np.bool_)
    is_changed[agents] = True
    tunnels = np.flatnonzero(is_changed[record.tunnel_agents])
    order = np.lexsort((record.tunnel_proxies[tunnels], record.tunnel_agents[tunnels]))
    tunnel_agents, proxies = record.tunnel_agents[tunnels][order], record.tunnel_proxies[tunnels][order]
    starts = np.searchsorted(tunnel_agents, agents)
    position = np.arange(len(tunnel_agents)) - np.repeat(
        starts, np.searchsorted(tunnel_agents, agents, "right") - starts
    )
    proxies = proxies[position < _MAX_TUNNEL_COUNT]
    return rows, proxies


def event_changes_of(verdicts: Rows, places: Rows, agents: npt.NDArray[np.uint32]) -> tuple[AgentDelta, ...]:
    """Return the changes of agents for browsers."""
    columns = (
        agents,
        verdicts["state"][agents],
        places["proxy"][agents],
        places["auth"][agents],
        verdicts["cause"][agents],
    )
    return tuple(
        AgentDelta(agent, _STATES[state], *rest)
        for agent, state, *rest in zip(*(column.tolist() for column in columns), strict=True)
    )
