"""Polling of one shard: all instances at the same time, the lists of one auth and a self-test, within one deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.monitoring.pollers.probe import SelfProbe
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.registry import INSTANCE_SOURCES, LIST_SOURCES
from fleet.monitoring.sources.source import EvidenceSource, PollTarget, ResponseT, SourceContext
from fleet.transport.poll_connections import Connections
from fleet.transport.tls import TLSError

Clock = Callable[[], float]

#: Share of the deadline for the first auth of the lists while there is another auth.
_FIRST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class PollResult:
    """Result of polling an instance, or of reading the lists of an auth."""

    target: PollTarget
    #: When the attempt ended, seconds since the epoch.
    at: float
    #: Response or SourceError of each polled source.
    responses: Mapping[EvidenceSource[Any], Any]

    def response_of(self, source: EvidenceSource[ResponseT]) -> ResponseT | None:
        """Return the response of a source; None when it was not polled or failed."""
        response: ResponseT | SourceError | None = self.responses.get(source)
        return None if isinstance(response, SourceError) else response

    @property
    def failed_sources(self) -> set[EvidenceSource[Any]]:
        """Return the sources that failed."""
        return {source for source, response in self.responses.items() if isinstance(response, SourceError)}

    @property
    def error(self) -> str:
        """Return why the instance was not reached; empty when it was."""
        contacts = [source for source in self.responses if source.proves_reachability]
        is_reached = not self.failed_sources.issuperset(contacts)
        return "" if is_reached else f"{self.target.address}: {self.responses[contacts[0]]}"


@dataclass(frozen=True, slots=True)
class ShardResult:
    """Result of polling a shard."""

    poll_results: tuple[PollResult, ...]
    #: None when the lists were not requested, or no auth responded.
    list_result: PollResult | None
    #: The self-test passed, so failures are evidence.
    probe_succeeded: bool
    at: float


async def poll_targets(
    connections: Connections,
    targets: Sequence[PollTarget],
    auths: Sequence[PollTarget],
    *,
    deadline: float,
    clock: Clock = time.time,
) -> ShardResult:
    """Poll the instances, and read the lists from `auths`, best first, within `deadline` seconds plus closing."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + deadline

    def remaining_seconds() -> float:
        return ends_at - loop.time()

    for target in targets:
        if target.use_new_connection:
            await connections.discard(target.address)
    async with SelfProbe(deadline) as probe:
        poll_results, list_result = await asyncio.gather(
            asyncio.gather(
                *(
                    _poll_target(connections, target, INSTANCE_SOURCES, remaining_seconds, clock)
                    for target in targets
                )
            ),
            _read_lists(connections, auths, remaining_seconds, clock),
        )
    for poll_result in poll_results:
        if poll_result.error:
            await connections.discard(poll_result.target.address)
    return ShardResult(tuple(poll_results), list_result, probe.succeeded, clock())


async def _read_lists(
    connections: Connections, auths: Sequence[PollTarget], remaining_seconds: Clock, clock: Clock
) -> PollResult | None:
    """Ask one auth after another until one returns both lists; otherwise return the best result."""
    best_result: PollResult | None = None
    for auth_position, auth in enumerate(auths):
        if remaining_seconds() <= 0:
            break
        share = 1.0 if auth_position == len(auths) - 1 else _FIRST_SHARE
        list_result = await _poll_target(
            connections, auth, LIST_SOURCES, _share_of(remaining_seconds, share), clock
        )
        if not list_result.failed_sources:
            return list_result
        if best_result is None and len(list_result.failed_sources) < len(LIST_SOURCES):
            best_result = list_result
    return best_result


async def _poll_target(
    connections: Connections,
    target: PollTarget,
    sources: Sequence[EvidenceSource[Any]],
    remaining_seconds: Clock,
    clock: Clock,
) -> PollResult:
    applicable_sources = [source for source in sources if source.applies_to(target)]
    responses = await asyncio.gather(
        *(
            query_source(connections, target, source, remaining_seconds, clock)
            for source in applicable_sources
        )
    )
    return PollResult(target, clock(), dict(zip(applicable_sources, responses, strict=True)))


async def query_source(
    connections: Connections,
    target: PollTarget,
    source: EvidenceSource[ResponseT],
    remaining_seconds: Clock,
    clock: Clock,
) -> ResponseT | SourceError:
    """Poll one source within its share of the remaining seconds."""
    dial = connections.read_channel if source.is_retried else connections.channel
    try:
        channel = dial(target.address, target.kind)
    except TLSError as error:
        return SourceError(str(error), has_response=False)
    except ValueError as error:
        return SourceError(f"{target.address!r} is not an address: {error}", has_response=False)
    try:
        return await source.query(
            SourceContext(
                target, channel, connections, _share_of(remaining_seconds, source.time_share), clock
            )
        )
    except SourceError as failure:
        return failure


def _share_of(remaining_seconds: Clock, share: float) -> Clock:
    """Return a countdown of a share of the remaining seconds."""
    reserve = remaining_seconds() * (1 - share)
    return lambda: remaining_seconds() - reserve
