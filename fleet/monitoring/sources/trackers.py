"""C in full: an agent's own report, by fleet.v1.AgentStatus of a proxy that holds its tunnel.

It says more than the heartbeat carries, and says it now; and an answer proves that the tunnel carries traffic.
"""

from __future__ import annotations

import grpc
import grpc.aio

from fleet.monitoring.agent_report import AgentReport, ReportError, parse
from fleet.monitoring.sources import SourceFailed, asking
from fleet.wire import agent_status_pb2, agent_status_pb2_grpc


async def ask_tracker(
    channel: grpc.aio.Channel,
    agent_id: str,
    *,
    timeout: float,  # noqa: ASYNC109 - it is gRPC's
) -> AgentReport | None:
    """Ask through the proxy of `channel` within `timeout` seconds; None when it has no tunnel of the agent any more.

    Raises SourceFailed.
    """
    stub = agent_status_pb2_grpc.AgentStatusStub(channel)
    request = agent_status_pb2.ReadAgentStatusRequest(agent_id=agent_id)
    with asking():
        try:
            answer = await stub.ReadAgentStatus(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                # It moved since its tunnel was listed: the list is what is old, not the agent that is wrong.
                return None
            raise
    try:
        report = parse(answer.document)
    except ReportError as error:
        raise SourceFailed(f"what the agent says of itself cannot be read: {error}", answered=True) from None
    if report.agent_id != agent_id:
        raise SourceFailed(f"another agent answered: {report.agent_id!r}", answered=True)
    return report
