"""How a campaign moves tunnels, or auth connections: which agents can move, through which proxy, their results.

A snapshot holds the fleet data of one moment. The decisions that are the same for both connections are in
`fleet.vocabulary.campaigns`. RFD 226, "Periodic Tunnel Reconnects", "Periodic Auth Reconnects";
docs/reference/campaigns.md.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from typing import Protocol

import numpy as np
from typing_extensions import override

from fleet.changes.plan_input import newest_generations_of
from fleet.models.actions import CampaignAgent
from fleet.monitoring.last_tunnels import is_responding
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.campaigns import (
    AgentOutcome,
    AgentSnapshot,
    AuthSnapshot,
    CampaignAgentState,
    CampaignSettings,
    ConnectionKind,
    ProxySnapshot,
)
from fleet.vocabulary.instances import InstanceKind, InstanceState
from fleet.vocabulary.verdicts import State

_UNREACHABLE_REASON = "the agent has no tunnel to a reachable proxy, so Refloat cannot reach it"


class CampaignSnapshot:
    """The agents, proxies and auths at one moment."""

    def __init__(self, table: FleetTable, agent_ids: Collection[str] | None = None) -> None:
        """`agent_ids`: the agents that are needed; None: all."""
        self.table = table
        self._indices_by_id = {
            agent_id: index
            for index, agent_id in enumerate(table.ids)
            if agent_ids is None or agent_id in agent_ids
        }
        instance_ids = {index: view.facts.id for index, view in table.instances.items()}
        agent_indices = np.fromiter(self._indices_by_id.values(), np.intp, len(self._indices_by_id))
        tunnel_mask = np.isin(table.tunnel_agents, agent_indices)
        proxies_by_agent: dict[int, set[str]] = {}
        for agent, proxy in zip(
            table.tunnel_agents[tunnel_mask].tolist(), table.tunnel_proxies[tunnel_mask].tolist(), strict=True
        ):
            if proxy in instance_ids:
                proxies_by_agent.setdefault(agent, set()).add(instance_ids[proxy])
        self._proxies_by_agent = proxies_by_agent
        views = [view for view in table.instances.values() if view.facts.kind is InstanceKind.PROXY]
        newest_generations_by_group = newest_generations_of(views)
        self.proxies: dict[str, ProxySnapshot] = {
            view.facts.id: ProxySnapshot(
                view.facts.name,
                view.state is InstanceState.OK
                and view.drain_request is None
                and view.facts.generation == newest_generations_by_group.get(view.facts.group),
                is_reachable=is_responding(view),
            )
            for view in views
        }
        auths = {
            index: view for index, view in table.instances.items() if view.facts.kind is InstanceKind.AUTH
        }
        self.auths: dict[str, AuthSnapshot] = {
            view.facts.id: AuthSnapshot(
                view.facts.name,
                view.state is InstanceState.OK and view.drain_request is None,
                view.agent_count,
            )
            for view in auths.values()
        }
        self._auth_ids = {index: view.facts.id for index, view in auths.items()}

    def find_agent(self, agent_id: str) -> AgentSnapshot | None:
        """Return one agent by id; None when it is no longer in the fleet."""
        index = self._indices_by_id.get(agent_id)
        if index is None:
            return None
        return AgentSnapshot(
            proxies=frozenset(self._proxies_by_agent.get(index, ())),
            desired_count=int(self.table.heartbeats["desired_count"][index]),
            is_retired=bool(self.table.verdicts["state"][index] == State.RETIRED),
            # The auth of the last heartbeat, also where the resource has expired: the agent may still be connected.
            auth=self._auth_ids.get(int(self.table.memory["last_auth"][index]), ""),
        )

    @property
    def stranded_count(self) -> int:
        """The number of stranded agents of the whole cluster."""
        return int(np.count_nonzero(self.table.verdicts["state"] == State.STRANDED))

    def name_of(self, instance_id: str) -> str:
        """Return the name of a proxy or an auth; its id where it is no longer in the fleet."""
        instance = self.proxies.get(instance_id) or self.auths.get(instance_id)
        return instance_id if instance is None else instance.name


def _rank_of(agent_id: str, proxy_id: str) -> bytes:
    """Return the rank of a proxy for an agent: each of n proxies ranks first for one n-th of the agents.

    Not a CRC: it is linear, so that one proxy of three would rank first for half of the agents.
    """
    return blake2b(f"{agent_id} {proxy_id}".encode(), digest_size=8).digest()


class MoveStrategy(Protocol):
    """How one campaign moves its agents."""

    #: The result of an agent that answers that it keeps its connection.
    stay_state: CampaignAgentState
    #: The kind of instance that agents leave.
    kind_to_leave: InstanceKind

    def find_skip_reason(self, agent: AgentSnapshot | None, snapshot: CampaignSnapshot) -> str:
        """Return why the campaign must skip an agent now; empty when the agent can move."""

    def choose_instance_to_leave(
        self, agent: AgentSnapshot, snapshot: CampaignSnapshot, agent_id: str
    ) -> str:
        """Return the id of the instance that an agent is to leave."""

    def choose_relay_proxy(
        self,
        agent: AgentSnapshot,
        snapshot: CampaignSnapshot,
        agent_id: str,
        avoided_proxies: Collection[str] = (),
    ) -> str:
        """Return the proxy that asks an agent to leave its auth; empty where the agent leaves the proxy itself."""

    def can_leave(self, agent: AgentSnapshot, instance_to_leave: str, snapshot: CampaignSnapshot) -> bool:
        """Return whether an agent is still connected to the instance to leave, and can be asked to leave it."""

    def decide_outcome(
        self, row: CampaignAgent, snapshot: CampaignSnapshot, settings: CampaignSettings, now: float
    ) -> AgentOutcome | None:
        """Return the result of an agent in progress; None while there is none."""

    def stay_reason_of(self, reason: str) -> str:
        """Return why an agent keeps its connection, from the reason in its answer."""


class TunnelMoveStrategy(MoveStrategy):
    """Agents connect to another proxy; the old tunnel closes with its last user connection."""

    #: The agent knows no other proxy, so it did not try to connect: that is not a failure.
    stay_state = CampaignAgentState.SKIPPED
    kind_to_leave = InstanceKind.PROXY

    def __init__(self, proxies_to_leave: Collection[str]) -> None:
        """`proxies_to_leave`: ids; empty: any."""
        self._proxies_to_leave = frozenset(proxies_to_leave)

    @override
    def find_skip_reason(self, agent: AgentSnapshot | None, snapshot: CampaignSnapshot) -> str:
        """Return why the campaign must skip an agent now; empty when it can reconnect without losing a tunnel."""
        if agent is None:
            return "the agent is no longer in the fleet"
        if agent.is_retired:
            return "the agent is retired"
        if not agent.proxies:
            return "the agent has no tunnel, so Refloat cannot reach it"
        reachable_ids = reachable_proxies_of(agent, snapshot)
        if not reachable_ids:
            return _UNREACHABLE_REASON
        if self._proxies_to_leave and not reachable_ids & self._proxies_to_leave:
            return "the agent is already connected to another proxy"
        usable_ids = {proxy_id for proxy_id, proxy in snapshot.proxies.items() if proxy.is_usable}
        if not usable_ids:
            return "no healthy proxy accepts connections"
        if usable_ids <= reachable_ids:
            return "the agent already has a tunnel to every healthy proxy that accepts connections"
        if len(reachable_ids) < agent.desired_count:
            return f"the agent has only {len(reachable_ids)} of its {agent.desired_count} tunnels"
        return ""

    @override
    def choose_instance_to_leave(
        self, agent: AgentSnapshot, snapshot: CampaignSnapshot, agent_id: str
    ) -> str:
        """Return one of the proxies to leave; without any to leave, one of the agent's own, unhealthy first.

        Only a proxy that responds can ask the agent. `agent_id` decides between several: agents are spread over them,
        and one agent always gets the same.
        """
        proxies = reachable_proxies_of(agent, snapshot)
        return min(
            proxies & self._proxies_to_leave or proxies,
            key=lambda proxy_id: (
                proxy_id in snapshot.proxies and snapshot.proxies[proxy_id].is_usable,
                _rank_of(agent_id, proxy_id),
                proxy_id,
            ),
        )

    @override
    def choose_relay_proxy(
        self,
        agent: AgentSnapshot,
        snapshot: CampaignSnapshot,
        agent_id: str,
        avoided_proxies: Collection[str] = (),
    ) -> str:
        return ""

    @override
    def can_leave(self, agent: AgentSnapshot, instance_to_leave: str, snapshot: CampaignSnapshot) -> bool:
        return instance_to_leave in reachable_proxies_of(agent, snapshot)

    @override
    def decide_outcome(
        self, row: CampaignAgent, snapshot: CampaignSnapshot, settings: CampaignSettings, now: float
    ) -> AgentOutcome | None:
        agent = snapshot.find_agent(row.agent_id)
        initial_proxies = frozenset(row.initial_proxies)
        if agent is not None:
            has_left = row.from_instance not in agent.proxies
            new_proxies = agent.proxies - initial_proxies
            if new_proxies and (has_left or len(agent.proxies) > len(initial_proxies)):
                return AgentOutcome(CampaignAgentState.SUCCEEDED, new_proxy=min(new_proxies))
            if has_left and len(agent.proxies) >= max(1, min(len(initial_proxies), agent.desired_count)):
                # The agent had an excess tunnel: closing it is enough.
                return AgentOutcome(CampaignAgentState.SUCCEEDED, "the agent closed an excess tunnel")
        if now - (row.requested_at or 0.0) < settings.timeout_seconds:
            return None
        if agent is None or not agent.proxies:
            return AgentOutcome(CampaignAgentState.FAILED, "the agent has no tunnel any more")
        return AgentOutcome(
            CampaignAgentState.FAILED,
            f"timed out: the agent did not connect to another proxy within {settings.timeout_seconds} s",
        )

    @override
    def stay_reason_of(self, reason: str) -> str:
        return "the agent kept its tunnel: it knows no other proxy that it can connect to"


class AuthMoveStrategy(MoveStrategy):
    """Agents connect to another auth, heartbeat there, and close the old connection. Tunnels stay open."""

    #: The agent tried, and no other auth accepted its heartbeat: other agents would fail too.
    stay_state = CampaignAgentState.FAILED
    kind_to_leave = InstanceKind.AUTH

    def __init__(self, auths_to_leave: Collection[str]) -> None:
        """`auths_to_leave`: ids; empty: any."""
        self._auths_to_leave = frozenset(auths_to_leave)

    @override
    def find_skip_reason(self, agent: AgentSnapshot | None, snapshot: CampaignSnapshot) -> str:
        if agent is None:
            return "the agent is no longer in the fleet"
        if agent.is_retired:
            return "the agent is retired"
        if not agent.auth:
            return "the agent has not sent a heartbeat, so its auth is unknown"
        if self._auths_to_leave and agent.auth not in self._auths_to_leave:
            return f"the agent is already connected to {snapshot.name_of(agent.auth)}"
        if not any(
            auth.is_usable for instance_id, auth in snapshot.auths.items() if instance_id != agent.auth
        ):
            return "no other healthy auth that accepts connections is available"
        if not reachable_proxies_of(agent, snapshot):
            return _UNREACHABLE_REASON
        return ""

    @override
    def choose_instance_to_leave(
        self, agent: AgentSnapshot, snapshot: CampaignSnapshot, agent_id: str
    ) -> str:
        return agent.auth

    @override
    def choose_relay_proxy(
        self,
        agent: AgentSnapshot,
        snapshot: CampaignSnapshot,
        agent_id: str,
        avoided_proxies: Collection[str] = (),
    ) -> str:
        """Return the proxy through which Refloat asks an agent: a healthy one outside `avoided_proxies`, if any.

        The agent's id decides between several, so that the load is spread over them.
        """
        return min(
            reachable_proxies_of(agent, snapshot),
            key=lambda proxy_id: (
                proxy_id in avoided_proxies,
                not snapshot.proxies[proxy_id].is_usable,
                _rank_of(agent_id, proxy_id),
                proxy_id,
            ),
        )

    @override
    def can_leave(self, agent: AgentSnapshot, instance_to_leave: str, snapshot: CampaignSnapshot) -> bool:
        return agent.auth == instance_to_leave

    @override
    def decide_outcome(
        self, row: CampaignAgent, snapshot: CampaignSnapshot, settings: CampaignSettings, now: float
    ) -> AgentOutcome | None:
        agent = snapshot.find_agent(row.agent_id)
        if agent is not None and agent.auth and agent.auth != row.from_instance:
            return AgentOutcome(CampaignAgentState.SUCCEEDED, new_auth=agent.auth)
        if now - (row.requested_at or 0.0) < settings.timeout_seconds:
            return None
        if agent is None:
            return AgentOutcome(CampaignAgentState.FAILED, "the agent is no longer in the fleet")
        return AgentOutcome(
            CampaignAgentState.FAILED,
            "timed out: the agent sent no heartbeat through an auth other than "
            f"{snapshot.name_of(row.from_instance)} within {settings.timeout_seconds} s",
        )

    @override
    def stay_reason_of(self, reason: str) -> str:
        return f"the agent kept its auth connection: {reason or 'no other auth accepted a heartbeat'}"


def create_move_strategy(connection: str, instances_to_leave: Collection[str]) -> MoveStrategy:
    """Return how a campaign moves a connection, `tunnel` or `auth`; `instances_to_leave`: ids."""
    return (
        AuthMoveStrategy(instances_to_leave)
        if connection == ConnectionKind.AUTH
        else TunnelMoveStrategy(instances_to_leave)
    )


def reachable_proxies_of(agent: AgentSnapshot, snapshot: CampaignSnapshot) -> frozenset[str]:
    """Return the ids of the proxies through which Refloat can reach an agent: it has a live tunnel to them."""
    return frozenset(
        proxy_id
        for proxy_id in agent.proxies
        if proxy_id in snapshot.proxies and snapshot.proxies[proxy_id].is_reachable
    )
