"""How a campaign moves tunnels, or auth connections, with the fleet data of one moment. docs/reference/campaigns.md.

The decisions are pure functions in `fleet.vocabulary.campaigns` and `auth_connections`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import numpy as np
from typing_extensions import override

from fleet.changes.campaigns import auth_connections
from fleet.changes.plan_input import newest_generations_of
from fleet.models.actions import CampaignAgent
from fleet.monitoring.views import FleetTable
from fleet.vocabulary import campaigns
from fleet.vocabulary.campaigns import (
    AgentOutcome,
    AgentSnapshot,
    AuthSnapshot,
    CampaignAgentState,
    CampaignSettings,
    ConnectionKind,
    ProxySnapshot,
)
from fleet.vocabulary.instances import CUT_OFF_STATES, InstanceKind, InstanceState
from fleet.vocabulary.verdicts import State


class CampaignSnapshot:
    """The agents, proxies and auths at one moment."""

    def __init__(self, table: FleetTable, agent_ids: Collection[str] | None = None) -> None:
        """`agents`: ids of the agents that are needed; None: all."""
        self.table = table
        self._agent_indices = {
            agent_id: index
            for index, agent_id in enumerate(table.ids)
            if agent_ids is None or agent_id in agent_ids
        }
        ids = {index: view.facts.id for index, view in table.instances.items()}
        agent_indices = np.fromiter(self._agent_indices.values(), np.intp, len(self._agent_indices))
        tunnel_mask = np.isin(table.tunnel_agents, agent_indices)
        proxies_by_agent: dict[int, set[str]] = {}
        for agent, proxy in zip(
            table.tunnel_agents[tunnel_mask].tolist(), table.tunnel_proxies[tunnel_mask].tolist(), strict=True
        ):
            if proxy in ids:
                proxies_by_agent.setdefault(agent, set()).add(ids[proxy])
        self._proxies_by_agent = proxies_by_agent
        views = [view for view in table.instances.values() if view.facts.kind is InstanceKind.PROXY]
        newest_generations_by_group = newest_generations_of(views)
        self.proxies: dict[str, ProxySnapshot] = {
            view.facts.id: ProxySnapshot(
                view.facts.name,
                view.state is InstanceState.OK
                and view.facts.generation == newest_generations_by_group.get(view.facts.group),
                is_reachable=view.state not in CUT_OFF_STATES,
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
        index = self._agent_indices.get(agent_id)
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


class MoveStrategy(Protocol):
    """How one campaign moves its agents."""

    #: The result of an agent that answers that it keeps its connection.
    stay_state: CampaignAgentState
    #: The kind of instance that agents leave.
    abandoned_kind: InstanceKind

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

    def is_connected(self, agent: AgentSnapshot, abandoned_instance: str) -> bool:
        """Return whether an agent is still connected to the instance that it is to leave."""

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
    abandoned_kind = InstanceKind.PROXY

    def __init__(self, proxies_to_leave: Collection[str]) -> None:
        """`proxies_to_leave`: ids; empty: any."""
        self._proxies_to_leave = frozenset(proxies_to_leave)

    @override
    def find_skip_reason(self, agent: AgentSnapshot | None, snapshot: CampaignSnapshot) -> str:
        return campaigns.find_skip_reason(agent, snapshot.proxies)

    @override
    def choose_instance_to_leave(
        self, agent: AgentSnapshot, snapshot: CampaignSnapshot, agent_id: str
    ) -> str:
        return campaigns.choose_proxy_to_leave(agent, snapshot.proxies, self._proxies_to_leave, agent_id)

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
    def is_connected(self, agent: AgentSnapshot, abandoned_instance: str) -> bool:
        return abandoned_instance in agent.proxies

    @override
    def decide_outcome(
        self, row: CampaignAgent, snapshot: CampaignSnapshot, settings: CampaignSettings, now: float
    ) -> AgentOutcome | None:
        return campaigns.decide_agent_outcome(
            frozenset(row.initial_proxies),
            row.from_instance,
            row.requested_at or 0.0,
            snapshot.find_agent(row.agent_id),
            settings,
            now,
        )

    @override
    def stay_reason_of(self, reason: str) -> str:
        return "the agent kept its tunnel: it knows no other unexpired proxy"


class AuthMoveStrategy(MoveStrategy):
    """Agents connect to another auth, heartbeat there, and close the old connection. Tunnels stay open."""

    #: The agent tried, and no other auth accepted its heartbeat: other agents would fail too.
    stay_state = CampaignAgentState.FAILED
    abandoned_kind = InstanceKind.AUTH

    def __init__(self, auths_to_leave: Collection[str]) -> None:
        """`auths_to_leave`: ids; empty: any."""
        self._auths_to_leave = frozenset(auths_to_leave)

    @override
    def find_skip_reason(self, agent: AgentSnapshot | None, snapshot: CampaignSnapshot) -> str:
        return auth_connections.find_skip_reason(
            agent, snapshot.auths, snapshot.proxies, self._auths_to_leave
        )

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
        return auth_connections.choose_relay_proxy(agent, snapshot.proxies, agent_id, avoided_proxies)

    @override
    def is_connected(self, agent: AgentSnapshot, abandoned_instance: str) -> bool:
        return agent.auth == abandoned_instance

    @override
    def decide_outcome(
        self, row: CampaignAgent, snapshot: CampaignSnapshot, settings: CampaignSettings, now: float
    ) -> AgentOutcome | None:
        return auth_connections.decide_agent_outcome(
            row.from_instance,
            row.requested_at or 0.0,
            snapshot.find_agent(row.agent_id),
            snapshot.auths,
            settings,
            now,
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
