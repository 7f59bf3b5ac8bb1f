"""What a campaign moves: tunnels or auth connections. Both decide by the same sight of the fleet. docs/campaigns.md.

The decisions are pure: `fleet.vocabulary.campaigns`, `auth_connections`; here they get what they need of one moment.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import numpy as np
from typing_extensions import override

from fleet.changes.campaigns import auth_connections
from fleet.changes.plan_input import newest_generations
from fleet.models.actions import CampaignAgent
from fleet.monitoring.views import FleetTable
from fleet.vocabulary import campaigns
from fleet.vocabulary.campaigns import AgentSeen, AgentState, AuthSeen, Connection, Outcome, Pace, ProxySeen
from fleet.vocabulary.instances import CUT_OFF, InstanceKind, InstanceState
from fleet.vocabulary.verdicts import State


class Sight:
    """The agents, proxies and auths of one moment, as decisions need them."""

    def __init__(self, table: FleetTable, agents: Collection[str] | None = None) -> None:
        """`agents` by id; None: all."""
        self.table = table
        self._place = {one: index for index, one in enumerate(table.ids) if agents is None or one in agents}
        ids = {index: view.facts.id for index, view in table.instances.items()}
        wanted = np.fromiter(self._place.values(), np.intp, len(self._place))
        mine = np.isin(table.tunnel_agents, wanted)
        held: dict[int, set[str]] = {}
        for agent, proxy in zip(
            table.tunnel_agents[mine].tolist(), table.tunnel_proxies[mine].tolist(), strict=True
        ):
            if proxy in ids:
                held.setdefault(agent, set()).add(ids[proxy])
        self._held = held
        views = [view for view in table.instances.values() if view.facts.kind is InstanceKind.PROXY]
        newest = newest_generations(views)
        self.proxies: dict[str, ProxySeen] = {
            view.facts.id: ProxySeen(
                view.facts.name,
                view.state is InstanceState.OK and view.facts.generation == newest.get(view.facts.group),
                answers=view.state not in CUT_OFF,
            )
            for view in views
        }
        auths = {
            index: view for index, view in table.instances.items() if view.facts.kind is InstanceKind.AUTH
        }
        self.auths: dict[str, AuthSeen] = {
            view.facts.id: AuthSeen(
                view.facts.name, view.state is InstanceState.OK and view.draining is None, view.agents
            )
            for view in auths.values()
        }
        self._auth_ids = {index: view.facts.id for index, view in auths.items()}

    def agent(self, agent_id: str) -> AgentSeen | None:
        """One agent; None when the record has it no more."""
        index = self._place.get(agent_id)
        if index is None:
            return None
        return AgentSeen(
            proxies=frozenset(self._held.get(index, ())),
            desired=int(self.table.heartbeats["desired"][index]),
            retired=bool(self.table.verdicts["state"][index] == State.RETIRED),
            # Of the last heartbeat, also where the resource has expired: the agent may be connected to it still.
            auth=self._auth_ids.get(int(self.table.memory["last_auth"][index]), ""),
        )

    @property
    def stranded(self) -> int:
        """How many agents of the whole cluster are."""
        return int(np.count_nonzero(self.table.verdicts["state"] == State.STRANDED))

    def name_of(self, instance_id: str) -> str:
        """Return the name of a proxy or an auth; the id of one that is not in the record any more."""
        seen = self.proxies.get(instance_id) or self.auths.get(instance_id)
        return instance_id if seen is None else seen.name


class Move(Protocol):
    """How agents are moved in one campaign."""

    #: What becomes of an agent that answers that it stays.
    stay_state: AgentState
    #: What the instance is that agents leave.
    leaves_kind: InstanceKind

    def why_skip(self, agent: AgentSeen | None, sight: Sight) -> str:
        """Return why an agent is not asked, as it is now; empty when it may be."""

    def leaves(self, agent: AgentSeen, sight: Sight, agent_id: str) -> str:
        """Return the instance that an agent is to leave."""

    def via(self, agent: AgentSeen, sight: Sight, agent_id: str, avoid: Collection[str] = ()) -> str:
        """Return the proxy that asks an agent, where it is not the instance to leave; else nothing."""

    def is_there(self, agent: AgentSeen, leaves: str) -> bool:
        """Return whether an agent is still connected to the instance that it is to leave."""

    def outcome(self, row: CampaignAgent, sight: Sight, pace: Pace, now: float) -> Outcome | None:
        """Return what became of an agent that was asked; None while that is not known."""

    def stay_reason(self, reason: str) -> str:
        """Return why an agent stays, from what it answered."""


class TunnelMove(Move):
    """Agents connect to another proxy, and let the old tunnel end with its last user connection."""

    #: It knows of nowhere to go: nothing was tried, so nothing failed.
    stay_state = AgentState.SKIPPED
    leaves_kind = InstanceKind.PROXY

    def __init__(self, leave: Collection[str]) -> None:
        """`leave`: proxies to leave; empty: whichever."""
        self._leave = frozenset(leave)

    @override
    def why_skip(self, agent: AgentSeen | None, sight: Sight) -> str:
        return campaigns.why_skip(agent, sight.proxies)

    @override
    def leaves(self, agent: AgentSeen, sight: Sight, agent_id: str) -> str:
        return campaigns.tunnel_to_leave(agent, sight.proxies, self._leave, agent_id)

    @override
    def via(self, agent: AgentSeen, sight: Sight, agent_id: str, avoid: Collection[str] = ()) -> str:
        return ""

    @override
    def is_there(self, agent: AgentSeen, leaves: str) -> bool:
        return leaves in agent.proxies

    @override
    def outcome(self, row: CampaignAgent, sight: Sight, pace: Pace, now: float) -> Outcome | None:
        return campaigns.outcome(
            frozenset(row.held), row.leaves, row.asked_at or 0.0, sight.agent(row.agent_id), pace, now
        )

    @override
    def stay_reason(self, reason: str) -> str:
        return "it answered that it has nowhere to go: it knows no other unexpired proxy"


class AuthMove(Move):
    """Agents connect to another auth, which takes a heartbeat, and let the old connection go. Tunnels stay."""

    #: It tried, and no other auth took its heartbeat: others would fare no better.
    stay_state = AgentState.FAILED
    leaves_kind = InstanceKind.AUTH

    def __init__(self, leave: Collection[str]) -> None:
        """`leave`: auths to leave; empty: whichever."""
        self._leave = frozenset(leave)

    @override
    def why_skip(self, agent: AgentSeen | None, sight: Sight) -> str:
        return auth_connections.why_skip(agent, sight.auths, sight.proxies, self._leave)

    @override
    def leaves(self, agent: AgentSeen, sight: Sight, agent_id: str) -> str:
        return agent.auth

    @override
    def via(self, agent: AgentSeen, sight: Sight, agent_id: str, avoid: Collection[str] = ()) -> str:
        return auth_connections.messenger(agent, sight.proxies, agent_id, avoid)

    @override
    def is_there(self, agent: AgentSeen, leaves: str) -> bool:
        return agent.auth == leaves

    @override
    def outcome(self, row: CampaignAgent, sight: Sight, pace: Pace, now: float) -> Outcome | None:
        return auth_connections.outcome(
            row.leaves, row.asked_at or 0.0, sight.agent(row.agent_id), sight.auths, pace, now
        )

    @override
    def stay_reason(self, reason: str) -> str:
        return f"it answered that it stays: {reason or 'no other auth took a heartbeat'}"


def move_of(connection: str, leave: Collection[str]) -> Move:
    """Return how a campaign moves that connection of its agents."""
    return AuthMove(leave) if connection == Connection.AUTH else TunnelMove(leave)
