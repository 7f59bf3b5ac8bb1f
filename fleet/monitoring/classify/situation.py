"""One agent's evidence in a frame: live tunnels, lost tunnels or resource, and the instances to blame."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

from fleet.monitoring.classify.frame import FleetFrame
from fleet.monitoring.classify.instance_conditions import InstanceCondition
from fleet.monitoring.columns import LAST_PROXY_COUNT
from fleet.monitoring.evidence import AgentEvidence
from fleet.vocabulary.instances import CUT_OFF_STATES


class ResourceState(Enum):
    """Evidence H: the agent's resource in the presence list."""

    UNEXPIRED = auto()
    EXPIRED = auto()
    #: The expiry has passed, but no list was read since, so an auth may have renewed the resource.
    UNCLEAR = auto()


@dataclass(frozen=True, slots=True)
class Situation:
    """Input of the rules for one agent. Build it with `read_situation`."""

    agent: AgentEvidence
    frame: FleetFrame
    resource: ResourceState
    #: Live tunnels: instance indices of the proxies, ascending.
    live_tunnels: tuple[int, ...]
    #: The last report of a tunnel is from a proxy without a known problem that was not read recently.
    has_unread_tunnel: bool
    #: Proxies of the agent when it was last seen, newest first: its desired number of tunnels, at most three.
    recent_proxies: tuple[int, ...]
    #: Auth of the agent's heartbeats, and the proxy that carries the connection to it.
    auth: int | None
    via_proxy: int | None

    @property
    def is_reachable(self) -> bool:
        """Return whether the agent has a live tunnel and an unexpired resource, as far as the source reports them."""
        has_tunnel = bool(self.live_tunnels) or not self.frame.has_tunnels
        return has_tunnel and (self.resource is ResourceState.UNEXPIRED or not self.frame.has_heartbeats)

    @property
    def has_live_heartbeat(self) -> bool:
        """Return whether the agent sent a heartbeat after it lost its last tunnel.

        An older heartbeat proves nothing: the resource of a killed agent stays for a whole TTL.
        """
        heartbeat = self.agent.heartbeat
        if heartbeat is None or self.resource is not ResourceState.UNEXPIRED:
            return False
        if self.agent.lost_at is None:
            return True
        written_at = heartbeat.expires_at - heartbeat.ttl
        return written_at > self.agent.lost_at + self.frame.timing.round_interval

    @property
    def blamed_carrier(self) -> int | None:
        """Return the auth, or else the proxy before it, that was failing when the resource was lost."""
        heartbeat = self.agent.heartbeat
        is_expired = heartbeat is not None and self.resource is ResourceState.EXPIRED
        lost_at = heartbeat.expires_at if heartbeat is not None and is_expired else None
        return next(
            (i for i in (self.auth, self.via_proxy) if i is not None and self._is_to_blame(i, lost_at)), None
        )

    @property
    def blamed_proxies(self) -> tuple[int, ...]:
        """Return the used proxies that were failing when the last live tunnel was lost, newest first."""
        return tuple(index for index in self.recent_proxies if self._is_to_blame(index, self.agent.lost_at))

    @property
    def healthy_tunnel_count(self) -> int:
        """Return the number of live tunnels to proxies that are not failing."""
        return sum(not self.is_sick(index) for index in self.live_tunnels)

    @property
    def is_disagreeing(self) -> bool:
        """Return whether the agent has reported more tunnels than proxies for longer than views may differ."""
        return self.agent.disagreement_rounds >= self.frame.timing.min_disagreement_rounds

    @property
    def effective_desired_count(self) -> int:
        """Return the desired number of tunnels to desired proxies, at most the possible number.

        In a mesh: one to each proxy that the agent knows; a new or an expired proxy is not missing.
        """
        heartbeat = self.agent.heartbeat
        if heartbeat is None or not self.frame.has_tunnels:
            return 0
        if heartbeat.desired_count > 0:
            return min(heartbeat.desired_count, self.frame.max_desired_proxy_count)
        return min(heartbeat.tracked_count or self.frame.desired_proxy_count, self.frame.desired_proxy_count)

    def condition_of(self, index: int) -> InstanceCondition | None:
        """Return an instance by index, or None."""
        return self.frame.conditions.get(index)

    def is_sick(self, index: int | None) -> bool:
        """Return whether an instance is silent, unhealthy, expired or deregistered."""
        condition = None if index is None else self.frame.conditions.get(index)
        return condition is not None and condition.is_sick

    def is_cut_off(self, index: int | None) -> bool:
        """Return whether an instance forwards no traffic: it is silent or deregistered."""
        return index is not None and self.frame.state_of(index) in CUT_OFF_STATES

    def _is_to_blame(self, index: int, lost_at: float | None) -> bool:
        condition = self.frame.conditions.get(index)
        if condition is None or not condition.is_sick:
            return False
        # An instance that failed long after the loss did not cause it: the margin is the time of detection.
        return lost_at is None or condition.since <= lost_at + self.frame.timing.stale_after


def read_situation(agent: AgentEvidence, frame: FleetFrame) -> Situation:
    """Return the situation of an agent in a frame, without evidence that the source does not report any more."""
    if not frame.has_heartbeats:
        agent = replace(agent, heartbeat=None, last_auth=None)
    if not frame.has_tunnels:
        agent = replace(agent, tunnels=(), last_proxies=(), had_tunnel=False, disagreement_rounds=0)
    heartbeat = agent.heartbeat
    conditions = [frame.conditions[index] for index in agent.tunnels if index in frame.conditions]
    recent_proxy_limit = (
        LAST_PROXY_COUNT if heartbeat is None or heartbeat.desired_count == 0 else heartbeat.desired_count
    )
    return Situation(
        agent=agent,
        frame=frame,
        resource=_resource_state(agent, frame),
        live_tunnels=tuple(sorted(condition.facts.index for condition in conditions if condition.is_live)),
        has_unread_tunnel=any(condition.is_unread for condition in conditions)
        or len(conditions) < len(agent.tunnels),
        recent_proxies=(agent.last_proxies or tuple(sorted(set(agent.tunnels))))[
            : min(recent_proxy_limit, LAST_PROXY_COUNT)
        ],
        auth=agent.last_auth if heartbeat is None else heartbeat.auth,
        via_proxy=None if heartbeat is None else heartbeat.via_proxy,
    )


def _resource_state(agent: AgentEvidence, frame: FleetFrame) -> ResourceState:
    expires_at = 0.0 if agent.heartbeat is None else agent.heartbeat.expires_at
    if expires_at > frame.unexpired_from:
        return ResourceState.UNEXPIRED
    return ResourceState.EXPIRED if expires_at <= frame.expired_until else ResourceState.UNCLEAR
