"""fleet.v1.TunnelAdmin: an operator, or a console, asks a proxy to advise its agents to reconnect, or to connect to
another auth."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from fleet.nodes.proxy.reverse_tunnels import ReverseTunnels
from fleet.nodes.shared import operators
from fleet.nodes.shared.instance import LONGEST_ID
from fleet.wire import fleet_pb2, fleet_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]

#: What agents' logs show where the operator gave no reason.
_NO_REASON = "an operator asked for it"


class TunnelAdminServicer:
    """Method names are those of the .proto."""

    def __init__(self, proxy_id: str, tunnels: ReverseTunnels, host: str = "127.0.0.1") -> None:
        """`host` is where the proxy listens."""
        self._proxy_id = proxy_id
        self._host = host
        self._tunnels = tunnels

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve it."""
        fleet_pb2_grpc.add_TunnelAdminServicer_to_server(self, server)

    async def AdviseReconnect(  # noqa: N802
        self, request: fleet_pb2.AdviseReconnectRequest, context: Context
    ) -> fleet_pb2.AdviseReconnectResponse:
        """Advise once for each id; the answer counts tunnels."""
        await self._check(request.advisory_id, request.reason, context)
        answer = self._tunnels.reconnects.advise_agents(
            request.advisory_id,
            request.reason or _NO_REASON,
            frozenset(request.agent_ids),
            request.limit,
            look_only=request.look_only,
        )
        answer.proxy_id = self._proxy_id
        return answer

    async def AdviseAuthReconnect(  # noqa: N802
        self, request: fleet_pb2.AdviseAuthReconnectRequest, context: Context
    ) -> fleet_pb2.AdviseReconnectResponse:
        """Advise once for each id; the answer counts tunnels through which agents were advised."""
        await self._check(request.advisory_id, request.reason, context)
        if len(request.leave_auth_id) > LONGEST_ID:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"leave_auth_id: needs at most {LONGEST_ID} characters"
            )
        advisory = fleet_pb2.AuthReconnectAdvisory(
            advisory_id=request.advisory_id,
            reason=request.reason or _NO_REASON,
            leave_auth_id=request.leave_auth_id,
        )
        response = self._tunnels.auth_reconnects.advise_agents(
            advisory, frozenset(request.agent_ids), request.limit, look_only=request.look_only
        )
        response.proxy_id = self._proxy_id
        return response

    async def _check(self, advisory_id: str, reason: str, context: Context) -> None:
        """Refuse a caller who may not move agents, and advice without a usable id or reason."""
        await operators.require_operator(context, "move agents", self._host)
        if not 0 < len(advisory_id) <= LONGEST_ID:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"advisory_id: needs 1 to {LONGEST_ID} characters"
            )
        await operators.require_reason(context, reason)
