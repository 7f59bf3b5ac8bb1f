"""Evidence C in full: an agent's own report, by fleet.v1.AgentStatus of a proxy with a tunnel to the agent.

The report has more fields than a heartbeat and is current; a response also proves that the tunnel carries traffic.
"""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio

from fleet.monitoring.agent_report import AgentReport, AgentReportResponse, ReportError, parse_agent_report
from fleet.monitoring.sources import SourceError, map_source_errors, require_parsed
from fleet.monitoring.sources.source import EvidenceSource, SourceContext
from fleet.wire import agent_status_pb2, agent_status_pb2_grpc


async def read_agent_report(context: SourceContext, agent_id: str) -> AgentReport | None:
    """Ask an agent through the proxy; None when the proxy no longer has a tunnel to the agent.

    Raises SourceError.
    """
    stub = agent_status_pb2_grpc.AgentStatusStub(context.channel)
    request = agent_status_pb2.ReadAgentStatusRequest(agent_id=agent_id)
    with map_source_errors():
        try:
            response = require_parsed(
                await stub.ReadAgentStatus(request, timeout=context.remaining_seconds())
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                # The agent moved after its tunnel was listed: the list is old, the agent is fine.
                return None
            raise
    try:
        report = parse_agent_report(response.document)
    except ReportError as error:
        raise SourceError(f"the agent report is invalid: {error}", has_response=True) from None
    if report.agent_id != agent_id:
        raise SourceError(f"another agent responded: {report.agent_id!r}", has_response=True)
    return report


async def read_agent_reports(context: SourceContext) -> dict[int, AgentReportResponse]:
    """Ask the agents of a target; return the result of each agent with a tunnel, by index."""
    assert context.target.index is not None, "the record names the proxy of each tunnel"
    proxy = context.target.index

    async def read_report(agent_id: str) -> AgentReportResponse | None:
        at = context.clock()
        try:
            report = await read_agent_report(context, agent_id)
        except SourceError as failure:
            return AgentReportResponse(at, proxy, None, str(failure))
        return None if report is None else AgentReportResponse(at, proxy, report)

    responses = await asyncio.gather(
        *(read_report(agent_id) for _, agent_id in context.target.agents_to_query)
    )
    agents_and_responses = zip(context.target.agents_to_query, responses, strict=True)
    return {agent: response for (agent, _), response in agents_and_responses if response is not None}


#: An agent that hangs must not delay a round.
TRACKERS = EvidenceSource(
    "trackers", read_agent_reports, applies_to=lambda target: bool(target.agents_to_query), time_share=0.5
)
