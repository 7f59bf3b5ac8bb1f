"""C in full: an agent's own report, by fleet.v1.AgentStatus of a proxy that holds its tunnel.

It says more than the heartbeat carries, and says it now; and an answer proves that the tunnel carries traffic.
"""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio

from fleet.monitoring.agent_report import AgentReport, Answer, ReportError, parse
from fleet.monitoring.sources import SourceFailed, asking
from fleet.monitoring.sources.source import EvidenceSource, Question
from fleet.wire import agent_status_pb2, agent_status_pb2_grpc


async def ask_tracker(question: Question, agent_id: str) -> AgentReport | None:
    """Ask an agent through the proxy; None when the proxy has no tunnel of the agent any more.

    Raises SourceFailed.
    """
    stub = agent_status_pb2_grpc.AgentStatusStub(question.channel)
    request = agent_status_pb2.ReadAgentStatusRequest(agent_id=agent_id)
    with asking():
        try:
            answer = await stub.ReadAgentStatus(request, timeout=question.left())
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


async def ask_trackers(question: Question) -> dict[int, Answer]:
    """Ask every agent that the target is asked for; return what came of each that has a tunnel, by index."""
    assert question.target.index is not None, "the record names the proxy of each tunnel"
    proxy = question.target.index

    async def ask(agent_id: str) -> Answer | None:
        at = question.clock()
        try:
            report = await ask_tracker(question, agent_id)
        except SourceFailed as failure:
            return Answer(at, proxy, None, str(failure))
        return None if report is None else Answer(at, proxy, report)

    answers = await asyncio.gather(*(ask(agent_id) for _, agent_id in question.target.agents))
    asked = zip(question.target.agents, answers, strict=True)
    return {agent: answer for (agent, _), answer in asked if answer is not None}


#: An agent that hangs must not make a round long.
TRACKERS = EvidenceSource("trackers", ask_trackers, applies_to=lambda target: bool(target.agents), share=0.5)
