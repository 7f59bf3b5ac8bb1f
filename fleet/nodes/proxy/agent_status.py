"""fleet.v1.AgentStatus of a proxy: reads an agent's status document through the agent's tunnel."""

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

#: Largest status document, in bytes: room for a mesh of 1,000 proxies. A longer one is cut off.
_MAX_DOCUMENT_BYTES = 1024 * 1024
#: Most unread responses of one caller, and of all: a poller asks for up to 16 agents of a proxy at once.
_MAX_UNREAD_PER_CALLER, _MAX_UNREAD = 64, 256
#: Timeout for callers without a deadline, seconds.
_DEFAULT_TIMEOUT = 5.0
#: Share of the caller's deadline that is kept back: a later response would reach nobody, and gRPC would log a
#: traceback.
_RESERVED_SHARE = 0.1


class AgentStatusServicer:
    """fleet.v1.AgentStatus. Method names are those of the .proto."""

    def __init__(self, tunnels: ReverseTunnels) -> None:
        self._tunnels = tunnels
        self._response_limiter = ResponseLimiter(_MAX_UNREAD_PER_CALLER, _MAX_UNREAD)

    async def ReadAgentStatus(  # noqa: N802
        self,
        request: agent_status_pb2.ReadAgentStatusRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> agent_status_pb2.ReadAgentStatusResponse:
        """Return the status document of an agent."""
        await self._response_limiter.admit(context)
        tunnel = self._tunnels.table.find_live(request.agent_id)
        if tunnel is None:
            details = f"agent {request.agent_id!r} has no live tunnel to this proxy"
            await context.abort(grpc.StatusCode.NOT_FOUND, details)
        try:
            async with asyncio.timeout(_timeout_of(context.time_remaining())):
                document = await self._read_document(tunnel)
        except TimeoutError:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, "the agent did not respond on its tunnel in time"
            )
        except TunnelError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return agent_status_pb2.ReadAgentStatusResponse(document=document)

    async def _read_document(self, tunnel: Tunnel) -> bytes:
        stream = await self._tunnels.open_session(tunnel, agent_services.STATUS_SERVICE)
        try:
            document = bytearray()
            while piece := await stream.read():
                document += piece
                if len(document) > _MAX_DOCUMENT_BYTES:
                    raise TunnelError(f"the agent's status is longer than {_MAX_DOCUMENT_BYTES} bytes")
            await stream.close()
        finally:
            # No effect on a stream that was closed properly.
            stream.abort("the reader of the status has left")
        return bytes(document)


def _timeout_of(remaining_seconds: float | None) -> float:
    """Return the timeout for reading a status, seconds.

    `remaining_seconds` is what remains of the caller's deadline.
    """
    return (
        _DEFAULT_TIMEOUT
        if remaining_seconds is None
        else min(remaining_seconds * (1 - _RESERVED_SHARE), _DEFAULT_TIMEOUT)
    )
