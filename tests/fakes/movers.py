"""A fleet whose agents do as they are told, for campaigns: proxies, who holds a tunnel to which, and who was asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from fleet.domain import columns
from fleet.domain.evidence import FleetEvidence
from fleet.domain.instances import InstanceFacts, InstanceKind, InstanceState
from fleet.domain.verdicts import NO_CAUSE, State
from fleet.domain.views import FleetTable, InstanceView
from fleet.state import StateUnavailable
from fleet.transport.admin import Advised, Unreachable


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

    def advise(self, proxy_id: str, advisory_id: str, reason: str, agents: Collection[str]) -> Advised:
        """See campaigns_run.Advisor; as a real proxy does it."""
        proxy = int(proxy_id.removeprefix("proxy-"))
        self.calls += 1
        if proxy in self.unreachable:
            raise Unreachable(f"{proxy_id} does not answer")
        here = [one for one in agents if proxy in self.agents[one]]
        fresh = [one for one in here if (proxy, advisory_id, one) not in self.advised]
        for one in fresh:
            self.advised.add((proxy, advisory_id, one))
            self.asked[one] += 1
            if one not in self.stubborn | self.nowhere:
                self.pending.append((one, proxy))
        absent = tuple(one for one in agents if one not in here)
        return Advised(proxy_id, len(fresh), len(here) - len(fresh), 0, len(absent), 0, (), absent)

    def look(self, proxy_id: str, advisory_id: str, agents: Collection[str]) -> Advised:
        """See campaigns_run.Advisor."""
        proxy = int(proxy_id.removeprefix("proxy-"))
        if proxy in self.unreachable:
            raise Unreachable(f"{proxy_id} does not answer")
        here = [one for one in agents if (proxy, advisory_id, one) in self.advised]
        staying = tuple(one for one in here if one in self.nowhere)
        return Advised(proxy_id, 0, len(here), 0, 0, len(staying), staying)

    def expect_reconnects(self, cluster: str, until: Mapping[str, float]) -> None:
        """See working.Marks."""
        if self.away:
            raise StateUnavailable("Redis does not answer")
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
            memory=columns.empty_memory(count),
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
