"""What `classify` is given: the design's evidence H, T, C, I and F for one agent, and for the fleet.

Facts only; nothing here is derived and nothing is stale by itself: age is applied by whoever reads,
with `now` passed in. All times are seconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from fleet.vocabulary.instances import InstanceFacts

#: The feed of agent heartbeats, and the lists of instances, among the tunnel feeds, which go by instance index.
PRESENCE = "presence"
LISTS = "lists"
#: Rounds of a disagreement are counted up to this many.
MAX_DISAGREEMENT_ROUNDS = 63


class ReconnectMode(IntEnum):
    """The mode of `teleport_pick_healthy` an agent runs with (RFD 226, "Defining a Custom Policy Behavior")."""

    UNKNOWN = 0
    PICK_FIRST = 1
    RECONNECT = 2

    @property
    def slug(self) -> str:
        """Its name in the policy of an agent, and in the API: `pick_first`."""
        return self.name.lower()

    @classmethod
    def read(cls, slug: str) -> ReconnectMode:
        """Find a mode by its slug; one that nobody knows is unknown."""
        return _MODES.get(slug, cls.UNKNOWN)


_MODES = {mode.slug: mode for mode in ReconnectMode}


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """H and C: the agent's resource in the presence list, and what it carries."""

    #: Instance index of the auth that wrote it.
    auth: int
    expires_at: float
    #: Seconds the resource lives after a heartbeat.
    ttl: float
    #: Instance index of the proxy its auth connection goes through; None when direct.
    via_proxy: int | None = None
    mode: ReconnectMode = ReconnectMode.UNKNOWN
    health_check: bool = False
    #: When it read that policy; None when it did not say.
    policy_read_at: float | None = None
    #: Wanted tunnels; 0 means one to every desired proxy (agent mesh).
    desired: int = 0
    #: How many proxies it says it holds tunnels to, and how many unexpired ones it knows.
    claimed: int = 0
    tracked: int = 0
    #: The discovery TTL it was told, seconds; 0 when it never was.
    ttl_seen: float = 0.0


@dataclass(frozen=True, slots=True)
class AgentEvidence:
    """Everything seen of one agent."""

    id: str
    heartbeat: Heartbeat | None = None
    #: T: instance indices of the proxies whose newest report names a tunnel of this agent.
    tunnels: tuple[int, ...] = ()
    #: The proxies it was last seen on, newest first, remembered after they are gone.
    last_proxies: tuple[int, ...] = ()
    #: The auth that wrote its last heartbeat, remembered after the resource expires.
    last_auth: int | None = None
    #: An operator said it is retired.
    retired: bool = False
    #: It had a tunnel at some time.
    had_tunnel: bool = False
    #: A reconnect we asked for runs until then; None when there is none.
    working_until: float | None = None
    #: Since when it has had no live tunnel; None while it has one, or when nobody took note.
    lost_at: float | None = None
    #: In how many rounds in a row it claimed more tunnels than the proxies reported.
    disagreement: int = 0


@dataclass(frozen=True, slots=True)
class FeedFreshness:
    """F: how fresh one source is. A failed attempt is fresh evidence too."""

    #: When the last attempt ended, good or failed.
    attempted_at: float | None = None
    #: When the last good answer came.
    answered_at: float | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """How often we look. Seconds."""

    round_interval: float = 5.0
    #: A source is stale when no attempt ended within this many rounds ...
    stale_rounds: int = 3
    #: ... but never before this.
    stale_floor: float = 10.0
    #: Proxies expire from an agent's tracker after this when no TTL was told (tracker.DefaultProxyExpiry).
    default_proxy_expiry: float = 180.0
    #: An agent notices a half-open connection after this (keep_alive_interval x keep_alive_count_max, 5 min x 3).
    keepalive: float = 900.0

    @property
    def stale_after(self) -> float:
        """Age from which a source, or a round's result, reads as unknown."""
        return max(self.stale_rounds * self.round_interval, self.stale_floor)

    @property
    def tunnels_live_for(self) -> float:
        """A tunnel is live if a proxy that is not silent reported it within two rounds (or the floor of staleness
        when rounds are long enough that two of them say less than one failed attempt)."""
        return max(2 * self.round_interval, self.stale_floor)

    @property
    def disagreement_rounds(self) -> int:
        """In how many rounds in a row an agent and its proxies must disagree before that is a verdict.

        Either view may be as old as `tunnels_live_for`: before that they may only have been read moments apart.
        """
        return min(1 + math.ceil(self.tunnels_live_for / self.round_interval), MAX_DISAGREEMENT_ROUNDS)


@dataclass(frozen=True, slots=True)
class FleetEvidence:
    """I and F: the instances and how fresh every source is."""

    cluster: str
    #: Every instance ever seen, by its dense index.
    instances: Mapping[int, InstanceFacts]
    #: The agent presence list (H), asked of a healthy auth.
    presence: FeedFreshness = field(default_factory=FeedFreshness)
    #: Tunnel reports (T), by instance index of the proxy.
    tunnels: Mapping[int, FeedFreshness] = field(default_factory=dict)
    #: Our own pollers missed rounds or failed their self-probe.
    blind: bool = False
    timing: Timing = field(default_factory=Timing)
    #: Instances whose destination health is Degraded, by index; none while nothing measures it.
    degraded_instances: frozenset[int] = frozenset()
