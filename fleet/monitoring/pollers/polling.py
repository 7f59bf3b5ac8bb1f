"""Ask one shard: every instance at once, the lists of one auth, and ourselves, all within one deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fleet.monitoring.agent_report import Answer
from fleet.monitoring.pollers.probe import SelfProbe
from fleet.monitoring.sources import SourceFailed
from fleet.monitoring.sources.health import HealthAnswer, ask_health
from fleet.monitoring.sources.presence import AgentChanges, ListedInstance, ask_agents, ask_instances
from fleet.monitoring.sources.readyz import Readiness, ask_readyz
from fleet.monitoring.sources.trackers import ask_tracker
from fleet.monitoring.sources.tunnels import TunnelChanges, ask_tunnels
from fleet.protocol.destination.standing import Said
from fleet.transport.channels import TLSError
from fleet.transport.connections import Connections
from fleet.vocabulary.instances import InstanceKind

T = TypeVar("T")

#: What the first auth asked for the lists may use of the deadline while there is another to ask.
_FIRST_SHARE = 0.5
#: What agents asked through their tunnels may use of it: one that hangs must not make a round long.
_TRACKER_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Target:
    """An instance to ask."""

    index: int
    kind: InstanceKind
    address: str
    diag_address: str
    #: Our place in its feed.
    epoch: str = ""
    revision: int = 0
    #: Ask over a new connection.
    fresh: bool = False
    #: Agents to ask through it, as (index, id).
    agents: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Errand:
    """What one task asks."""

    targets: tuple[Target, ...]
    #: Auths to ask for the lists as (index, address), best first; None when this shard does not ask.
    lists_from: Sequence[tuple[int | None, str]] | None
    #: Our place in the feed of agents.
    epoch: str
    revision: int
    #: Seconds.
    deadline: float


@dataclass(frozen=True, slots=True)
class Sighting:
    """What came of asking one instance."""

    target: Target
    #: When the attempt ended.
    at: float
    health: HealthAnswer | SourceFailed
    readyz: Readiness | SourceFailed | None
    tunnels: TunnelChanges | SourceFailed | None
    #: What agents asked through it said, by index.
    answers: Mapping[int, Answer] = field(default_factory=dict)

    @property
    def said(self) -> Said | None:
        """What the instance says of itself, in either answer; None when it gave neither."""
        given = [one.said for one in (self.health, self.readyz) if isinstance(one, HealthAnswer | Readiness)]
        if not given:
            return None
        degraded = next((said.degraded for said in given if said.degraded is not None), None)
        draining = next((said.draining for said in given if said.draining is not None), None)
        return Said(degraded, draining)

    @property
    def error(self) -> str:
        """Why it was not reached; empty when it was. Whoever answers anything by gRPC was reached."""
        if not isinstance(self.health, SourceFailed):
            return ""
        if isinstance(self.tunnels, TunnelChanges):
            return ""
        return f"{self.target.address}: {self.health}"


@dataclass(frozen=True, slots=True)
class Lists:
    """What an auth listed."""

    at: float
    #: Its index, None for one not known yet.
    source: int | None
    instances: tuple[ListedInstance, ...] | SourceFailed
    agents: AgentChanges | SourceFailed


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of an errand."""

    sightings: tuple[Sighting, ...]
    #: None when the lists were not asked for; a failure when no auth answered.
    lists: Lists | None
    lists_failed_at: float | None
    #: Our own probe was good: failures are evidence.
    probe_good: bool
    at: float


async def poll(connections: Connections, errand: Errand, clock: Callable[[], float] = time.time) -> Seen:
    """Run an errand. Never longer than its deadline, but for what closing takes."""
    loop = asyncio.get_running_loop()
    until = loop.time() + errand.deadline

    def left() -> float:
        return until - loop.time()

    for target in errand.targets:
        if target.fresh:
            await connections.discard(target.address)
    async with SelfProbe(errand.deadline) as probe:
        sightings, lists = await asyncio.gather(
            asyncio.gather(*(_ask(connections, target, left, clock) for target in errand.targets)),
            _ask_lists(connections, errand, left, clock),
        )
    for sighting in sightings:
        if sighting.error:
            await connections.discard(sighting.target.address)
    now = clock()
    failed = errand.lists_from is not None and lists is None
    return Seen(tuple(sightings), lists, now if failed else None, probe.good, now)


