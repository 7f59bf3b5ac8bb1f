"""Rules that the requests of a source show: they are sent to servers that misbehave, and to instances on request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from fleet.clusters.source_check.hostile_servers import hostile_servers
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.changes import FeedChanges
from fleet.monitoring.sources.source import (
    EvidenceSource,
    PollTarget,
    SourceContext,
    SourcePolling,
    WatchSource,
)
from fleet.monitoring.sources.watch import AgentWatch
from fleet.transport.poll_connections import Connections
from fleet.transport.tls import TLSFiles
from fleet.vocabulary.instances import InstanceKind

logger = logging.getLogger(__name__)

#: Seconds of each request to a server that misbehaves, and how much later it may end.
_REQUEST_SECONDS = 0.5
_GRACE_SECONDS = 0.2
#: Attempts until a request counts as late: on a busy machine each may be.
_ATTEMPTS = 3
#: Seconds of each request to an instance of the user.
_LIVE_REQUEST_SECONDS = 5.0
#: Clock of all requests: ages in responses count from it, so equal responses have equal times.
_NOW = 1_700_000_000.0


@dataclass(slots=True)
class RequestProblems:
    """Problems by rule, as sentences; each one once."""

    deadlines: dict[str, None] = field(default_factory=dict)
    errors: dict[str, None] = field(default_factory=dict)
    revisions: dict[str, None] = field(default_factory=dict)
    #: Feeds that were read twice.
    feed_count: int = 0


async def find_request_problems(
    polling: SourcePolling, addresses: Sequence[str] = (), tls: TLSFiles | None = None
) -> RequestProblems:
    """Send each request to each server that misbehaves, and to auths at `addresses`."""
    problems = RequestProblems()
    async with hostile_servers() as servers:
        connections = Connections()
        try:
            targets = [
                (text, PollTarget(0, kind, address, address, agents_to_query=((0, "agent-1"),)))
                for text, address in servers.items()
                for kind in InstanceKind
            ]
            await asyncio.gather(
                *(
                    _check_request(problems, connections, target, source, _REQUEST_SECONDS, text)
                    for text, target in targets
                    for source in _sources_of(polling, target)
                )
            )
        finally:
            await connections.close()
    connections = Connections(tls)
    try:
        for address in addresses:
            target = PollTarget(0, InstanceKind.AUTH, address)
            for source in polling.list_sources:
                await _check_request(
                    problems, connections, target, source, _LIVE_REQUEST_SECONDS, address, addresses
                )
    finally:
        await connections.close()
    return problems


def _sources_of(polling: SourcePolling, target: PollTarget) -> Iterator[EvidenceSource[Any]]:
    for source in (*polling.instance_sources, *polling.list_sources, *filter(None, [polling.policies])):
        if source.applies_to(target):
            yield source
    if polling.watch is not None:
        yield EvidenceSource("watch", partial(_open_and_close, polling.watch))


async def _open_and_close(watch: WatchSource[AgentWatch], context: SourceContext) -> None:
    """Open a watch and read its list, as a worker does at first."""
    opened_watch = await watch.open(context)
    if opened_watch is not None:
        try:
            await opened_watch.read_list(context)
        finally:
            opened_watch.close()


async def _check_request(
    problems: RequestProblems,
    connections: Connections,
    target: PollTarget,
    source: EvidenceSource[Any],
    seconds: float,
    server: str,
    addresses: Sequence[str] = (),
) -> None:
    """Send a request; a feed also from where its response ends, which must be no change."""
    response = await _query(problems, connections, target, source, seconds, server, addresses)
    if not isinstance(response, FeedChanges) or not response.complete:
        return
    target = replace(target, feed_epoch=response.epoch, feed_revision=response.revision)
    repetition = await _query(problems, connections, target, source, seconds, server, addresses)
    if isinstance(repetition, FeedChanges) and repetition.complete:
        problems.feed_count += 1
        for sentence in find_repetition_problems(source.name, response, repetition):
            problems.revisions[sentence] = None


def find_repetition_problems(
    name: str, response: FeedChanges[Any], repetition: FeedChanges[Any]
) -> Iterator[str]:
    """Yield how a feed that was read again, from the end of its response, looks like a change."""
    if (repetition.epoch, repetition.revision) != (response.epoch, response.revision):
        yield f"{name}: the same data has another epoch or revision when it is read again."
    elif repetition.full and repetition.agents != response.agents:
        yield f"{name}: a full list differs when it is read again."
    elif not repetition.full and repetition.agents:
        yield f"{name}: changes are repeated when nothing changed."


async def _query(
    problems: RequestProblems,
    connections: Connections,
    target: PollTarget,
    source: EvidenceSource[Any],
    seconds: float,
    server: str,
    addresses: Sequence[str],
) -> Any:
    """Return the response, or None after an error; note what breaks a rule."""
    for attempt in range(_ATTEMPTS):
        lateness_problems = RequestProblems() if attempt < _ATTEMPTS - 1 else problems
        response = await _query_once(
            replace(problems, deadlines=lateness_problems.deadlines),
            connections,
            target,
            source,
            seconds,
            server,
            addresses,
        )
        if not lateness_problems.deadlines:
            break
    return response


async def _query_once(
    problems: RequestProblems,
    connections: Connections,
    target: PollTarget,
    source: EvidenceSource[Any],
    seconds: float,
    server: str,
    addresses: Sequence[str],
) -> Any:
    seconds *= source.time_share
    ends_at = time.monotonic() + seconds
    context = SourceContext(
        target,
        connections.channel(target.address, target.kind),
        connections,
        lambda: ends_at - time.monotonic(),
        lambda: _NOW,
        tuple(addresses) or (target.address,),
    )
    try:
        async with asyncio.timeout(seconds + _GRACE_SECONDS):
            return await source.query(context)
    except SourceError as error:
        if "\n" in str(error):
            problems.errors[f"{source.name}: the text of an error has several lines ({server})."] = None
    except TimeoutError:
        if time.monotonic() >= ends_at + _GRACE_SECONDS:
            problems.deadlines[
                f"{source.name}: no end {_GRACE_SECONDS:g} s after its deadline ({server})."
            ] = None
        else:
            problems.errors[f"{source.name}: it raises TimeoutError ({server})."] = None
    except Exception as error:  # of a plug-in: what it raises is the finding
        logger.debug("%s: %s", source.name, server, exc_info=True)
        problems.errors[f"{source.name}: it raises {type(error).__name__} ({server})."] = None
    return None
