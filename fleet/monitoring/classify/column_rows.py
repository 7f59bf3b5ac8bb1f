"""Columns of a round, the subset of agents that needs the rules, and their verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.monitoring.classify.frame import FleetFrame
from fleet.monitoring.classify.memory import newest_proxies
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
    row_flags: npt.NDArray[np.uint8]
    live: Numbers
    sound: Numbers
    live_desired: Numbers
    sound_desired: Numbers
    rows: Numbers


class AgentSubset:
    """Columns of some agents; each field corresponds to one of `Situation`."""

    def __init__(
        self, rows: PackedColumns, counts: AgentTunnelCounts, indices: npt.NDArray[np.intp], frame: FleetFrame
    ) -> None:
        # Field by field: gathering whole rows takes several times as long.
        heartbeats = {name: rows.heartbeats[name].take(indices) for name in _HEARTBEAT_FIELDS}
        memory = {name: rows.memory[name].take(indices) for name in _MEMORY_FIELDS}
        self._rows, self._counts, self._indices = rows, counts, indices
        self.frame = frame
        self.flags = frame.tables.flags
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
        self.effective_desired_counts = rows.effective_desired_counts(
            self.desired_counts, memory["tracked_count"], frame
        )
        self.claimed_counts = heartbeats["claimed_count"]
        self.is_retired: Mask = (memory["flags"] & RETIRED) != 0
        self.had_tunnel: Mask = (memory["flags"] & HAD_TUNNEL) != 0
        self.is_disagreeing: Mask = memory["flags"] >> DISAGREEMENT_SHIFT >= frame.timing.disagreement_rounds
        self.working_until: Times = memory["working_until"]
        self.lost_at: Times = memory["lost_at"]
        self.last_proxies: npt.NDArray[np.uint16] = rows.memory["last_proxies"].take(indices, axis=0)
        self.live, self.sound = counts.live[indices], counts.sound[indices]
        self.live_desired, self.sound_desired = counts.live_desired[indices], counts.sound_desired[indices]
        self.tunnels = counts.rows[indices]
        self.is_unexpired: Mask = self.expires_at > frame.unexpired_from
        self.is_expired: Mask = ~self.is_unexpired & (self.expires_at <= frame.expired_until)
        self.has_last_proxies: Mask = (self.last_proxies != NO_INSTANCE).any(axis=1)

    def recent_proxies(self) -> npt.NDArray[np.uint16]:
        """Return each agent's proxies when it was last seen, newest first, padded with `NO_INSTANCE`."""
        proxies = self.last_proxies.copy()
        positions = np.flatnonzero(~self.has_last_proxies & (self.tunnels > 0))
        if len(positions):
            agent_indices = self._indices[positions]
            rows = self._rows
            proxies[positions] = newest_proxies(
                rows.memory, agent_indices, rows.tunnel_agents, rows.tunnel_proxies
            )
        limits = np.where(self.is_listed & (self.desired_counts > 0), self.desired_counts, LAST_PROXY_COUNT)
        proxies[np.arange(LAST_PROXY_COUNT) >= limits[:, None]] = NO_INSTANCE
        return proxies

    def unread(self) -> Mask:
        """Return which agents have a tunnel to a proxy without a known problem that was not read recently."""
        return self._any_tunnel(UNREAD)

    def has_fresh_feed(self) -> Mask:
        """Return which agents have a present or remembered proxy that was read recently."""
        has_fresh_last_proxy: Mask = ((self.flags[self.last_proxies] & FEED_FRESH) != 0).any(axis=1)
        return has_fresh_last_proxy | self._any_tunnel(FEED_FRESH)

    def first_live(self, flags: int) -> Index:
        """Return each agent's first live-tunnel proxy with all these flags, or `NO_INSTANCE`."""
        return self._first((self._counts.row_flags & (flags | LIVE)) == flags | LIVE)

    def first_live_sick(self) -> Index:
        """Return each agent's first failing proxy with a live tunnel, or `NO_INSTANCE`."""
        return self.first_live(SICK)

    def is_sick(self, index: Index) -> Mask:
        """Return which of these instances are failing."""
        sick: Mask = (self.flags[index] & SICK) != 0
        return sick

    def _first(self, tunnels: Mask) -> Index:
        first = np.full(len(self._rows.heartbeats), NO_INSTANCE, np.uint16)
        np.minimum.at(first, self._rows.tunnel_agents[tunnels], self._rows.tunnel_proxies[tunnels])
        return first[self._indices]

    def _any_tunnel(self, flag: int) -> Mask:
        has_tunnel = np.zeros(len(self._rows.heartbeats), np.bool_)
        has_tunnel[self._rows.tunnel_agents[(self._counts.row_flags & flag) != 0]] = True
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
        """Set the verdict of the undecided agents of `where`, and return them; arrays are of the whole subset."""
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
