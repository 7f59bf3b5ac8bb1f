"""A fleet in memory for campaigns: its agents follow reconnect advisories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from fleet.monitoring import columns
from fleet.monitoring.classify import places_of
from fleet.monitoring.evidence import FleetEvidence
from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.protocol.destination.health import DrainRequest
from fleet.transport.admin import ReconnectAdviceResult, UnreachableError
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, InstanceState, PollAttempt
from fleet.vocabulary.verdicts import NO_CAUSE, State

#: Index of the first auth: proxies come before it.
_FIRST_AUTH = 100


@dataclass
class CampaignFleet:
    """Agents by id with the numbers of their proxies; agents that got an advisory move when `move` is called."""

    agents: dict[str, set[int]]
    proxies: int = 3
    desired_count: int = 1
    #: Agents that ignore advisories, and proxies that are sick or unreachable.
    stubborn_agents: set[str] = field(default_factory=set)
    sick_proxies: set[int] = field(default_factory=set)
    unreachable_proxies: set[int] = field(default_factory=set)
    #: Proxies that do not respond, as polls found: the record keeps their last known tunnels.
    silent_proxies: set[int] = field(default_factory=set)
    stranded_agents: set[str] = field(default_factory=set)
    retired_agents: set[str] = field(default_factory=set)
    #: Agents that respond that they know no other proxy or auth.
    agents_without_alternative: set[str] = field(default_factory=set)
    #: Proxies of an older generation.
    old_proxies: set[int] = field(default_factory=set)
    stale: bool = False
    #: The last attempts to poll each instance.
    attempts: tuple[PollAttempt, ...] = ()
    #: Auths, and the number of the auth to which each agent is connected; without one it has no auth connection.
    auths: int = 0
    auth_of: dict[str, int] = field(default_factory=dict)
    drained_proxies: set[int] = field(default_factory=set)
    #: Auths that are sick or drained.
    sick_auths: set[int] = field(default_factory=set)
    drained_auths: set[int] = field(default_factory=set)
    #: The proxy that relayed the advisory to leave the auth, by agent, and the pending moves (agent, auth).
    relay_proxies: dict[str, int] = field(default_factory=dict)
    pending_auth_moves: list[tuple[str, str]] = field(default_factory=list)
    #: Advisories by agent, the fewest tunnels of any agent, and (proxy, advisory, agent) that proxies have stored.
    advisory_counts: Counter[str] = field(default_factory=Counter)
    fewest_tunnels: int = 99
    stored_advisories: set[tuple[int, str, str]] = field(default_factory=set)
    pending_moves: list[tuple[str, int]] = field(default_factory=list)
    call_count: int = 0
    #: Until when agents are marked as reconnecting, all agents that were ever marked, and whether the record is down.
    reconnecting_until: dict[str, float] = field(default_factory=dict)
    marked_agents: set[str] = field(default_factory=set)
    is_record_unavailable: bool = False

    @classmethod
    def of(cls, count: int, proxies: int = 3, **fields: object) -> Self:
        """Return a fleet of `count` agents with one tunnel each, evenly distributed."""
        agents = {f"agent-{n}": {n % proxies} for n in range(count)}
        return cls(agents, proxies, **fields)  # type: ignore[arg-type] # fields by name

    @classmethod
    def on_auths(cls, count: int, auths: int = 2, at: int = 0, **fields: object) -> Self:
        """Return a fleet of `count` agents with one tunnel each, all connected to auth number `at`."""
        fleet = cls.of(count, auths=auths, **fields)
        fleet.auth_of = dict.fromkeys(fleet.agents, at)
        return fleet

    def advise(
        self, proxy_id: str, advisory_id: str, reason: str, agents: Collection[str], auth: str = ""
    ) -> ReconnectAdviceResult:
        """See Dialer."""
        proxy = int(proxy_id.removeprefix("proxy-"))
        self.call_count += 1
        if proxy in self.unreachable_proxies | self.silent_proxies:
            raise UnreachableError(f"{proxy_id} does not answer")
        connected_agents = [agent for agent in agents if proxy in self.agents[agent]]
        new_agents = [
            agent for agent in connected_agents if (proxy, advisory_id, agent) not in self.stored_advisories
        ]
        for agent in new_agents:
            self.stored_advisories.add((proxy, advisory_id, agent))
            self.advisory_counts[agent] += 1
            if auth:
                self.relay_proxies[agent] = proxy
            if agent in self.stubborn_agents | self.agents_without_alternative:
                continue
            if auth:
                self.pending_auth_moves.append((agent, auth))
            else:
                self.pending_moves.append((agent, proxy))
        absent_agents = tuple(agent for agent in agents if agent not in connected_agents)
        return ReconnectAdviceResult(
            proxy_id,
            len(new_agents),
            len(connected_agents) - len(new_agents),
            0,
            len(absent_agents),
            0,
            (),
            absent_agents,
        )

    def read_advice(
        self, proxy_id: str, advisory_id: str, agents: Collection[str], auth: str = ""
    ) -> ReconnectAdviceResult:
        """See Dialer."""
        proxy = int(proxy_id.removeprefix("proxy-"))
        if proxy in self.unreachable_proxies:
            raise UnreachableError(f"{proxy_id} does not answer")
        advised_agents = [agent for agent in agents if (proxy, advisory_id, agent) in self.stored_advisories]
        staying_agents = tuple(agent for agent in advised_agents if agent in self.agents_without_alternative)
        reasons = {agent: "no other auth accepted a heartbeat: it drains" for agent in staying_agents if auth}
        return ReconnectAdviceResult(
            proxy_id,
            0,
            len(advised_agents),
            0,
            0,
            len(staying_agents),
            staying_agents,
            staying_reasons=reasons,
        )

    def expect_reconnects(self, cluster: str, until: Mapping[str, float]) -> None:
        """See Writer."""
        if self.is_record_unavailable:
            raise StateUnavailableError("Redis does not answer")
        self.reconnecting_until = dict(until)
        self.marked_agents |= self.reconnecting_until.keys()

    def move(self) -> None:
        """Move the agents that got an advisory: open the new tunnel before the old one closes."""
        for agent, proxy in self.pending_moves:
            proxies = self.agents[agent]
            if proxy not in proxies:
                continue
            avoided_proxies = proxies | self.sick_proxies | self.silent_proxies
            free_proxies = [n for n in range(self.proxies) if n not in avoided_proxies]
            if free_proxies:
                proxies.add(free_proxies[0])
                proxies.discard(proxy)
            self.fewest_tunnels = min(self.fewest_tunnels, len(proxies))
        self.pending_moves.clear()
        for agent, auth in self.pending_auth_moves:
            usable = set(range(self.auths)) - self.sick_auths - self.drained_auths
            other_auths = sorted(usable - {self.auth_of[agent]})
            if auth == f"auth-{self.auth_of[agent]}" and other_auths:
                self.auth_of[agent] = other_auths[0]
        self.pending_auth_moves.clear()

    def table(self, now: float) -> FleetTable:
        """Return the table of the reader."""
        ids = tuple(self.agents)
        count = len(ids)
        heartbeats = np.zeros(count, columns.HEARTBEAT)
        heartbeats["desired_count"] = self.desired_count
        verdicts = np.zeros(count, columns.VERDICT)
        verdicts["cause"] = NO_CAUSE
        verdicts["state"] = [
            State.RETIRED
            if agent in self.retired_agents
            else State.STRANDED
            if agent in self.stranded_agents
            else State.WORKING
            if agent in self.reconnecting_until
            else State.HEALTHY
            for agent in ids
        ]
        tunnels = [(index, proxy) for index, agent in enumerate(ids) for proxy in sorted(self.agents[agent])]
        views = {n: self._view(n) for n in range(self.proxies)}
        views |= {_FIRST_AUTH + n: self._auth_view(n) for n in range(self.auths)}
        memory = columns.blank_memory(count)
        for index, agent in enumerate(ids):
            if agent in self.auth_of:
                memory["last_auth"][index] = _FIRST_AUTH + self.auth_of[agent]
        tunnel_agents = np.array([agent for agent, _ in tunnels], np.uint32)
        tunnel_proxies = np.array([proxy for _, proxy in tunnels], np.uint16)
        return FleetTable(
            cluster="default",
            epoch="e",
            seq=1,
            as_of=now,
            stale=self.stale,
            ids=ids,
            names=ids,
            instances=views,
            heartbeats=heartbeats,
            memory=memory,
            verdicts=verdicts,
            places=places_of(memory, tunnel_agents, tunnel_proxies),
            tunnel_agents=tunnel_agents,
            tunnel_proxies=tunnel_proxies,
            fleet=FleetEvidence(cluster="default", instances={n: view.facts for n, view in views.items()}),
        )

    def _view(self, number: int) -> InstanceView:
        facts = InstanceFacts(
            f"proxy-{number}", number, InstanceKind.PROXY, f"proxy-{number}", "127.0.0.1:1",
            generation=0 if number in self.old_proxies else 1, attempts=self.attempts,
        )  # fmt: skip
        state = InstanceState.EXPIRED if number in self.sick_proxies else InstanceState.OK
        state = InstanceState.SILENT if number in self.silent_proxies else state
        drain_request = DrainRequest("full", 0.0) if number in self.drained_proxies else None
        tunnel_count = sum(number in proxies for proxies in self.agents.values())
        return InstanceView(facts, state, "", tunnel_count, {}, drain_request=drain_request)

    def _auth_view(self, number: int) -> InstanceView:
        facts = InstanceFacts(
            f"auth-{number}", _FIRST_AUTH + number, InstanceKind.AUTH, f"auth-{number}", "127.0.0.1:1",
            attempts=self.attempts,
        )  # fmt: skip
        state = InstanceState.UNHEALTHY if number in self.sick_auths else InstanceState.OK
        drain_request = DrainRequest("full", 0.0) if number in self.drained_auths else None
        agents = sum(number_of_auth == number for number_of_auth in self.auth_of.values())
        return InstanceView(facts, state, "", agents, {}, drain_request=drain_request)
