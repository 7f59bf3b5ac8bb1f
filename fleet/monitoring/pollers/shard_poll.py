"""Ask one shard: every instance at once, the lists of one auth, and ourselves, all within one deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.monitoring.pollers.probe import SelfProbe
from fleet.monitoring.sources import SourceFailed
from fleet.monitoring.sources.registry import INSTANCE_SOURCES, LIST_SOURCES
from fleet.monitoring.sources.source import AnswerT, EvidenceSource, Question, Target
from fleet.transport.poll_connections import Connections
from fleet.transport.tls import TLSError

Clock = Callable[[], float]

#: What the first auth asked for the lists may use of the deadline while there is another to ask.
_FIRST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Sighting:
    """What came of asking one instance, or one auth for the lists."""

    target: Target
    #: When the attempt ended.
    at: float
    #: Of each source that was asked: its answer, or the SourceFailed.
    answers: Mapping[EvidenceSource[Any], Any]

    def answer(self, source: EvidenceSource[AnswerT]) -> AnswerT | None:
        """Return what came of a source; None when it was not asked, or did not answer."""
        answer: AnswerT | SourceFailed | None = self.answers.get(source)
        return None if isinstance(answer, SourceFailed) else answer

    @property
    def failed(self) -> set[EvidenceSource[Any]]:
        """The sources that did not answer."""
        return {source for source, answer in self.answers.items() if isinstance(answer, SourceFailed)}

    @property
    def error(self) -> str:
        """Why the instance was not reached; empty when it was."""
        contacts = [source for source in self.answers if source.is_contact]
        reached = not self.failed.issuperset(contacts)
        return "" if reached else f"{self.target.address}: {self.answers[contacts[0]]}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of asking a shard."""

    sightings: tuple[Sighting, ...]
    #: None when the lists were not asked for, or no auth answered either.
    lists: Sighting | None
    #: Our own probe was good: failures are evidence.
    probe_good: bool
    at: float


async def poll(
    connections: Connections,
    targets: Sequence[Target],
    auths: Sequence[Target],
    *,
    deadline: float,
    clock: Clock = time.time,
) -> Seen:
    """Ask the targets, and `auths`, best first, for the lists. No longer than `deadline` seconds, but for closing."""
    loop = asyncio.get_running_loop()
    until = loop.time() + deadline

    def left() -> float:
        return until - loop.time()

    for target in targets:
        if target.fresh:
            await connections.discard(target.address)
    async with SelfProbe(deadline) as probe:
        sightings, lists = await asyncio.gather(
            asyncio.gather(
                *(_visit(connections, target, INSTANCE_SOURCES, left, clock) for target in targets)
            ),
            _ask_lists(connections, auths, left, clock),
        )
    for sighting in sightings:
        if sighting.error:
            await connections.discard(sighting.target.address)
    return Seen(tuple(sightings), lists, probe.good, clock())


async def _ask_lists(
    connections: Connections, auths: Sequence[Target], left: Clock, clock: Clock
) -> Sighting | None:
    """Ask auths in turn until one answers both lists, or as much as any."""
    best: Sighting | None = None
    for place, auth in enumerate(auths):
        if left() <= 0:
            break
        share = 1.0 if place == len(auths) - 1 else _FIRST_SHARE
        lists = await _visit(connections, auth, LIST_SOURCES, _share_of(left, share), clock)
        if not lists.failed:
            return lists
        if best is None and len(lists.failed) < len(LIST_SOURCES):
            best = lists
    return best


async def _visit(
    connections: Connections,
    target: Target,
    sources: Sequence[EvidenceSource[Any]],
    left: Clock,
    clock: Clock,
) -> Sighting:
    asked = [source for source in sources if source.applies_to(target)]
    answers = await asyncio.gather(
        *(ask_source(connections, target, source, left, clock) for source in asked)
    )
    return Sighting(target, clock(), dict(zip(asked, answers, strict=True)))


async def ask_source(
    connections: Connections, target: Target, source: EvidenceSource[AnswerT], left: Clock, clock: Clock
) -> AnswerT | SourceFailed:
    """Ask one source within its share of the seconds that are left."""
    dial = connections.reader if source.is_retried else connections.channel
    try:
        channel = dial(target.address, target.kind)
    except TLSError as error:
        return SourceFailed(str(error), answered=False)
    except ValueError as error:
        return SourceFailed(f"{target.address!r} is not an address: {error}", answered=False)
    try:
        return await source.ask(Question(target, channel, connections, _share_of(left, source.share), clock))
    except SourceFailed as failure:
        return failure


def _share_of(left: Clock, share: float) -> Clock:
    """Count down a share of the seconds that are left now."""
    reserve = left() * (1 - share)
    return lambda: left() - reserve
