"""Vectorised `classify`: the verdicts of all agents in one pass over the packed columns.

Two steps, because most agents are usually healthy: one pass finds the plainly healthy agents, and `column_rules`
tries the rules on the others. Measured in docs/reference/verdicts.md, "Cost".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fleet.monitoring.classify.column_rows import AgentTunnelCounts, PackedColumns, SubsetVerdicts
from fleet.monitoring.classify.column_rules import decide
from fleet.monitoring.classify.frame import FleetFrame
from fleet.monitoring.classify.tables import DEGRADED, DESIRED, LIVE, SICK
from fleet.monitoring.columns import (
    DISAGREEMENT,
    HAD_TUNNEL,
    NO_INSTANCE,
    RECOVERY_SHIFT,
    RETIRED,
    VERDICT,
    blank_heartbeats,
)
from fleet.vocabulary.verdicts import NO_CAUSE, State

#: Bits per count: five counts of an agent's tunnels share the 53 bits of a float. No agent has 1,000 tunnels.
_COUNT_BITS = 10
_COUNT_MASK = (1 << _COUNT_BITS) - 1


def classify_columns(
    heartbeats: npt.NDArray[np.void],
    memory: npt.NDArray[np.void],
    tunnel_agents: npt.NDArray[np.uint32],
    tunnel_proxies: npt.NDArray[np.uint16],
    frame: FleetFrame,
    now: float,
    previous: npt.NDArray[np.void] | None = None,
) -> npt.NDArray[np.void]:
    """Return the verdicts of all agents at `now`, the time of the frame, as VERDICT rows.

    `previous` is only used for the start of unchanged states. Its rows and those of `memory` are by agent index.
    """
    columns = PackedColumns(heartbeats, memory, tunnel_agents, tunnel_proxies)
    if not (frame.has_heartbeats and frame.has_tunnels):
        columns = _without_missing_evidence(columns, frame)
        heartbeats = columns.heartbeats
    counts = _count_tunnels(columns, frame)
    verdicts = np.empty(len(heartbeats), VERDICT)
    for name, default in (("state", State.HEALTHY), ("reason_and_recovery", 0), ("cause", NO_CAUSE)):
        verdicts[name] = default
    verdicts["recovers_at"] = 0
    verdicts["strands_at"] = 0
    indices = np.flatnonzero(~_is_plainly_healthy(columns, counts, frame))
    reachable = np.ones(len(indices), np.bool_)
    if frame.has_tunnels:
        reachable &= counts.live[indices] > 0
    if frame.has_heartbeats:
        reachable &= heartbeats["expires_at"].take(indices) > frame.unexpired_from
    # Separately, because reachable and unreachable agents need different rules.
    for part in (indices[reachable], indices[~reachable]):
        if len(part):
            _write(verdicts, part, decide(columns, counts, part, frame), frame)
    verdicts["since"] = now
    if previous is not None and len(previous):
        common_count = min(len(previous), len(verdicts))
        old, new = previous[:common_count], verdicts[:common_count]
        new["since"] = np.where(old["state"] == new["state"], old["since"], now)
    return verdicts


def _without_missing_evidence(columns: PackedColumns, frame: FleetFrame) -> PackedColumns:
    """Return the columns without evidence that the source does not report any more."""
    heartbeats, memory = columns.heartbeats, columns.memory.copy()
    tunnel_agents, tunnel_proxies = columns.tunnel_agents, columns.tunnel_proxies
    if not frame.has_heartbeats:
        heartbeats = blank_heartbeats(len(heartbeats))
        memory["last_auth"] = NO_INSTANCE
    if not frame.has_tunnels:
        tunnel_agents, tunnel_proxies = tunnel_agents[:0], tunnel_proxies[:0]
        memory["last_proxies"] = NO_INSTANCE
        memory["flags"] &= np.uint8(0xFF & ~(HAD_TUNNEL | DISAGREEMENT))
    return PackedColumns(heartbeats, memory, tunnel_agents, tunnel_proxies)


def _count_tunnels(columns: PackedColumns, frame: FleetFrame) -> AgentTunnelCounts:
    flags = np.arange(256, dtype=np.int64)
    is_live = (flags & LIVE) != 0
    is_live_desired = is_live & ((flags & DESIRED) != 0)
    is_healthy = (flags & SICK) == 0
    fields = (
        is_live,
        is_live & is_healthy,
        is_live_desired,
        is_live_desired & is_healthy,
        np.ones(256, np.bool_),
    )
    weights = sum(field.astype(np.float64) * float(1 << (_COUNT_BITS * i)) for i, field in enumerate(fields))
    proxy_flags = frame.tables.flags.take(columns.tunnel_proxies)
    packed_counts = np.bincount(
        columns.tunnel_agents, np.asarray(weights).take(proxy_flags), len(columns.heartbeats)
    ).astype(np.int64)
    return AgentTunnelCounts(
        proxy_flags,
        *(
            (packed_counts >> (_COUNT_BITS * i)) & _COUNT_MASK if i else packed_counts & _COUNT_MASK
            for i in range(len(fields))
        ),
    )


def _is_plainly_healthy(
    columns: PackedColumns, counts: AgentTunnelCounts, frame: FleetFrame
) -> npt.NDArray[np.bool_]:
    """Return which agents are certainly healthy; the rules decide about the others."""
    heartbeats, memory = columns.heartbeats, columns.memory
    if frame.blind or frame.cluster_unreachable or frame.presence_stale:
        return np.zeros(len(heartbeats), np.bool_)
    flags = frame.tables.flags
    problem_flags = SICK | DEGRADED
    desired_counts = heartbeats["desired_count"]
    healthy = heartbeats["expires_at"] > frame.unexpired_from
    healthy &= (flags.take(heartbeats["auth"]) & problem_flags) == 0
    healthy &= (flags.take(heartbeats["via_proxy"]) & problem_flags) == 0
    healthy &= (memory["flags"] & RETIRED) == 0
    healthy &= memory["working_until"] <= frame.now
    if frame.has_tunnels:
        healthy &= counts.healthy > 0
    healthy &= counts.healthy_desired >= columns.effective_desired_counts(
        desired_counts, memory["tracked_count"], frame
    )
    healthy &= (desired_counts == 0) | (counts.live_desired <= desired_counts)
    if frame.has_all_tunnel_reports:
        healthy &= heartbeats["claimed_count"] <= counts.total
    if ((counts.proxy_flags & DEGRADED) != 0).any():
        healthy[columns.tunnel_agents[(counts.proxy_flags & (DEGRADED | LIVE)) == DEGRADED | LIVE]] = False
    return healthy


def _write(
    verdicts: npt.NDArray[np.void],
    indices: npt.NDArray[np.intp],
    subset_verdicts: SubsetVerdicts,
    frame: FleetFrame,
) -> None:
    verdicts["state"][indices] = subset_verdicts.state
    verdicts["reason_and_recovery"][indices] = subset_verdicts.reason | (
        subset_verdicts.recovery << RECOVERY_SHIFT
    )
    verdicts["cause"][indices] = frame.tables.causes.take(subset_verdicts.cause)
    verdicts["recovers_at"][indices] = subset_verdicts.recovers_at
    verdicts["strands_at"][indices] = subset_verdicts.strands_at


assert NO_CAUSE == NO_INSTANCE, "an index that is no instance is no cause either"
