"""Functions on packed rows: one agent's evidence, counts of states, changed rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fleet.monitoring.columns import DISAGREEMENT_SHIFT, HAD_TUNNEL, HEALTH_CHECK, NO_INSTANCE, RETIRED
from fleet.monitoring.evidence import AgentEvidence, Heartbeat, ReconnectMode
from fleet.vocabulary.verdicts import State

_MODES = {mode.value: mode for mode in ReconnectMode}


def evidence_of(
    index: int,
    agent_id: str,
    heartbeats: npt.NDArray[np.void],
    memory: npt.NDArray[np.void],
    tunnel_agents: npt.NDArray[np.uint32],
    tunnel_proxies: npt.NDArray[np.uint16],
) -> AgentEvidence:
    """Return one agent's rows as the evidence that `classify` takes."""
    memory_row = memory[index]
    flags = int(memory_row["flags"])
    lost_at, working_until = float(memory_row["lost_at"]), float(memory_row["working_until"])
    tunnels = tunnel_proxies[np.flatnonzero(tunnel_agents == index)]
    return AgentEvidence(
        id=agent_id,
        heartbeat=_heartbeat_of(heartbeats[index], int(memory_row["tracked_count"])),
        tunnels=tuple(sorted(tunnels.tolist())),
        last_proxies=tuple(proxy for proxy in memory_row["last_proxies"].tolist() if proxy != NO_INSTANCE),
        last_auth=_instance_index(memory_row["last_auth"]),
        is_retired=bool(flags & RETIRED),
        had_tunnel=bool(flags & HAD_TUNNEL),
        working_until=working_until or None,
        lost_at=lost_at or None,
        disagreement_rounds=flags >> DISAGREEMENT_SHIFT,
    )


def count_states(states: npt.NDArray[np.uint8]) -> dict[State, int]:
    """Return the number of agents by state, with every state, from the `state` column of VERDICT rows or from bytes."""
    counts = np.bincount(states, minlength=len(State))
    return {state: int(counts[state]) for state in State}


def _heartbeat_of(row: np.void, tracked_count: int) -> Heartbeat | None:
    if row["expires_at"] == 0:
        return None
    return Heartbeat(
        auth=int(row["auth"]),
        expires_at=float(row["expires_at"]),
        ttl=float(row["ttl"]),
        via_proxy=_instance_index(row["via_proxy"]),
        mode=_MODES.get(int(row["mode"]), ReconnectMode.UNKNOWN),
        health_check=bool(row["flags"] & HEALTH_CHECK),
        policy_read_at=float(row["policy_read_at"]) or None,
        desired_count=int(row["desired_count"]),
        claimed_count=int(row["claimed_count"]),
        tracked_count=tracked_count,
        ttl_seen=float(row["ttl_seen"]),
    )


def _instance_index(index: np.integer) -> int | None:
    return None if index == NO_INSTANCE else int(index)
