"""A simulated fleet: its instances and agents, when heartbeats are due, which tunnels are open.

docs/reference/simulated-fleet.md.

No I/O: the time and random numbers are arguments. Every process of one simulation holds the same fleet, made from the
same seed, and receives the same faults in the same order, so all of them agree without further communication.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt

from fleet.nodes.simulation.fault_script import SimulatedFault, SimulatedFaultAction
from fleet.nodes.simulation.home_proxies import Homes, assign_homes
from fleet.protocol.recovery.feed import RevisionFeed
from fleet.vocabulary.instances import InstanceKind

#: Seconds until an agent repeats a heartbeat that could not be written.
_HEARTBEAT_RETRY_SECONDS = 5.0
#: Seconds until an advised agent dials, and again until it closes its old tunnel.
_MOVE_STEP_SECONDS = 0.5
#: Seconds over which agents that lost a tunnel come back.
_REOPEN_SPREAD_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class SimulationShape:
    """Size and behavior of a simulated fleet. Durations in seconds."""

    agents: int = 1000
    proxies: int = 10
    auths: int = 2
    #: Desired tunnels per agent.
    connections: int = 2
    agent_ttl: float = 600.0
    instance_ttl: float = 600.0
    #: Share of agents whose tunnel is closed and opened again each second.
    churn: float = 0.0
    #: Seconds until agents of a killed or frozen proxy open a tunnel to another one; None: they stay.
    reconnect_after: float | None = None
    #: Share of agents with the policy `reconnect`; the others have `pick_first`.
    reconnect_share: float = 0.8
    #: Number of agents by home proxy. Proxies that are not named share the rest evenly.
    homes: Homes = ()

    @property
    def tunnels_per_agent(self) -> int:
        """Number of tunnels per agent that the number of proxies allows."""
        return min(self.connections, self.proxies)


@dataclass(frozen=True, slots=True)
class OpenTunnel:
    """A tunnel of an agent, as its proxy lists it."""

    agent: int
    opened_at: float


@dataclass(slots=True)
class InstanceModel:
    """A simulated auth or proxy and its current faults."""

    id: str
    kind: InstanceKind
    name: str
    #: Index among the auths, or among the proxies.
    index: int
    expires_at: float
    heartbeat_due_at: float
    #: Number of starts of the simulated process: the feed has a new epoch after each.
    start_count: int
    #: Tunnels that a proxy lists, by agent id.
    tunnels: RevisionFeed[OpenTunnel]
    is_frozen: bool = False
    is_killed: bool = False
    is_unhealthy: bool = False
    is_expiring: bool = False

    @property
    def can_write(self) -> bool:
        """Whether the instance can write to the backend: its own resource and, as an auth, agents' heartbeats."""
        return not (self.is_frozen or self.is_killed or self.is_expiring)


