"""Polling of one shard: all instances at the same time, the lists of one auth and a self-test, within one deadline."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleet.monitoring.pollers.probe import SelfProbe
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.health import HealthResponse
from fleet.monitoring.sources.source import (
    EvidenceSource,
    PollTarget,
    ResponseT,
    SourceContext,
    SourcePolling,
)
from fleet.transport.poll_connections import Connections
from fleet.transport.tls import TLSError
from fleet.vocabulary.capabilities import Capability

logger = logging.getLogger(__name__)

Clock = Callable[[], float]

#: Share of the deadline for the first auth of the lists while there is another auth.
_FIRST_SHARE = 0.5
#: Seconds after its deadline until a query of a plug-in that ignores it is cancelled.
_GRACE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class PollResult:
    """Result of polling an instance, or of reading the lists of an auth."""

    target: PollTarget
    #: When the attempt ended, seconds since the epoch.
    at: float
    #: Response or SourceError of each polled source.
    responses: Mapping[EvidenceSource[Any], Any]
    #: Of lists: capabilities that the cluster does not have, with the reason.
    missing_capabilities: Mapping[Capability, str] = field(default_factory=dict)
    #: Of lists: first addresses of the cluster.
    addresses: Sequence[str] = ()
    #: Of lists: the auth reports that it is not serving, so its lists may be old.
    is_old: bool = False

    def response_of(self, source: EvidenceSource[ResponseT]) -> ResponseT | None:
        """Return the response of a source; None when it was not polled or failed."""
        response: ResponseT | SourceError | None = self.responses.get(source)
        return None if isinstance(response, SourceError) else response

    @property
    def failed_sources(self) -> set[EvidenceSource[Any]]:
        """Return the sources that failed."""
        return {source for source, response in self.responses.items() if isinstance(response, SourceError)}

    @property
    def is_contacted(self) -> bool:
        """Return whether a source was polled that tells whether the instance is reachable."""
        return any(source.proves_reachability for source in self.responses)

    @property
    def error(self) -> str:
        """Return why the instance was not reached; empty when it was, or when it was not contacted."""
        contacts = [source for source in self.responses if source.proves_reachability]
        is_reached = not contacts or not self.failed_sources.issuperset(contacts)
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
    polling: SourcePolling,
    *,
    deadline: float,
    clock: Clock = time.time,
) -> ShardResult:
    """Poll the instances, and read the lists from `auths`, best first, within `deadline` seconds plus closing.

    `polling`: what is polled.
    """
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
                    _poll_target(connections, target, polling.instance_sources, remaining_seconds, clock)
                    for target in targets
                )
            ),
            _read_lists(connections, auths, polling, remaining_seconds, clock),
        )
    for poll_result in poll_results:
        if poll_result.error:
            await connections.discard(poll_result.target.address)
    return ShardResult(tuple(poll_results), list_result, probe.succeeded, clock())


async def _read_lists(
    connections: Connections,
    auths: Sequence[PollTarget],
    polling: SourcePolling,
    remaining_seconds: Clock,
    clock: Clock,
) -> PollResult | None:
    """Ask one auth after another until one returns all lists and is serving; otherwise return the best result."""
    sources = polling.list_sources
    best_result: PollResult | None = None
    addresses = tuple(auth.address for auth in auths)
    for auth_position, auth in enumerate(auths):
        if remaining_seconds() <= 0:
            break
        share = 1.0 if auth_position == len(auths) - 1 else _FIRST_SHARE
        remaining_share = _share_of(remaining_seconds, share)
        list_result, is_serving = await asyncio.gather(
            _poll_target(connections, auth, sources, remaining_share, clock, addresses),
            _is_serving(connections, auth, polling.list_health, remaining_share, clock),
        )
        list_result = replace(list_result, is_old=not is_serving)
        if not list_result.failed_sources and is_serving:
            return list_result
        if len(list_result.failed_sources) < len(sources) and (
            best_result is None or _list_rank_of(list_result) < _list_rank_of(best_result)
        ):
            best_result = list_result
    return best_result


def _list_rank_of(list_result: PollResult) -> tuple[bool, bool]:
    """Return a sort key of lists: complete ones first, then those of auths that are serving."""
    return bool(list_result.failed_sources), list_result.is_old


async def _is_serving(
    connections: Connections,
    auth: PollTarget,
    source: EvidenceSource[HealthResponse] | None,
    remaining_seconds: Clock,
    clock: Clock,
) -> bool:
    """Return whether an auth does not report that it is not serving; without a response it reports nothing."""
    if source is None:
        return True
    response = await query_source(connections, auth, source, remaining_seconds, clock)
    return isinstance(response, SourceError) or not response.is_not_serving


async def _poll_target(
    connections: Connections,
    target: PollTarget,
    sources: Sequence[EvidenceSource[Any]],
    remaining_seconds: Clock,
    clock: Clock,
    addresses: Sequence[str] = (),
) -> PollResult:
    applicable_sources = [source for source in sources if source.applies_to(target)]
    missing_capabilities: dict[Capability, str] = {}
    responses = await asyncio.gather(
        *(
            query_source(
                connections, target, source, remaining_seconds, clock, addresses, missing_capabilities
            )
            for source in applicable_sources
        )
    )
    return PollResult(
        target,
        clock(),
        dict(zip(applicable_sources, responses, strict=True)),
        missing_capabilities,
        addresses,
    )


async def query_source(
    connections: Connections,
    target: PollTarget,
    source: EvidenceSource[ResponseT],
    remaining_seconds: Clock,
    clock: Clock,
    addresses: Sequence[str] = (),
    missing_capabilities: dict[Capability, str] | None = None,
) -> ResponseT | SourceError:
    """Poll one source within its share of the remaining seconds.

    `addresses`: the first addresses of the cluster, for lists. `missing_capabilities`: gets the capabilities that the
    cluster does not have. A query that raises another error, or ignores its deadline, is a failure of this source only.
    """
    dial = connections.read_channel if source.is_retried else connections.channel
    try:
        channel = dial(target.address, target.kind)
    except TLSError as error:
        return SourceError(str(error), has_response=False)
    except ValueError as error:
        return SourceError(f"{target.address!r} is not an address: {error}", has_response=False)
    seconds = remaining_seconds()
    reserve = seconds * (1 - source.time_share)
    found_capabilities = {} if missing_capabilities is None else missing_capabilities
    context = SourceContext(
        target,
        channel,
        connections,
        lambda: remaining_seconds() - reserve,
        clock,
        addresses,
        found_capabilities,
    )
    try:
        async with asyncio.timeout(max(seconds - reserve, 0.0) + _GRACE_SECONDS):
            return await source.query(context)
    except SourceError as failure:
        return failure
    except TimeoutError:
        return SourceError(f"the request {source.name} did not end in time", has_response=False)
    except Exception as error:  # of a plug-in: it must not end the poll of other sources and instances
        logger.exception("the request %s of %s failed", source.name, target.address)
        return SourceError(
            f"the request {source.name} failed in Refloat: {type(error).__name__}", has_response=False
        )


def _share_of(remaining_seconds: Clock, share: float) -> Clock:
    """Return a countdown of a share of the remaining seconds."""
    reserve = remaining_seconds() * (1 - share)
    return lambda: remaining_seconds() - reserve
