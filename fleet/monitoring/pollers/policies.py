"""Reading of policies from instances; they change when an instance restarts. docs/reference/policies.md, "Drift"."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from fleet.monitoring.pollers.plan import should_poll
from fleet.monitoring.pollers.shard_poll import query_source
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.policies import POLICIES
from fleet.monitoring.sources.source import EvidenceSource, PollTarget
from fleet.transport.poll_connections import Connections
from fleet.transport.tls import TLSFiles
from fleet.vocabulary.instances import InstanceFacts
from fleet.vocabulary.node_policies import UNSUPPORTED_ERROR, NodeReport, NodeReportResponse

#: Timeout of each instance.
_TIMEOUT_SECONDS = 3.0
_CONCURRENCY = 32


async def read_node_reports(
    instances: Iterable[InstanceFacts],
    tls: TLSFiles | None,
    clock: Callable[[], float] = time.time,
    source: EvidenceSource[NodeReport] = POLICIES,
) -> dict[str, NodeReportResponse]:
    """Return the result of asking each instance for `source`, by instance id; a failure has its error."""
    now, semaphore = clock(), asyncio.Semaphore(_CONCURRENCY)
    connections = Connections(tls)

    async def read_report(facts: InstanceFacts) -> NodeReportResponse:
        async with semaphore:
            target = PollTarget(facts.index, facts.kind, facts.address)
            report_or_error = await query_source(connections, target, source, lambda: _TIMEOUT_SECONDS, clock)
        if not isinstance(report_or_error, SourceError):
            return NodeReportResponse(clock(), report_or_error)
        is_unsupported = report_or_error.has_response and str(report_or_error).startswith("unimplemented")
        return NodeReportResponse(
            clock(), None, UNSUPPORTED_ERROR if is_unsupported else str(report_or_error)
        )

    polled_instances = [facts for facts in instances if should_poll(facts, now)]
    try:
        responses = await asyncio.gather(*(read_report(facts) for facts in polled_instances))
    finally:
        await connections.close()
    return {facts.id: response for facts, response in zip(polled_instances, responses, strict=True)}