class SimulatedFleet:
    """The whole simulated fleet at one moment. Only `tick`, `apply_fault` and moves of agents change it."""

    def __init__(self, shape: SimulationShape, chance: Random, now: float) -> None:
        self.shape = shape
        self.started_at = now
        self.epoch = f"{chance.getrandbits(64):016x}"
        # Faults use a random stream of their own, because heartbeats use theirs at different moments in each process.
        self._fault_random = Random(chance.getrandbits(64))
        self._churn_seed = chance.getrandbits(64)
        self._last_churn_at = now
        self._heartbeat_random = np.random.default_rng(chance.getrandbits(64))
        self.auths = [
            self._create_instance(InstanceKind.AUTH, index, chance, now) for index in range(shape.auths)
        ]
        self.proxies = [
            self._create_instance(InstanceKind.PROXY, index, chance, now) for index in range(shape.proxies)
        ]
        #: (time, proxy, agent) of tunnels that will open.
        self._pending_tunnel_opens: list[tuple[float, int, int]] = []
        #: (time, old proxy, agent, new proxy) of tunnels that close once the new one is open.
        self._pending_tunnel_closes: list[tuple[float, int, int, int]] = []
        #: The fewest open tunnels of an agent when it closed one on advice.
        self.min_tunnel_count = shape.tunnels_per_agent
        #: By agent: name of the instance whose fault took its tunnels, or made it ignore advice; for `heal`.
        self._fault_instance_by_agent: dict[int, str] = {}
        self._ignore_instance_by_agent: dict[int, str] = {}
        self._create_agents(chance, now)

    def _create_instance(self, kind: InstanceKind, index: int, chance: Random, now: float) -> InstanceModel:
        ttl = self.shape.instance_ttl
        age = chance.uniform(0, ttl / 2)
        return InstanceModel(
            id=str(uuid.UUID(int=chance.getrandbits(128), version=4)),
            kind=kind,
            name=f"{kind}-{index + 1}",
            index=index,
            expires_at=now - age + ttl,
            heartbeat_due_at=now - age + self._heartbeat_period(ttl, chance.random()),
            start_count=1,
            tunnels=RevisionFeed(f"{self.epoch}-1"),
        )

    @staticmethod
    def _heartbeat_period(ttl: float, draw: float) -> float:
        """Return the seconds to the next heartbeat: TTL/2 + U[0, TTL/10), as in Teleport's announce."""
        return ttl / 2 + draw * ttl / 10

    def _create_agents(self, chance: Random, now: float) -> None:
        """Create the agents: home proxies in turn, everything else at random. Raises HomesError."""
        count, ttl = self.shape.agents, self.shape.agent_ttl
        self.ids = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(count)]
        self.names = [f"agent-{number:06d}" for number in range(1, count + 1)]
        draws = np.random.default_rng(chance.getrandbits(64))
        self.auth_by_agent = draws.integers(0, self.shape.auths, count).astype(np.int32)
        self.reconnect_mask = draws.random(count) < self.shape.reconnect_share
        self.policy_read_at = now - draws.uniform(0, 86_400, count)
        age = draws.uniform(0, ttl / 2, count)
        self.expires_at = now - age + ttl
        self.heartbeat_due_at = now - age + ttl / 2 + draws.uniform(0, ttl / 10, count)
        self.heartbeat_mask = np.ones(count, dtype=bool)
        self.revisions = draws.permutation(count).astype(np.int64) + 1
        self.revision = count
        #: Proxies of each agent; the first one is its home.
        self.proxies_by_agent = np.zeros((count, self.shape.tunnels_per_agent), dtype=np.int32)
        for agent, home in enumerate(assign_homes(count, self.shape.proxies, self.shape.homes)):
            offsets = chance.sample(range(self.shape.proxies - 1), self.shape.tunnels_per_agent - 1)
            self.proxies_by_agent[agent] = [
                home,
                *((home + 1 + offset) % self.shape.proxies for offset in offsets),
            ]
            opened_at = now - chance.uniform(60, 86_400)
            for proxy in self.proxies_by_agent[agent]:
                self._open_tunnel(agent, int(proxy), opened_at)

    @property
    def instances(self) -> Iterator[InstanceModel]:
        """All instances: auths, then proxies."""
        yield from self.auths
        yield from self.proxies

    # Passage of time.

    def tick(self, now: float) -> None:
        """Do everything that is due at `now`."""
        self._renew_instances(now)
        self._send_heartbeats(np.nonzero(self.heartbeat_mask & (self.heartbeat_due_at <= now))[0], now)
        self._open_due_tunnels(now)
        self._close_due_tunnels(now)
        self._churn(now)

    def _renew_instances(self, now: float) -> None:
        ttl = self.shape.instance_ttl
        for instance in self.instances:
            if instance.heartbeat_due_at <= now and instance.can_write:
                instance.expires_at = now + ttl
                instance.heartbeat_due_at = now + self._heartbeat_period(
                    ttl, float(self._heartbeat_random.random())
                )

    def _send_heartbeats(self, due_agents: npt.NDArray[np.int64], now: float) -> None:
        """Renew the agents that are due, each through its auth, and move those whose policy requires it."""
        if not due_agents.size:
            return
        healthy_auths = [auth.index for auth in self.auths if auth.can_write and not auth.is_unhealthy]
        for auth in self.auths:
            agents = due_agents[self.auth_by_agent[due_agents] == auth.index]
            if auth.can_write and not auth.is_unhealthy:
                self._renew_agents(agents, now)
                continue
            # A dead connection moves every agent. An unhealthy auth moves only agents with the policy `reconnect`.
            moves = np.full(agents.size, auth.is_killed) | self.reconnect_mask[agents]
            if not healthy_auths:
                moves[:] = False
            movers, stayers = agents[moves], agents[~moves]
            if movers.size:
                self.auth_by_agent[movers] = self._heartbeat_random.choice(healthy_auths, movers.size)
                self.policy_read_at[movers] = now
                self._renew_agents(movers, now)
            if auth.can_write:
                self._renew_agents(stayers, now)
            else:
                self.heartbeat_due_at[stayers] = (
                    now
                    + _HEARTBEAT_RETRY_SECONDS
                    + self._heartbeat_random.uniform(0, _HEARTBEAT_RETRY_SECONDS / 10, stayers.size)
                )

    def _renew_agents(self, agents: npt.NDArray[np.int64], now: float) -> None:
        ttl = self.shape.agent_ttl
        self.expires_at[agents] = now + ttl
        self.heartbeat_due_at[agents] = (
            now + ttl / 2 + self._heartbeat_random.uniform(0, ttl / 10, agents.size)
        )
        self._bump_revisions(agents)

    def _bump_revisions(self, agents: npt.NDArray[np.int64]) -> None:
        """Give each agent a new revision of its own."""
        self.revisions[agents] = self.revision + 1 + np.arange(agents.size)
        self.revision += agents.size

    def _open_due_tunnels(self, now: float) -> None:
        # One sort for all: popping 100,000 entries off a heap, when 100 proxies are healed, takes ten times as long.
        due = sorted(entry for entry in self._pending_tunnel_opens if entry[0] <= now)
        if not due:
            return
        self._pending_tunnel_opens = [entry for entry in self._pending_tunnel_opens if entry[0] > now]
        for at, proxy, agent in due:
            if (
                not self.proxies[proxy].is_killed
                and agent not in self._fault_instance_by_agent
                and proxy in self._proxies_of(agent)
            ):
                self._open_tunnel(agent, proxy, at)

    def move_tunnel(self, agent: int, from_proxy: int, to_proxy: int, now: float) -> None:
        """Have an agent follow advice: it opens a tunnel to another proxy first, then closes the old one."""
        proxies = self.proxies_by_agent[agent]
        if from_proxy not in proxies or to_proxy in proxies or agent in self._fault_instance_by_agent:
            return
        proxies[proxies == from_proxy] = to_proxy
        self._schedule_open(agent, to_proxy, now + _MOVE_STEP_SECONDS)
        self._pending_tunnel_closes.append((now + 2 * _MOVE_STEP_SECONDS, from_proxy, agent, to_proxy))

    def move_to_auth(self, agent: int, from_auth: int, to_auth: int, now: float) -> None:
        """Have an agent follow advice to connect to another auth, which accepts a heartbeat at once."""
        if self.auth_by_agent[agent] != from_auth or agent in self._fault_instance_by_agent:
            return
        self.auth_by_agent[agent], self.policy_read_at[agent] = to_auth, now
        self._renew_agents(np.array([agent]), now)

    def ignores_advice(self, agent: int) -> bool:
        """Return whether an agent ignores advice."""
        return agent in self._ignore_instance_by_agent

    def _close_due_tunnels(self, now: float) -> None:
        due = [entry for entry in self._pending_tunnel_closes if entry[0] <= now]
        self._pending_tunnel_closes = [entry for entry in self._pending_tunnel_closes if entry[0] > now]
        for entry in due:
            _, from_proxy, agent, to_proxy = entry
            if (
                agent not in self._fault_instance_by_agent
                and to_proxy in self._proxies_of(agent)
                and not self._has_tunnel(agent, to_proxy)
            ):
                self._pending_tunnel_closes.append(entry)  # the new tunnel is not open yet
            elif from_proxy not in self._proxies_of(agent):
                self._close_tunnel(agent, from_proxy)
                open_now = sum(self._has_tunnel(agent, proxy) for proxy in self._proxies_of(agent))
                self.min_tunnel_count = min(self.min_tunnel_count, open_now)

    def _churn(self, now: float) -> None:
        """Once a second, close some tunnels and open them again; the same ones in every process."""
        while self.shape.churn and now - self._last_churn_at >= 1.0:
            self._last_churn_at += 1.0
            draws = np.random.default_rng([self._churn_seed, int(self._last_churn_at - self.started_at)])
            count = draws.binomial(self.shape.agents, min(self.shape.churn, 1.0))
            for agent in draws.integers(0, self.shape.agents, count):
                home = int(self.proxies_by_agent[agent][0])
                if self._has_tunnel(int(agent), home):
                    self._close_tunnel(int(agent), home)
                    self._schedule_open(int(agent), home, self._last_churn_at + 1.0)

    def _open_tunnel(self, agent: int, proxy: int, at: float) -> None:
        self.proxies[proxy].tunnels.put(self.ids[agent], OpenTunnel(agent, at))

    def _close_tunnel(self, agent: int, proxy: int) -> None:
        self.proxies[proxy].tunnels.remove(self.ids[agent])

    def _has_tunnel(self, agent: int, proxy: int) -> bool:
        return self.proxies[proxy].tunnels.get(self.ids[agent]) is not None

    def _schedule_open(self, agent: int, proxy: int, at: float) -> None:
        self._pending_tunnel_opens.append((at, proxy, agent))

    # Faults.

    def apply_fault(self, fault: SimulatedFault, now: float) -> list[InstanceModel]:
        """Inject a fault and return the affected instances. Raises SimulatedFaultError if none matches."""
        names = set(fault.match_names(instance.name for instance in self.instances))
        affected_instances = [instance for instance in self.instances if instance.name in names]
        for instance in affected_instances:
            self._apply_to(fault, instance, now)
        return affected_instances

    def _apply_to(self, fault: SimulatedFault, instance: InstanceModel, now: float) -> None:
        match fault.action:
            case SimulatedFaultAction.FREEZE:
                instance.is_frozen = True
                self._move_agents_away(instance, now)
            case SimulatedFaultAction.RESUME:
                instance.is_frozen = False
            case SimulatedFaultAction.KILL:
                self._kill(instance, now)
            case SimulatedFaultAction.UNHEALTHY:
                instance.is_unhealthy = True
            case SimulatedFaultAction.EXPIRE:
                instance.is_expiring = True
            case SimulatedFaultAction.BLOCK_BACKEND:
                instance.is_unhealthy = instance.is_expiring = True
            case SimulatedFaultAction.STRAND | SimulatedFaultAction.OFFLINE:
                self._disconnect_agents(instance, fault)
            case SimulatedFaultAction.IGNORE_ADVICE:
                agents = [
                    agent
                    for agent in self._agents_of(instance)
                    if agent not in self._ignore_instance_by_agent
                ]
                for agent in self._fault_random.sample(agents, min(fault.agent_count, len(agents))):
                    self._ignore_instance_by_agent[agent] = instance.name
            case SimulatedFaultAction.HEAL:
                self._heal(instance, now)

    def _agents_of(self, proxy: InstanceModel) -> list[int]:
        if proxy.kind is not InstanceKind.PROXY:
            return []
        return [int(agent) for agent in np.nonzero((self.proxies_by_agent == proxy.index).any(axis=1))[0]]

    def _kill(self, instance: InstanceModel, now: float) -> None:
        instance.is_killed, instance.is_frozen = True, False
        instance.start_count += 1
        instance.tunnels = RevisionFeed(f"{self.epoch}-{instance.start_count}")
        self._move_agents_away(instance, now)

    def _move_agents_away(self, proxy: InstanceModel, now: float) -> None:
        """Have a proxy's agents connect to other proxies, if the simulation is configured so."""
        if self.shape.reconnect_after is None or proxy.kind is not InstanceKind.PROXY:
            return
        available_indexes = [
            candidate.index for candidate in self.proxies if not (candidate.is_frozen or candidate.is_killed)
        ]
        for agent in self._agents_of(proxy):
            free = [index for index in available_indexes if index not in self.proxies_by_agent[agent]]
            if not free or agent in self._fault_instance_by_agent:
                continue
            target = self._fault_random.choice(free)
            self.proxies_by_agent[agent][self.proxies_by_agent[agent] == proxy.index] = target
            self._close_tunnel(agent, proxy.index)
            delay = self.shape.reconnect_after * self._fault_random.uniform(0.5, 1.5)
            self._schedule_open(agent, target, now + delay)

    def _disconnect_agents(self, proxy: InstanceModel, fault: SimulatedFault) -> None:
        """Close every tunnel of some of a proxy's agents; if they go offline, stop their heartbeats too."""
        candidates = [agent for agent in self._agents_of(proxy) if agent not in self._fault_instance_by_agent]
        for agent in self._fault_random.sample(candidates, min(fault.agent_count, len(candidates))):
            self._fault_instance_by_agent[agent] = proxy.name
            for index in self._proxies_of(agent):
                self._close_tunnel(agent, index)
            if fault.action is SimulatedFaultAction.OFFLINE:
                self.heartbeat_mask[agent] = False

    def _heal(self, instance: InstanceModel, now: float) -> None:
        revived_agents = self._agents_of(instance) if instance.is_killed else []
        instance.is_frozen = instance.is_killed = instance.is_unhealthy = instance.is_expiring = False
        instance.heartbeat_due_at = now
        self._ignore_instance_by_agent = {
            agent: name for agent, name in self._ignore_instance_by_agent.items() if name != instance.name
        }
        restored_agents = [
            agent for agent, name in self._fault_instance_by_agent.items() if name == instance.name
        ]
        for agent in restored_agents:
            del self._fault_instance_by_agent[agent]
            if not self.heartbeat_mask[agent]:
                self.heartbeat_mask[agent] = True
                self.heartbeat_due_at[agent] = now
        tunnels = {(agent, instance.index) for agent in revived_agents}
        tunnels.update((agent, index) for agent in restored_agents for index in self._proxies_of(agent))
        self._reopen(tunnels, now)

    def _reopen(self, tunnels: Iterable[tuple[int, int]], now: float) -> None:
        """Open those (agent, proxy) tunnels that are not open."""
        for agent, index in sorted(tunnels):
            # Draw in any case: which tunnels are open may differ between processes, the random numbers must not.
            at = now + self._fault_random.uniform(0, _REOPEN_SPREAD_SECONDS)
            if not self._has_tunnel(agent, index):
                self._schedule_open(agent, index, at)

    def _proxies_of(self, agent: int) -> list[int]:
        indices: list[int] = self.proxies_by_agent[agent].tolist()
        return indices

    # State for the services.

    def claimed_ids_of(self, agent: int) -> list[str]:
        """Return the ids of the proxies that this agent has a tunnel to."""
        return [self.proxies[index].id for index in self._proxies_of(agent) if self._has_tunnel(agent, index)]

    def list_agents_since(self, revision: int, now: float, limit: int) -> tuple[npt.NDArray[np.int64], bool]:
        """Return unexpired agents with a revision after `revision`, by revision, and whether there are more."""
        newer = np.nonzero((self.revisions > revision) & (self.expires_at > now))[0]
        if newer.size > limit:
            newer = newer[np.argpartition(self.revisions[newer], limit)[: limit + 1]]
        newer = newer[np.argsort(self.revisions[newer])]
        return newer[:limit], bool(newer.size > limit)

    def filter_present(self, instances: Iterable[InstanceModel], now: float) -> list[InstanceModel]:
        """Return the instances that have not expired."""
        return [instance for instance in instances if instance.expires_at > now]
