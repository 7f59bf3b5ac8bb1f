"""Columns of a round, the subset of agents that needs the rules, and their verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.monitoring.classify.frame import FleetFrame
from fleet.monitoring.classify.memory import select_newest_proxies
from fleet.monitoring.classify.tables import FEED_FRESH, LIVE, SICK, UNREAD
from fleet.monitoring.columns import (
    DISAGREEMENT_SHIFT,
    HAD_TUNNEL,
    HEALTH_CHECK,
    LAST_PROXY_COUNT,
    NO_INSTANCE,
    RETIRED,
)
from fleet.monitoring.evidence import ReconnectMode
from fleet.vocabulary.verdicts import NO_CAUSE, Reason, Recovery, State

Mask = npt.NDArray[np.bool_]
Index = npt.NDArray[np.uint16]
Times = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

#: Cap of a count for each byte value; 0: no cap.
_NO_CAP = 0x7FFF
_CAPS = np.arange(256, dtype=np.int16)
_CAPS[0] = _NO_CAP

_HEARTBEAT_FIELDS = (
    "expires_at",
    "ttl",
    "ttl_seen",
    "auth",
    "via_proxy",
    "mode",
    "flags",
    "desired_count",
    "claimed_count",
)
_MEMORY_FIELDS = ("working_until", "lost_at", "last_auth", "flags", "tracked_count")


@dataclass(frozen=True, slots=True)
class PackedColumns:
    """Packed columns of a cluster."""

    heartbeats: npt.NDArray[np.void]
    memory: npt.NDArray[np.void]
    tunnel_agents: npt.NDArray[np.uint32]
    tunnel_proxies: npt.NDArray[np.uint16]

    @staticmethod
    def effective_desired_counts(desired_counts: Array, tracked_counts: Array, frame: FleetFrame) -> Array:
        """Return `Situation.effective_desired_count` of many agents."""
        if not (frame.has_heartbeats and frame.has_tunnels):
            return np.zeros(len(desired_counts), np.int16)
        mesh = np.minimum(_CAPS.take(tracked_counts), np.int16(min(frame.desired_proxy_count, _NO_CAP)))
        return np.where(
            desired_counts == 0,
            mesh,
            np.minimum(desired_counts, np.int16(min(frame.max_desired_proxy_count, _NO_CAP))),
        )


@dataclass(frozen=True, slots=True)
class AgentTunnelCounts:
    """Tunnels per agent: live, live on a proxy that is not failing, both for desired proxies, and all reported ones."""

    #: Flags of each tunnel's proxy in the frame, by tunnel.
    proxy_flags: npt.NDArray[np.uint8]
    live: Numbers
    healthy: Numbers
    live_desired: Numbers
    healthy_desired: Numbers
    total: Numbers


class AgentSubset:
    """Columns of some agents; each field corresponds to one of `Situation`."""

    def __init__(
        self,
        columns: PackedColumns,
        counts: AgentTunnelCounts,
        indices: npt.NDArray[np.intp],
        frame: FleetFrame,
    ) -> None:
        # Field by field: gathering whole rows takes several times as long.
        heartbeats = {name: columns.heartbeats[name].take(indices) for name in _HEARTBEAT_FIELDS}
        memory = {name: columns.memory[name].take(indices) for name in _MEMORY_FIELDS}
        self._columns, self._counts, self._indices = columns, counts, indices
        self.frame = frame
        self.instance_flags = frame.tables.flags
        self.size = len(indices)
        self.expires_at: Times = heartbeats["expires_at"]
        self.ttl: Times = heartbeats["ttl"].astype(np.float64)
        self.ttl_seen: Times = heartbeats["ttl_seen"].astype(np.float64)
        self.is_listed: Mask = self.expires_at > 0
        self.last_auth: Index = memory["last_auth"]
        self.auth: Index = np.where(self.is_listed, heartbeats["auth"], self.last_auth)
        self.via_proxy: Index = np.where(self.is_listed, heartbeats["via_proxy"], NO_INSTANCE).astype(
            np.uint16
        )
        self.mode = np.where(self.is_listed, heartbeats["mode"], ReconnectMode.UNKNOWN)
        self.health_check: Mask = (heartbeats["flags"] & HEALTH_CHECK) != 0
        self.desired_counts = heartbeats["desired_count"]
        self.effective_desired_counts = columns.effective_desired_counts(
            self.desired_counts, memory["tracked_count"], frame
        )
        self.claimed_counts = heartbeats["claimed_count"]
        self.is_retired: Mask = (memory["flags"] & RETIRED) != 0
        self.had_tunnel: Mask = (memory["flags"] & HAD_TUNNEL) != 0
        self.is_disagreeing: Mask = (
            memory["flags"] >> DISAGREEMENT_SHIFT >= frame.timing.min_disagreement_rounds
        )
        self.working_until: Times = memory["working_until"]
        self.lost_at: Times = memory["lost_at"]
        self.last_proxies: npt.NDArray[np.uint16] = columns.memory["last_proxies"].take(indices, axis=0)
        self.live_counts, self.healthy_counts = counts.live[indices], counts.healthy[indices]
        self.live_desired_counts = counts.live_desired[indices]
        self.healthy_desired_counts = counts.healthy_desired[indices]
        self.tunnel_counts = counts.total[indices]
        self.is_unexpired: Mask = self.expires_at > frame.unexpired_from
        self.is_expired: Mask = ~self.is_unexpired & (self.expires_at <= frame.expired_until)
        self.has_last_proxies: Mask = (self.last_proxies != NO_INSTANCE).any(axis=1)

    def recent_proxies(self) -> npt.NDArray[np.uint16]:
        """Return each agent's proxies when it was last seen, newest first, padded with `NO_INSTANCE`."""
        proxies = self.last_proxies.copy()
        positions = np.flatnonzero(~self.has_last_proxies & (self.tunnel_counts > 0))
        if len(positions):
            agent_indices = self._indices[positions]
            columns = self._columns
            proxies[positions] = select_newest_proxies(
                columns.memory, agent_indices, columns.tunnel_agents, columns.tunnel_proxies
            )
        limits = np.where(self.is_listed & (self.desired_counts > 0), self.desired_counts, LAST_PROXY_COUNT)
        proxies[np.arange(LAST_PROXY_COUNT) >= limits[:, None]] = NO_INSTANCE
        return proxies

    def has_unread_tunnel(self) -> Mask:
        """Return which agents have a tunnel to a proxy without a known problem that was not read recently."""
        return self._has_tunnel_with(UNREAD)

    def has_fresh_feed(self) -> Mask:
        """Return which agents have a present or remembered proxy that was read recently."""
        has_fresh_last_proxy: Mask = ((self.instance_flags[self.last_proxies] & FEED_FRESH) != 0).any(axis=1)
        return has_fresh_last_proxy | self._has_tunnel_with(FEED_FRESH)

    def find_first_live_proxies(self, flags: int) -> Index:
        """Return each agent's first live-tunnel proxy with all these flags, or `NO_INSTANCE`."""
        return self._find_first_proxies((self._counts.proxy_flags & (flags | LIVE)) == flags | LIVE)

    def find_first_sick_proxies(self) -> Index:
        """Return each agent's first failing proxy with a live tunnel, or `NO_INSTANCE`."""
        return self.find_first_live_proxies(SICK)

    def is_sick(self, index: Index) -> Mask:
        """Return which of these instances are failing."""
        sick: Mask = (self.instance_flags[index] & SICK) != 0
        return sick

    def _find_first_proxies(self, tunnels: Mask) -> Index:
        first_proxies = np.full(len(self._columns.heartbeats), NO_INSTANCE, np.uint16)
        np.minimum.at(
            first_proxies, self._columns.tunnel_agents[tunnels], self._columns.tunnel_proxies[tunnels]
        )
        return first_proxies[self._indices]

    def _has_tunnel_with(self, flag: int) -> Mask:
        has_tunnel = np.zeros(len(self._columns.heartbeats), np.bool_)
        has_tunnel[self._columns.tunnel_agents[(self._counts.proxy_flags & flag) != 0]] = True
        return has_tunnel[self._indices]


