"""Ask one shard: every instance at once, the lists of one auth, and ourselves, all within one deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.monitoring.pollers.probe import SelfProbe
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.registry import INSTANCE_SOURCES, LIST_SOURCES
from fleet.monitoring.sources.source import ResponseT, EvidenceSource, SourceContext, PollTarget
from fleet.transport.poll_connections import Connections
from fleet.transport.tls import TLSError

Clock = Callable[[], float]

#: What the first auth asked for the lists may use of the deadline while there is another to ask.
_FIRST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class PollResult:
    """What came of asking one instance, or one auth for the lists."""

    target: PollTarget
    #: When the attempt ended.
    at: float
    #: Of each source that was asked: its answer, or the SourceError.
    responses: Mapping[EvidenceSource[Any], Any]

    def response_of(self, source: EvidenceSource[ResponseT]) -> ResponseT | None:
        """Return what came of a source; None when it was not asked, or did not answer."""
        response: ResponseT | SourceError | None = self.responses.get(source)
        return None if isinstance(response, SourceError) else response

    @property
    def failed_sources(self) -> set[EvidenceSource[Any]]:
        """The sources that did not answer."""
        return {source for source, response in self.responses.items() if isinstance(response, SourceError)}

    @property
    def error(self) -> str:
        """Why the instance was not reached; empty when it was."""
        contacts = [source for source in self.responses if source.is_contact]
        is_reached = not self.failed_sources.issuperset(contacts)
        return "" if is_reached else f"{self.target.address}: {self.responses[contacts[0]]}"


@dataclass(frozen=True, slots=True)
class ShardResult:
    """What came of asking a shard."""

    poll_results: tuple[PollResult, ...]
    #: None when the lists were not asked for, or no auth answered either.
    lists: PollResult | None
    #: Our own probe was good: failures are evidence.
    probe_succeeded: bool
    at: float


async def poll(
    connections: Connections,
    targets: Sequence[PollTarget],
    auths: Sequence[PollTarget],
    *,
    deadline: float,
    clock: Clock = time.time,
) -> ShardResult:
    """Ask the targets, and `auths`, best first, for the lists. No longer than `deadline` seconds, but for closing."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + deadline

    def remaining_seconds() -> float:
        return ends_at - loop.time()

    for target in targets:
        if target.fresh:
            await connections.discard(target.address)
    async with SelfProbe(deadline) as probe:
        poll_results, lists = await asyncio.gather(
            asyncio.gather(
                *(_poll_target(connections, target, INSTANCE_SOURCES, remaining_seconds, clock) for target in targets)
            ),
            _read_lists(connections, auths, remaining_seconds, clock),
        )
    for poll_result in poll_results:
        if poll_result.error:
            await connections.discard(poll_result.target.address)
    return ShardResult(tuple(poll_results), lists, probe.succeeded, clock())


async def _read_lists(
    connections: Connections, auths: Sequence[PollTarget], remaining_seconds: Clock, clock: Clock
) -> PollResult | None:
    """Ask auths in turn until one answers both lists, or as much as any."""
    best: PollResult | None = None
    for position, auth in enumerate(auths):
        if remaining_seconds() <= 0:
            break
        share = 1.0 if position == len(auths) - 1 else _FIRST_SHARE
        lists = await _poll_target(connections, auth, LIST_SOURCES, _share_of(remaining_seconds, share), clock)
        if not lists.failed_sources:
            return lists
        if best is None and len(lists.failed_sources) < len(LIST_SOURCES):
            best = lists
    return best


async def _poll_target(
    connections: Connections,
    target: PollTarget,
    sources: Sequence[EvidenceSource[Any]],
    remaining_seconds: Clock,
    clock: Clock,
) -> PollResult:
    applicable_sources = [source for source in sources if source.applies_to(target)]
    responses = await asyncio.gather(
        *(query_source(connections, target, source, remaining_seconds, clock) for source in applicable_sources)
    )
    return PollResult(target, clock(), dict(zip(applicable_sources, responses, strict=True)))


async def query_source(
    connections: Connections, target: PollTarget, source: EvidenceSource[ResponseT], remaining_seconds: Clock, clock: Clock
) -> ResponseT | SourceError:
    """Ask one source within its share of the seconds that are left."""
    dial = connections.reader if source.is_retried else connections.channel
    try:
        channel = dial(target.address, target.kind)
    except TLSError as error:
        return SourceError(str(error), has_response=False)
    except ValueError as error:
        return SourceError(f"{target.address!r} is not an address: {error}", has_response=False)
    try:
        return await source.query(SourceContext(target, channel, connections, _share_of(remaining_seconds, source.share), clock))
    except SourceError as failure:
        return failure


def _share_of(remaining_seconds: Clock, share: float) -> Clock:
    """Count down a share of the seconds that are left now."""
    reserve = remaining_seconds() * (1 - share)
    return lambda: remaining_seconds() - reserve
