"""A fleet whose agents do as they are told, for campaigns: proxies, who holds a tunnel to which, and who was asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from fleet.monitoring import columns
from fleet.monitoring.evidence import FleetEvidence
from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.protocol.destination.health import DrainRequest
from fleet.transport.admin import ReconnectAdvice, UnreachableError
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, InstanceState
from fleet.vocabulary.verdicts import NO_CAUSE, State

#: Index of the first auth: proxies come before it.
_FIRST_AUTH = 100


@dataclass
class Movers:
    """Agents by id with the numbers of their proxies; an agent that is asked moves when `move` is called."""

    agents: dict[str, set[int]]
    proxies: int = 3
    desired: int = 1
    #: Agents that stay whatever they are told, and proxies that are not well or do not answer.
    stubborn: set[str] = field(default_factory=set)
    sick: set[int] = field(default_factory=set)
    unreachable: set[int] = field(default_factory=set)
    stranded: set[str] = field(default_factory=set)
    retired: set[str] = field(default_factory=set)
    #: Agents that answer that they have nowhere to go.
    nowhere: set[str] = field(default_factory=set)
    #: Proxies of an older generation than the others.
    old: set[int] = field(default_factory=set)
    stale: bool = False
    #: Auths, and the number of the auth to which each agent is connected; without one it has no auth connection.
    auths: int = 0
    auth_of: dict[str, int] = field(default_factory=dict)
    #: Auths that are not well, or take no new connections.
    sick_auths: set[int] = field(default_factory=set)
    drained_auths: set[int] = field(default_factory=set)
    #: Through which proxy each agent was asked to leave its auth, and who is about to.
    messengers: dict[str, int] = field(default_factory=dict)
    leaving_auth: list[tuple[str, str]] = field(default_factory=list)
    #: How often each agent was sent an advisory, the fewest tunnels any had, and (advisory, agent) that proxies keep.
    asked: Counter[str] = field(default_factory=Counter)
    fewest: int = 99
    advised: set[tuple[int, str, str]] = field(default_factory=set)
    pending: list[tuple[str, int]] = field(default_factory=list)
    calls: int = 0
    #: Who is working, until when; everybody who ever was; and whether the record is away.
    working: dict[str, float] = field(default_factory=dict)
    worked: set[str] = field(default_factory=set)
    away: bool = False

    @classmethod
    def of(cls, count: int, proxies: int = 3, **more: object) -> Movers:
        """So many agents, one tunnel each, spread evenly."""
        agents = {f"agent-{n}": {n % proxies} for n in range(count)}
        return cls(agents, proxies, **more)  # type: ignore[arg-type] # fields by name

    @classmethod
    def on_auths(cls, count: int, auths: int = 2, at: int = 0, **more: object) -> Movers:
        """So many agents, one tunnel each, all connected to one of so many auths."""
        made = cls.of(count, auths=auths, **more)
        made.auth_of = dict.fromkeys(made.agents, at)
        return made

    def advise(
        self, proxy_id: str, advisory_id: str, reason: str, agents: Collection[str], auth: str = ""
    ) -> ReconnectAdvice:
        """See Dialer; as a real proxy does it."""
        proxy = int(proxy_id.removeprefix("proxy-"))
        self.calls += 1
        if proxy in self.unreachable:
            raise UnreachableError(f"{proxy_id} does not answer")
        here = [one for one in agents if proxy in self.agents[one]]
        fresh = [one for one in here if (proxy, advisory_id, one) not in self.advised]
        for one in fresh:
            self.advised.add((proxy, advisory_id, one))
            self.asked[one] += 1
            if auth:
                self.messengers[one] = proxy
            if one in self.stubborn | self.nowhere:
                continue
            if auth:
                self.leaving_auth.append((one, auth))
            else:
                self.pending.append((one, proxy))
        absent = tuple(one for one in agents if one not in here)
        return ReconnectAdvice(proxy_id, len(fresh), len(here) - len(fresh), 0, len(absent), 0, (), absent)

    def read_advice(
        self, proxy_id: str, advisory_id: str, agents: Collection[str], auth: str = ""
    ) -> ReconnectAdvice:
        """See Dialer."""
        proxy = int(proxy_id.removeprefix("proxy-"))
        if proxy in self.unreachable:
            raise UnreachableError(f"{proxy_id} does not answer")
        here = [one for one in agents if (proxy, advisory_id, one) in self.advised]
        staying = tuple(one for one in here if one in self.nowhere)
        reasons = {agent: "no other auth accepted a heartbeat: it drains" for agent in staying if auth}
        return ReconnectAdvice(proxy_id, 0, len(here), 0, 0, len(staying), staying, staying_reasons=reasons)

    def expect_reconnects(self, cluster: str, until: Mapping[str, float]) -> None:
        """See Writer."""
        if self.away:
            raise StateUnavailableError("Redis does not answer")
        self.working = dict(until)
        self.worked |= self.working.keys()

    def move(self) -> None:
        """Have everybody who was asked be elsewhere, make before break."""
        for one, proxy in self.pending:
            held = self.agents[one]
            if proxy not in held:
                continue
            free = [n for n in range(self.proxies) if n not in held and n not in self.sick]
            if free:
                held.add(free[0])
                held.discard(proxy)
            self.fewest = min(self.fewest, len(held))
        self.pending.clear()
        for agent, auth in self.leaving_auth:
            usable = set(range(self.auths)) - self.sick_auths - self.drained_auths
            others = sorted(usable - {self.auth_of[agent]})
            if auth == f"auth-{self.auth_of[agent]}" and others:
                self.auth_of[agent] = others[0]
        self.leaving_auth.clear()

    def table(self, now: float) -> FleetTable:
        """As the reader has it."""
        ids = tuple(self.agents)
        count = len(ids)
        heartbeats = np.zeros(count, columns.HEARTBEAT)
        heartbeats["desired"] = self.desired
        verdicts = np.zeros(count, columns.VERDICT)
        verdicts["cause"] = NO_CAUSE
        verdicts["state"] = [
            State.RETIRED
            if one in self.retired
            else State.STRANDED
            if one in self.stranded
            else State.WORKING
            if one in self.working
            else State.HEALTHY
            for one in ids
        ]
        tunnels = [(index, proxy) for index, one in enumerate(ids) for proxy in sorted(self.agents[one])]
        views = {n: self._view(n) for n in range(self.proxies)}
        views |= {_FIRST_AUTH + n: self._auth_view(n) for n in range(self.auths)}
        memory = columns.empty_memory(count)
        for index, agent in enumerate(ids):
            if agent in self.auth_of:
                memory["last_auth"][index] = _FIRST_AUTH + self.auth_of[agent]
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
            tunnel_agents=np.array([agent for agent, _ in tunnels], np.uint32),
            tunnel_proxies=np.array([proxy for _, proxy in tunnels], np.uint16),
            fleet=FleetEvidence(cluster="default", instances={n: view.facts for n, view in views.items()}),
        )

    def _view(self, number: int) -> InstanceView:
        facts = InstanceFacts(
            f"proxy-{number}", number, InstanceKind.PROXY, f"proxy-{number}", "127.0.0.1:1",
            generation=0 if number in self.old else 1,
        )  # fmt: skip
        state = InstanceState.EXPIRED if number in self.sick else InstanceState.OK
        return InstanceView(facts, state, "", 0, {})

    def _auth_view(self, number: int) -> InstanceView:
        facts = InstanceFacts(
            f"auth-{number}", _FIRST_AUTH + number, InstanceKind.AUTH, f"auth-{number}", "127.0.0.1:1"
        )
        state = InstanceState.UNHEALTHY if number in self.sick_auths else InstanceState.OK
        drained = DrainRequest("full", 0.0) if number in self.drained_auths else None
        agents = sum(auth == number for auth in self.auth_of.values())
        return InstanceView(facts, state, "", agents, {}, drain_request=drained)