class SubsetVerdicts:
    """Verdicts of a subset while the rules run, and which agents have none yet."""

    def __init__(self, size: int) -> None:
        self.is_undecided: Mask = np.ones(size, np.bool_)
        self.state = np.full(size, State.HEALTHY, np.uint8)
        self.reason = np.zeros(size, np.uint8)
        self.recovery = np.zeros(size, np.uint8)
        self.cause = np.full(size, NO_CAUSE, np.uint16)
        self.recovers_at = np.zeros(size)
        self.strands_at = np.zeros(size)

    def put(
        self,
        mask: Mask,
        state: State,
        reason: Reason | Array = Reason.NONE,
        cause: int | Array = NO_CAUSE,
        outlook: tuple[int | Array, float | Array] = (Recovery.NOT_NEEDED, 0.0),
    ) -> Mask:
        """Set the verdict of the undecided agents of `mask`, and return them; arrays are of the whole subset."""
        mask = mask & self.is_undecided
        if mask.any():
            self.state[mask] = state
            self.reason[mask] = _select(reason, mask)
            self.cause[mask] = _select(cause, mask)
            self.recovery[mask] = _select(outlook[0], mask)
            self.recovers_at[mask] = _select(outlook[1], mask)
            self.is_undecided &= ~mask
        return mask


def _select(scalar_or_array: float | Array, mask: Mask) -> float | Array:
    return scalar_or_array[mask] if isinstance(scalar_or_array, np.ndarray) else scalar_or_array
