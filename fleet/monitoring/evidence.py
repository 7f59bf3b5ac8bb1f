"""Input of `classify`: the evidence H, T, C, I and F of docs/reference/verdicts.md, for one agent and for the fleet.

Only facts, none of them derived. The reader applies the age of the data, with `now` passed in. All times are seconds
since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from fleet.vocabulary.instances import InstanceFacts

#: Names of the feed of agent heartbeats and of the lists of instances; tunnel feeds go by instance index.
PRESENCE = "presence"
LISTS = "lists"
#: Highest count of rounds of a disagreement.
MAX_DISAGREEMENT_ROUNDS = 63


class ReconnectMode(IntEnum):
    """Mode of `teleport_pick_healthy` of an agent (RFD 226, "Defining a Custom Policy Behavior")."""

    UNKNOWN = 0
    PICK_FIRST = 1
    RECONNECT = 2

    @property
    def slug(self) -> str:
        """Return the name in the policy of an agent and in the API: `pick_first`."""
        return self.name.lower()

    @classmethod
    def from_slug(cls, slug: str) -> ReconnectMode:
        """Return the mode with this slug; UNKNOWN for any other slug."""
        return _MODES.get(slug, cls.UNKNOWN)


_MODES = {mode.slug: mode for mode in ReconnectMode}


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Evidence H and C: the agent's resource in the presence list, and the values in it."""

    #: Instance index of the auth that wrote the resource.
    auth: int
    expires_at: float
    #: Seconds from a heartbeat to the expiry of the resource.
    ttl: float
    #: Instance index of the proxy that carries the auth connection; None when direct.
    via_proxy: int | None = None
    mode: ReconnectMode = ReconnectMode.UNKNOWN
    health_check: bool = False
    #: When the agent read that policy; None when not reported.
    policy_read_at: float | None = None
    #: Desired number of tunnels; 0: one to every desired proxy (agent mesh).
    desired_count: int = 0
    #: Number of proxies that the agent reports tunnels to, and of unexpired proxies that it knows.
    claimed_count: int = 0
    tracked_count: int = 0
    #: Discovery TTL that the agent received in seconds; 0 when it received none.
    ttl_seen: float = 0.0


@dataclass(frozen=True, slots=True)
class AgentEvidence:
    """Evidence of one agent."""

    id: str
    heartbeat: Heartbeat | None = None
    #: Evidence T: instance indices of the proxies whose newest report has a tunnel to this agent.
    tunnels: tuple[int, ...] = ()
    #: Proxies that the agent was last seen on, newest first; kept after its tunnels close.
    last_proxies: tuple[int, ...] = ()
    #: Auth that wrote the last heartbeat; kept after the resource expires.
    last_auth: int | None = None
    #: An operator retired the agent.
    is_retired: bool = False
    #: The agent has had a tunnel.
    had_tunnel: bool = False
    #: When a reconnect requested by Refloat times out; None without one.
    working_until: float | None = None
    #: Since when the agent has had no live tunnel; None while it has one, or when unknown.
    lost_at: float | None = None
    #: Number of consecutive rounds in which the agent reported more tunnels than the proxies.
    disagreement_rounds: int = 0


@dataclass(frozen=True, slots=True)
class FeedFreshness:
    """Evidence F: freshness of one source. A failed attempt is fresh evidence too."""

    #: When the last attempt ended, good or failed.
    attempted_at: float | None = None
    #: When the last good response came.
    responded_at: float | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Intervals and timeouts of monitoring in seconds."""

    round_interval: float = 5.0
    #: A source is stale when no attempt ended within this many rounds,
    stale_rounds: int = 3
    #: but not before this many seconds.
    stale_floor: float = 10.0
    #: Expiry of a proxy in an agent's tracker without a received TTL (tracker.DefaultProxyExpiry).
    default_proxy_expiry: float = 180.0
    #: Time until an agent notices a half-open connection (keep_alive_interval x keep_alive_count_max, 5 min x 3).
    keepalive_timeout: float = 900.0

    @property
    def stale_after(self) -> float:
        """Return the age from which a source, or the result of a round, is stale."""
        return max(self.stale_rounds * self.round_interval, self.stale_floor)

    @property
    def tunnels_live_for(self) -> float:
        """Return the age up to which a reported tunnel is live if its proxy is not silent: two rounds, or `stale_floor`
        when that is longer."""
        return max(2 * self.round_interval, self.stale_floor)

    @property
    def min_disagreement_rounds(self) -> int:
        """Return the number of consecutive rounds of a disagreement from which it changes the state of an agent.

        Both views may be as old as `tunnels_live_for`; before that they may only have been read at different times.
        """
        return min(1 + math.ceil(self.tunnels_live_for / self.round_interval), MAX_DISAGREEMENT_ROUNDS)


@dataclass(frozen=True, slots=True)
class FleetEvidence:
    """Evidence I and F: the instances, and the freshness of every source."""

    cluster: str
    #: Every instance that was ever seen, by its dense index.
    instances: Mapping[int, InstanceFacts]
    #: Freshness of the agent presence list (H), from a healthy auth.
    presence_freshness: FeedFreshness = field(default_factory=FeedFreshness)
    #: Freshness of the tunnel reports (T), by instance index of the proxy.
    tunnel_freshness: Mapping[int, FeedFreshness] = field(default_factory=dict)
    #: The source reports heartbeats (H), tunnels by agent (T). An agent does not lack what its source cannot report.
    has_heartbeats: bool = True
    has_tunnels: bool = True
    #: Refloat's own pollers missed rounds or failed their self-test.
    blind: bool = False
    timing: Timing = field(default_factory=Timing)
    #: Indices of instances whose destination health is Degraded.
    degraded_instances: frozenset[int] = frozenset()