async def _ask(
    connections: Connections, target: Target, left: Callable[[], float], clock: Callable[[], float]
) -> Sighting:
    try:
        channel = connections.channel(target.address, target.kind)
    except (ValueError, TLSError) as error:
        return Sighting(target, clock(), _cannot_dial(target.address, error), None, None)
    health, readyz, tunnels, answers = await asyncio.gather(
        _or_failure(ask_health(channel, timeout=left())),
        _readyz(connections, target, left),
        _tunnels(connections, target, left, clock),
        _trackers(connections, target, left, clock),
    )
    return Sighting(target, clock(), health, readyz, tunnels, answers)


async def _readyz(
    connections: Connections, target: Target, left: Callable[[], float]
) -> Readiness | SourceFailed | None:
    if not target.diag_address:
        return None
    return await _or_failure(ask_readyz(connections.session, target.diag_address, timeout=left()))


async def _tunnels(
    connections: Connections, target: Target, left: Callable[[], float], clock: Callable[[], float]
) -> TunnelChanges | SourceFailed | None:
    if target.kind is not InstanceKind.PROXY:
        return None
    channel = connections.channel(target.address, target.kind)
    return await _or_failure(ask_tunnels(channel, target.epoch, target.revision, left=left, clock=clock))


async def _trackers(
    connections: Connections, target: Target, left: Callable[[], float], clock: Callable[[], float]
) -> dict[int, Answer]:
    channel = connections.channel(target.address, target.kind)
    timeout = left() * _TRACKER_SHARE

    async def ask(agent_id: str) -> Answer | None:
        at = clock()
        report = await _or_failure(ask_tracker(channel, agent_id, timeout=timeout))
        if isinstance(report, SourceFailed):
            return Answer(at, target.index, None, str(report))
        return None if report is None else Answer(at, target.index, report)

    answers = await asyncio.gather(*(ask(agent_id) for _, agent_id in target.agents))
    asked = zip(target.agents, answers, strict=True)
    return {agent: answer for (agent, _), answer in asked if answer is not None}


async def _ask_lists(
    connections: Connections, errand: Errand, left: Callable[[], float], clock: Callable[[], float]
) -> Lists | None:
    """Ask auths in turn until one answers both lists, or as much as any."""
    best: Lists | None = None
    auths = errand.lists_from or ()
    for place, (index, address) in enumerate(auths):
        if left() <= 0:
            break
        share = 1.0 if place == len(auths) - 1 else _FIRST_SHARE
        lists = await _ask_auth(connections, errand, index, address, left() * share, clock)
        failures = [isinstance(part, SourceFailed) for part in (lists.instances, lists.agents)]
        if not any(failures):
            return lists
        if best is None and not all(failures):
            best = lists
    return best


async def _ask_auth(
    connections: Connections,
    errand: Errand,
    index: int | None,
    address: str,
    timeout: float,  # noqa: ASYNC109 - it is handed on to gRPC
    clock: Callable[[], float],
) -> Lists:
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout
    try:
        channel = connections.reader(address, InstanceKind.AUTH)
    except (ValueError, TLSError) as error:
        failed = _cannot_dial(address, error)
        return Lists(clock(), index, failed, failed)
    asked = ask_agents(channel, errand.epoch, errand.revision, left=lambda: until - loop.time(), clock=clock)
    instances, agents = await asyncio.gather(
        _or_failure(ask_instances(channel, timeout=timeout)), _or_failure(asked)
    )
    return Lists(clock(), index, instances, agents)


def _cannot_dial(address: str, error: ValueError | TLSError) -> SourceFailed:
    if isinstance(error, TLSError):
        return SourceFailed(str(error), answered=False)
    return SourceFailed(f"{address!r} is not an address: {error}", answered=False)


async def _or_failure(question: Coroutine[Any, Any, T]) -> T | SourceFailed:
    try:
        return await question
    except SourceFailed as failure:
        return failure
