"""One agent's evidence, read against the frame: what is live, what is lost, who is to blame."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from fleet.monitoring.classify.frame import FleetFrame
from fleet.monitoring.classify.standings import InstanceCondition
from fleet.monitoring.columns import LAST_PROXY_COUNT
from fleet.monitoring.evidence import AgentEvidence
from fleet.vocabulary.instances import CUT_OFF_STATES


class ResourceState(Enum):
    """H: the agent's resource in the presence list."""

    UNEXPIRED = auto()
    EXPIRED = auto()
    #: It ran out, but no list was answered since, and somebody may have renewed it.
    UNCLEAR = auto()


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything the rules ask about one agent. Build it with `read`."""

    agent: AgentEvidence
    frame: FleetFrame
    resource: ResourceState
    #: Live tunnels, by instance index of the proxy, ascending.
    live: tuple[int, ...]
    #: A tunnel was last reported by a proxy that is fine but was not read lately.
    unread: bool
    #: The proxies it used when last seen, newest first: as many as it wants tunnels, three at most.
    recent_proxies: tuple[int, ...]
    #: The auth of its heartbeats, and the proxy it reaches that auth through.
    auth: int | None
    via_proxy: int | None

    @property
    def is_reachable(self) -> bool:
        """A live tunnel and an unexpired resource."""
        return bool(self.live) and self.resource is ResourceState.UNEXPIRED

    @property
    def has_live_heartbeat(self) -> bool:
        """A heartbeat that proves life: written after its last tunnel was lost.

        An older one proves nothing: a killed agent's resource lives on for a whole TTL.
        """
        heartbeat = self.agent.heartbeat
        if heartbeat is None or self.resource is not ResourceState.UNEXPIRED:
            return False
        if self.agent.lost_at is None:
            return True
        written_at = heartbeat.expires_at - heartbeat.ttl
        return written_at > self.agent.lost_at + self.frame.timing.round_interval

    @property
    def blamed_auth(self) -> int | None:
        """Its auth, or else the proxy before it, if that was sick when the resource was lost."""
        heartbeat = self.agent.heartbeat
        is_expired = heartbeat is not None and self.resource is ResourceState.EXPIRED
        lost_at = heartbeat.expires_at if heartbeat is not None and is_expired else None
        return next(
            (i for i in (self.auth, self.via_proxy) if i is not None and self._is_to_blame(i, lost_at)), None
        )

    @property
    def blamed_proxies(self) -> tuple[int, ...]:
        """The used proxies that were sick when its last live tunnel was lost, newest first."""
        return tuple(index for index in self.recent_proxies if self._is_to_blame(index, self.agent.lost_at))

    @property
    def sound_count(self) -> int:
        """How many of its live tunnels end at a proxy that is not sick."""
        return sum(not self.is_sick(index) for index in self.live)

    @property
    def is_disagreeing(self) -> bool:
        """It has claimed more tunnels than proxies report for longer than their views may lie apart."""
        return self.agent.disagreement >= self.frame.timing.disagreement_rounds

    @property
    def effective_desired_count(self) -> int:
        """How many tunnels to desired proxies it wants, never more than can be.

        In a mesh one to each it knows of: a proxy that is new, or has expired, is none it lacks.
        """
        heartbeat = self.agent.heartbeat
        if heartbeat is None:
            return 0
        if heartbeat.desired > 0:
            return min(heartbeat.desired, self.frame.max_desired_proxy_count)
        return min(heartbeat.tracked or self.frame.desired_proxy_count, self.frame.desired_proxy_count)

    def condition_of(self, index: int) -> InstanceCondition | None:
        """Look up an instance."""
        return self.frame.conditions.get(index)

    def is_sick(self, index: int | None) -> bool:
        """Tell whether an instance is silent, unhealthy, expired or gone."""
        condition = None if index is None else self.frame.conditions.get(index)
        return condition is not None and condition.sick

    def is_cut_off(self, index: int | None) -> bool:
        """Tell whether an instance passes nothing on: it is silent or gone."""
        return index is not None and self.frame.state_of(index) in CUT_OFF_STATES

    def _is_to_blame(self, index: int, lost_at: float | None) -> bool:
        condition = self.frame.conditions.get(index)
        if condition is None or not condition.sick:
            return False
        # Who fell sick long after the loss did not cause it: the margin is what finding out may take.
        return lost_at is None or condition.since <= lost_at + self.frame.timing.stale_after


def read_situation(agent: AgentEvidence, frame: FleetFrame) -> Situation:
    """Read an agent's evidence against the frame."""
    heartbeat = agent.heartbeat
    conditions = [frame.conditions[index] for index in agent.tunnels if index in frame.conditions]
    desired_count = LAST_PROXY_COUNT if heartbeat is None or heartbeat.desired == 0 else heartbeat.desired
    return Situation(
        agent=agent,
        frame=frame,
        resource=_resource_state(agent, frame),
        live=tuple(sorted(condition.facts.index for condition in conditions if condition.live)),
        unread=any(condition.unread for condition in conditions) or len(conditions) < len(agent.tunnels),
        recent_proxies=(agent.last_proxies or tuple(sorted(set(agent.tunnels))))[: min(desired_count, LAST_PROXY_COUNT)],
        auth=agent.last_auth if heartbeat is None else heartbeat.auth,
        via_proxy=None if heartbeat is None else heartbeat.via_proxy,
    )


def _resource_state(agent: AgentEvidence, frame: FleetFrame) -> ResourceState:
    expires_at = 0.0 if agent.heartbeat is None else agent.heartbeat.expires_at
    if expires_at > frame.unexpired_from:
        return ResourceState.UNEXPIRED
    return ResourceState.EXPIRED if expires_at <= frame.expired_until else ResourceState.UNCLEAR
