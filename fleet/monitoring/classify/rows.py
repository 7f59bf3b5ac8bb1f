"""Between packed rows and values: one agent's evidence, states counted, rows that changed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fleet.monitoring.columns import DISAGREEMENT_SHIFT, HAD_TUNNEL, HEALTH_CHECK, NO_INSTANCE, RETIRED
from fleet.monitoring.evidence import AgentEvidence, Heartbeat, Mode
from fleet.vocabulary.verdicts import State

_MODES = {mode.value: mode for mode in Mode}


def evidence_of(
    index: int,
    agent_id: str,
    heartbeats: npt.NDArray[np.void],
    memory: npt.NDArray[np.void],
    tunnel_agents: npt.NDArray[np.uint32],
    tunnel_proxies: npt.NDArray[np.uint16],
) -> AgentEvidence:
    """Unpack one agent's rows into what `classify` takes."""
    known = memory[index]
    flags = int(known["flags"])
    lost_at, working_until = float(known["lost_at"]), float(known["working_until"])
    tunnels = tunnel_proxies[np.flatnonzero(tunnel_agents == index)]
    return AgentEvidence(
        id=agent_id,
        heartbeat=_heartbeat(heartbeats[index], int(known["tracked"])),
        tunnels=tuple(sorted(tunnels.tolist())),
        last_proxies=tuple(proxy for proxy in known["last_proxies"].tolist() if proxy != NO_INSTANCE),
        last_auth=_instance(known["last_auth"]),
        retired=bool(flags & RETIRED),
        had_tunnel=bool(flags & HAD_TUNNEL),
        working_until=working_until or None,
        lost_at=lost_at or None,
        disagreement=flags >> DISAGREEMENT_SHIFT,
    )


def count_states(states: npt.NDArray[np.uint8]) -> dict[State, int]:
    """Count agents by state, every state present; takes the `state` column of VERDICT rows, or a byte vector."""
    counts = np.bincount(states, minlength=len(State))
    return {state: int(counts[state]) for state in State}


def changed(previous: npt.NDArray[np.void] | None, current: npt.NDArray[np.void]) -> npt.NDArray[np.intp]:
    """List the agents whose state differs from the previous verdicts, and all new ones."""
    if previous is None:
        return np.arange(len(current))
    both = min(len(previous), len(current))
    differ = np.flatnonzero(previous["state"][:both] != current["state"][:both])
    return np.concatenate([differ, np.arange(both, len(current))])


def _heartbeat(row: np.void, tracked: int) -> Heartbeat | None:
    if row["expires_at"] == 0:
        return None
    return Heartbeat(
        auth=int(row["auth"]),
        expires_at=float(row["expires_at"]),
        ttl=float(row["ttl"]),
        via_proxy=_instance(row["via_proxy"]),
        mode=_MODES.get(int(row["mode"]), Mode.UNKNOWN),
        health_check=bool(row["flags"] & HEALTH_CHECK),
        policy_read_at=float(row["policy_read_at"]) or None,
        desired=int(row["desired"]),
        claimed=int(row["claimed"]),
        tracked=tracked,
        ttl_seen=float(row["ttl_seen"]),
    )


def _instance(index: np.integer) -> int | None:
    return None if index == NO_INSTANCE else int(index)
