"""fleet.v1.TunnelAdmin: an operator or the web app has agents advised to reconnect or to connect to another auth."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from fleet.nodes.proxy.reverse_tunnels import ReverseTunnels
from fleet.nodes.shared import operators
from fleet.nodes.shared.instance import LONGEST_ID
from fleet.wire import fleet_pb2, fleet_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]

#: Reason in agents' logs if the operator gave none.
_NO_REASON = "requested by an operator"


class TunnelAdminServicer:
    """The gRPC service. Method names are those of the .proto."""

    def __init__(self, proxy_id: str, tunnels: ReverseTunnels, host: str = "127.0.0.1") -> None:
        """`host` is the address on which the proxy listens."""
        self._proxy_id = proxy_id
        self._host = host
        self._tunnels = tunnels

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service on a gRPC server."""
        fleet_pb2_grpc.add_TunnelAdminServicer_to_server(self, server)

    async def AdviseReconnect(  # noqa: N802
        self, request: fleet_pb2.AdviseReconnectRequest, context: Context
    ) -> fleet_pb2.AdviseReconnectResponse:
        """Advise agents to reconnect, once per advisory id. The response counts tunnels."""
        await self._check(request.advisory_id, request.reason, context)
        response = self._tunnels.reconnect_advisor.advise_agents(
            request.advisory_id,
            request.reason or _NO_REASON,
            frozenset(request.agent_ids),
            request.limit,
            dry_run=request.dry_run,
        )
        response.proxy_id = self._proxy_id
        return response

    async def AdviseAuthReconnect(  # noqa: N802
        self, request: fleet_pb2.AdviseAuthReconnectRequest, context: Context
    ) -> fleet_pb2.AdviseReconnectResponse:
        """Advise agents to connect to another auth, once per advisory id. The response counts tunnels."""
        await self._check(request.advisory_id, request.reason, context)
        if len(request.leave_auth_id) > LONGEST_ID:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"leave_auth_id: longer than {LONGEST_ID} characters"
            )
        advisory = fleet_pb2.AuthReconnectAdvisory(
            advisory_id=request.advisory_id,
            reason=request.reason or _NO_REASON,
            leave_auth_id=request.leave_auth_id,
        )
        response = self._tunnels.auth_reconnect_advisor.advise_agents(
            advisory, frozenset(request.agent_ids), request.limit, dry_run=request.dry_run
        )
        response.proxy_id = self._proxy_id
        return response

    async def _check(self, advisory_id: str, reason: str, context: Context) -> None:
        """End the RPC if the caller is no operator, or if the advisory id or the reason is invalid."""
        await operators.require_operator(context, "reconnect agents", self._host)
        if not 0 < len(advisory_id) <= LONGEST_ID:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"advisory_id: must have 1 to {LONGEST_ID} characters"
            )
        await operators.require_reason(context, reason)
