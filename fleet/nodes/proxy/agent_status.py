"""A proxy's fleet.v1.AgentStatus: what an agent says of itself, asked through its tunnel for those who watch."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

from fleet.nodes.proxy.reverse_tunnels import ReverseTunnels
from fleet.nodes.proxy.tunnels import Tunnel
from fleet.nodes.shared.response_limiter import ResponseLimiter
from fleet.protocol.tunnel import agent_services
from fleet.protocol.tunnel.messages import TunnelError
from fleet.wire import agent_status_pb2

#: A mesh of a thousand proxies fits; an agent that never ends is cut.
_LONGEST = 1024 * 1024
#: Answers that wait to be read, of one caller and of all: a console asks 16 agents of a proxy at once.
_MOST_OF_ONE, _MOST = 64, 256
#: For callers that do not say how long they wait, seconds.
_WITHIN = 5.0
#: So much earlier than the caller's own patience ends, as a share of it: an answer after that reaches nobody, and gRPC
#: writes a traceback about it.
_EARLIER = 0.1


class AgentStatusServicer:
    """fleet.v1.AgentStatus. Method names are those of the .proto."""

    def __init__(self, tunnels: ReverseTunnels) -> None:
        self._tunnels = tunnels
        self._response_limiter = ResponseLimiter(_MOST_OF_ONE, _MOST)

    async def ReadAgentStatus(  # noqa: N802
        self,
        request: agent_status_pb2.ReadAgentStatusRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> agent_status_pb2.ReadAgentStatusResponse:
        """Ask the agent with that id."""
        await self._response_limiter.admit(context)
        tunnel = self._tunnels.table.find_live(request.agent_id)
        if tunnel is None:
            details = f"no live tunnel of agent {request.agent_id!r} is here"
            await context.abort(grpc.StatusCode.NOT_FOUND, details)
        try:
            async with asyncio.timeout(_timeout_of(context.time_remaining())):
                document = await self._read(tunnel)
        except TimeoutError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the agent did not answer on its tunnel in time")
        except TunnelError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return agent_status_pb2.ReadAgentStatusResponse(document=document)

    async def _read(self, tunnel: Tunnel) -> bytes:
        stream = await self._tunnels.open_session(tunnel, agent_services.STATUS)
        try:
            document = bytearray()
            while piece := await stream.read():
                document += piece
                if len(document) > _LONGEST:
                    raise TunnelError(f"the agent's status is longer than {_LONGEST} bytes")
            await stream.close()
        finally:
            # Nothing to an end that was orderly.
            stream.abort("whoever asked for the status is gone")
        return bytes(document)


def _timeout_of(remaining_seconds: float | None) -> float:
    """For how long to ask, seconds; `left` is how long the caller still waits."""
    return _WITHIN if remaining_seconds is None else min(remaining_seconds * (1 - _EARLIER), _WITHIN)
