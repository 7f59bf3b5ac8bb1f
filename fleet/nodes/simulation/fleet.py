"""An invented fleet: who is in it, when heartbeats are due, which tunnels are open. docs/simulate.md.

No I/O: `now` and chance come in as arguments. Every process of one simulation holds the same fleet, made
from the same seed, and is given the same faults in the same order, so they agree without talking.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt

from fleet.nodes.simulation.fault_script import Action, Fault
from fleet.nodes.simulation.home_proxies import Homes, deal
from fleet.protocol.recovery.feed import Feed
from fleet.vocabulary.instances import InstanceKind

#: An agent whose heartbeat could not be written tries again after this, seconds.
_RETRY = 5.0
#: An agent that was advised dials within so many seconds, and lets its old tunnel go after as many.
_MOVES_WITHIN = 0.5
#: Agents that lost a tunnel come back over this many seconds, not all at once.
_SPREAD = 2.0


@dataclass(frozen=True, slots=True)
class Shape:
    """How large, and how it breathes. Durations in seconds."""

    agents: int = 1000
    proxies: int = 10
    auths: int = 2
    #: Tunnels of each agent.
    connections: int = 2
    agent_ttl: float = 600.0
    instance_ttl: float = 600.0
    #: Share of tunnels that are closed and opened again each second.
    churn: float = 0.0
    #: Agents of a killed or frozen proxy open a tunnel to another one after this; None: they stay.
    reconnect_after: float | None = None
    #: Share of agents whose policy is `reconnect`; the others run `pick_first`.
    reconnecting: float = 0.8
    #: How many agents have their home on a proxy; those that are not named share the others evenly.
    homes: Homes = ()

    @property
    def tunnels_each(self) -> int:
        """Tunnels each agent really has."""
        return min(self.connections, self.proxies)


@dataclass(frozen=True, slots=True)
class Opened:
    """A tunnel of an agent, as its proxy knows it."""

    agent: int
    at: float


@dataclass(slots=True)
class Instance:
    """An auth or a proxy and what was done to it."""

    id: str
    kind: InstanceKind
    name: str
    #: Its place among the auths, or among the proxies.
    index: int
    expires_at: float
    due_at: float
    #: Starts of the process it stands for: a feed of another start has another epoch.
    boots: int
    #: What a proxy reports, by agent id.
    tunnels: Feed[Opened]
    frozen: bool = False
    killed: bool = False
    unhealthy: bool = False
    expiring: bool = False

    @property
    def writes(self) -> bool:
        """It can write to the backend: its own resource and, as an auth, the heartbeats of agents."""
        return not (self.frozen or self.killed or self.expiring)


class Fleet:
    """The whole invented fleet at one moment; `tick` and `apply` are the only ways it changes."""

    def __init__(self, shape: Shape, chance: Random, now: float) -> None:
        self.shape = shape
        self.started_at = now
        self.epoch = f"{chance.getrandbits(64):016x}"
        # Faults draw from a stream of their own: heartbeats draw at other moments in other processes.
        self._fate = Random(chance.getrandbits(64))
        self._churn_seed = chance.getrandbits(64)
        self._churned_to = now
        self._noise = np.random.default_rng(chance.getrandbits(64))
        self.auths = [self._instance(InstanceKind.AUTH, index, chance, now) for index in range(shape.auths)]
        self.proxies = [
            self._instance(InstanceKind.PROXY, index, chance, now) for index in range(shape.proxies)
        ]
        #: (when, proxy, agent) of tunnels that are about to open.
        self._opening: list[tuple[float, int, int]] = []
        #: (when, the proxy they leave, agent, the one they went to) of tunnels that close when another is open.
        self._leaving: list[tuple[float, int, int, int]] = []
        #: The fewest tunnels an agent had when it let one go on advice.
        self.fewest = shape.tunnels_each
        #: What took an agent off, or made it deaf: the instance's name, for `heal`.
        self._taken: dict[int, str] = {}
        self._deaf: dict[int, str] = {}
        self._enrol(chance, now)

    def _instance(self, kind: InstanceKind, index: int, chance: Random, now: float) -> Instance:
        ttl = self.shape.instance_ttl
        age = chance.uniform(0, ttl / 2)
        return Instance(
            id=str(uuid.UUID(int=chance.getrandbits(128), version=4)),
            kind=kind,
            name=f"{kind}-{index + 1}",
            index=index,
            expires_at=now - age + ttl,
            due_at=now - age + self._period(ttl, chance.random()),
            boots=1,
            tunnels=Feed(f"{self.epoch}-1"),
        )

    @staticmethod
    def _period(ttl: float, draw: float) -> float:
        """Seconds to the next heartbeat: TTL/2 + U[0, TTL/10), facts of Teleport's announce."""
        return ttl / 2 + draw * ttl / 10

    def _enrol(self, chance: Random, now: float) -> None:
        """Invent the agents: homes in turn, everything else by chance. Raises HomesError."""
        count, ttl = self.shape.agents, self.shape.agent_ttl
        self.ids = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(count)]
        self.names = [f"agent-{number:06d}" for number in range(1, count + 1)]
        draws = np.random.default_rng(chance.getrandbits(64))
        self.auth = draws.integers(0, self.shape.auths, count).astype(np.int32)
        self.reconnecting = draws.random(count) < self.shape.reconnecting
        self.read_at = now - draws.uniform(0, 86_400, count)
        age = draws.uniform(0, ttl / 2, count)
        self.expires_at = now - age + ttl
        self.due_at = now - age + ttl / 2 + draws.uniform(0, ttl / 10, count)
        self.beating = np.ones(count, dtype=bool)
        self.revisions = draws.permutation(count).astype(np.int64) + 1
        self.revision = count
        #: Proxies of each agent; the first place is its home.
        self.places = np.zeros((count, self.shape.tunnels_each), dtype=np.int32)
        for agent, home in enumerate(deal(count, self.shape.proxies, self.shape.homes)):
            others = chance.sample(range(self.shape.proxies - 1), self.shape.tunnels_each - 1)
            self.places[agent] = [home, *((home + 1 + other) % self.shape.proxies for other in others)]
            opened_at = now - chance.uniform(60, 86_400)
            for proxy in self.places[agent]:
                self._open(agent, int(proxy), opened_at)

    @property
    def instances(self) -> Iterator[Instance]:
        """Auths, then proxies."""
        yield from self.auths
        yield from self.proxies

    # Time passes.

    def tick(self, now: float) -> None:
        """Do everything that is due."""
        self._renew_instances(now)
        self._heartbeat(np.nonzero(self.beating & (self.due_at <= now))[0], now)
        self._open_due(now)
        self._let_go(now)
        self._churn(now)

    def _renew_instances(self, now: float) -> None:
        ttl = self.shape.instance_ttl
        for instance in self.instances:
            if instance.due_at <= now and instance.writes:
                instance.expires_at = now + ttl
                instance.due_at = now + self._period(ttl, float(self._noise.random()))

    def _heartbeat(self, due: npt.NDArray[np.int64], now: float) -> None:
        """Renew the agents that are due, each through its auth; move those whose policy moves them."""
        if not due.size:
            return
        good = [auth.index for auth in self.auths if auth.writes and not auth.unhealthy]
        for auth in self.auths:
            mine = due[self.auth[due] == auth.index]
            if auth.writes and not auth.unhealthy:
                self._renew(mine, now)
                continue
            # A dead connection moves every agent; a sick auth that holds it moves only policy `reconnect`.
            moves = np.full(mine.size, auth.killed) | self.reconnecting[mine]
            if not good:
                moves[:] = False
            movers, stayers = mine[moves], mine[~moves]
            if movers.size:
                self.auth[movers] = self._noise.choice(good, movers.size)
                self.read_at[movers] = now
                self._renew(movers, now)
            if auth.writes:
                self._renew(stayers, now)
            else:
                self.due_at[stayers] = now + _RETRY + self._noise.uniform(0, _RETRY / 10, stayers.size)

    def _renew(self, agents: npt.NDArray[np.int64], now: float) -> None:
        ttl = self.shape.agent_ttl
        self.expires_at[agents] = now + ttl
        self.due_at[agents] = now + ttl / 2 + self._noise.uniform(0, ttl / 10, agents.size)
        self._touch(agents)

    def _touch(self, agents: npt.NDArray[np.int64]) -> None:
        """Give each a revision of its own, newer than any."""
        self.revisions[agents] = self.revision + 1 + np.arange(agents.size)
        self.revision += agents.size

    def _open_due(self, now: float) -> None:
        # One sort for all: popping 100,000 off a heap, when a hundred proxies are healed, takes ten times as long.
        due = sorted(entry for entry in self._opening if entry[0] <= now)
        if not due:
            return
        self._opening = [entry for entry in self._opening if entry[0] > now]
        for at, proxy, agent in due:
            if (
                not self.proxies[proxy].killed
                and agent not in self._taken
                and proxy in self._proxies_of(agent)
            ):
                self._open(agent, proxy, at)

    def move(self, agent: int, leaves: int, to: int, now: float) -> None:
        """Have an agent follow advice: a tunnel to another proxy first, then it lets the old one go."""
        mine = self.places[agent]
        if leaves not in mine or to in mine or agent in self._taken:
            return
        mine[mine == leaves] = to
        self._open_later(agent, to, now + _MOVES_WITHIN)
        self._leaving.append((now + 2 * _MOVES_WITHIN, leaves, agent, to))

    def move_to_auth(self, agent: int, leaves: int, to: int, now: float) -> None:
        """Have an agent follow advice to connect to another auth, which takes a heartbeat at once."""
        if self.auth[agent] != leaves or agent in self._taken:
            return
        self.auth[agent], self.read_at[agent] = to, now
        self._renew(np.array([agent]), now)

    def is_deaf(self, agent: int) -> bool:
        """Whether it takes no advice."""
        return agent in self._deaf

    def _let_go(self, now: float) -> None:
        due = [entry for entry in self._leaving if entry[0] <= now]
        self._leaving = [entry for entry in self._leaving if entry[0] > now]
        for entry in due:
            _, leaves, agent, to = entry
            if agent not in self._taken and to in self._proxies_of(agent) and not self._has(agent, to):
                self._leaving.append(entry)  # its new one is not open yet
            elif leaves not in self._proxies_of(agent):
                self._close(agent, leaves)
                open_now = sum(self._has(agent, proxy) for proxy in self._proxies_of(agent))
                self.fewest = min(self.fewest, open_now)

    def _churn(self, now: float) -> None:
        """Once a second close some tunnels and open them again, the same ones in every process."""
        while self.shape.churn and now - self._churned_to >= 1.0:
            self._churned_to += 1.0
            draws = np.random.default_rng([self._churn_seed, int(self._churned_to - self.started_at)])
            count = draws.binomial(self.shape.agents, min(self.shape.churn, 1.0))
            for agent in draws.integers(0, self.shape.agents, count):
                home = int(self.places[agent][0])
                if self._has(int(agent), home):
                    self._close(int(agent), home)
                    self._open_later(int(agent), home, self._churned_to + 1.0)

    def _open(self, agent: int, proxy: int, at: float) -> None:
        self.proxies[proxy].tunnels.put(self.ids[agent], Opened(agent, at))

    def _close(self, agent: int, proxy: int) -> None:
        self.proxies[proxy].tunnels.remove(self.ids[agent])

    def _has(self, agent: int, proxy: int) -> bool:
        return self.proxies[proxy].tunnels.get(self.ids[agent]) is not None

    def _open_later(self, agent: int, proxy: int, at: float) -> None:
        self._opening.append((at, proxy, agent))

    # Things are done to it.

    def apply(self, fault: Fault, now: float) -> list[Instance]:
        """Do `fault` and return the instances it was done to. Raises FaultError when it names none."""
        names = set(fault.names(instance.name for instance in self.instances))
        concerned = [instance for instance in self.instances if instance.name in names]
        for instance in concerned:
            self._do(fault, instance, now)
        return concerned

    def _do(self, fault: Fault, instance: Instance, now: float) -> None:
        match fault.action:
            case Action.FREEZE:
                instance.frozen = True
                self._move_away(instance, now)
            case Action.THAW:
                instance.frozen = False
            case Action.KILL:
                self._kill(instance, now)
            case Action.UNHEALTHY:
                instance.unhealthy = True
            case Action.EXPIRE:
                instance.expiring = True
            case Action.CUT_BACKEND:
                instance.unhealthy = instance.expiring = True
            case Action.STRAND | Action.OFFLINE:
                self._take(instance, fault)
            case Action.DEAF:
                mine = [agent for agent in self._agents_of(instance) if agent not in self._deaf]
                for agent in self._fate.sample(mine, min(fault.count, len(mine))):
                    self._deaf[agent] = instance.name
            case Action.HEAL:
                self._heal(instance, now)

    def _agents_of(self, proxy: Instance) -> list[int]:
        if proxy.kind is not InstanceKind.PROXY:
            return []
        return [int(agent) for agent in np.nonzero((self.places == proxy.index).any(axis=1))[0]]

    def _kill(self, instance: Instance, now: float) -> None:
        instance.killed, instance.frozen = True, False
        instance.boots += 1
        instance.tunnels = Feed(f"{self.epoch}-{instance.boots}")
        self._move_away(instance, now)

    def _move_away(self, proxy: Instance, now: float) -> None:
        """Let its agents find another proxy, if the fleet does that."""
        if self.shape.reconnect_after is None or proxy.kind is not InstanceKind.PROXY:
            return
        able = [other.index for other in self.proxies if not (other.frozen or other.killed)]
        for agent in self._agents_of(proxy):
            free = [index for index in able if index not in self.places[agent]]
            if not free or agent in self._taken:
                continue
            target = self._fate.choice(free)
            self.places[agent][self.places[agent] == proxy.index] = target
            self._close(agent, proxy.index)
            delay = self.shape.reconnect_after * self._fate.uniform(0.5, 1.5)
            self._open_later(agent, target, now + delay)

    def _take(self, proxy: Instance, fault: Fault) -> None:
        """Close every tunnel of some of its agents; stop their heartbeats too when they go offline."""
        candidates = [agent for agent in self._agents_of(proxy) if agent not in self._taken]
        for agent in self._fate.sample(candidates, min(fault.count, len(candidates))):
            self._taken[agent] = proxy.name
            for index in self._proxies_of(agent):
                self._close(agent, index)
            if fault.action is Action.OFFLINE:
                self.beating[agent] = False

    def _heal(self, instance: Instance, now: float) -> None:
        revived = self._agents_of(instance) if instance.killed else []
        instance.frozen = instance.killed = instance.unhealthy = instance.expiring = False
        instance.due_at = now
        self._deaf = {agent: name for agent, name in self._deaf.items() if name != instance.name}
        back = [agent for agent, name in self._taken.items() if name == instance.name]
        for agent in back:
            del self._taken[agent]
            if not self.beating[agent]:
                self.beating[agent] = True
                self.due_at[agent] = now
        tunnels = {(agent, instance.index) for agent in revived}
        tunnels.update((agent, index) for agent in back for index in self._proxies_of(agent))
        self._reopen(tunnels, now)

    def _reopen(self, tunnels: Iterable[tuple[int, int]], now: float) -> None:
        """Open those (agent, proxy) that are not open."""
        for agent, index in sorted(tunnels):
            # Drawn in any case: what is open differs between processes by the moment, fate must not.
            at = now + self._fate.uniform(0, _SPREAD)
            if not self._has(agent, index):
                self._open_later(agent, index, at)

    def _proxies_of(self, agent: int) -> list[int]:
        indices: list[int] = self.places[agent].tolist()
        return indices

    # What it says.

    def claimed(self, agent: int) -> list[str]:
        """Ids of the proxies this agent believes it has a tunnel to."""
        return [self.proxies[index].id for index in self._proxies_of(agent) if self._has(agent, index)]

    def agents_since(self, revision: int, now: float, limit: int) -> tuple[npt.NDArray[np.int64], bool]:
        """Agents whose unexpired resource is newer than `revision`, in order of revision, and whether more are."""
        newer = np.nonzero((self.revisions > revision) & (self.expires_at > now))[0]
        if newer.size > limit:
            newer = newer[np.argpartition(self.revisions[newer], limit)[: limit + 1]]
        newer = newer[np.argsort(self.revisions[newer])]
        return newer[:limit], bool(newer.size > limit)

    def present(self, instances: Iterable[Instance], now: float) -> list[Instance]:
        """Those of `instances` whose resource has not expired."""
        return [instance for instance in instances if instance.expires_at > now]
