"""fleet.v1.TunnelAdmin: an operator, or a console, asks a proxy to advise its agents to reconnect."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from fleet.nodes import operators
from fleet.nodes.instance import LONGEST_ID
from fleet.nodes.reconnects import Reconnects
from fleet.wire import fleet_pb2, fleet_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]


class TunnelAdminServicer:
    """Method names are those of the .proto."""

    def __init__(self, proxy_id: str, reconnects: Reconnects, host: str = "127.0.0.1") -> None:
        """`host` is where the proxy listens."""
        self._proxy_id = proxy_id
        self._host = host
        self._reconnects = reconnects

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve it."""
        fleet_pb2_grpc.add_TunnelAdminServicer_to_server(self, server)

    async def AdviseReconnect(  # noqa: N802
        self, request: fleet_pb2.AdviseReconnectRequest, context: Context
    ) -> fleet_pb2.AdviseReconnectResponse:
        """Advise once for each id; the answer counts tunnels."""
        await operators.demand(context, "move agents", self._host)
        if not 0 < len(request.advisory_id) <= LONGEST_ID:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"advisory_id: needs 1 to {LONGEST_ID} characters"
            )
        await operators.demand_reason(context, request.reason)
        advice = self._reconnects.ask(
            request.advisory_id,
            request.reason or "an operator asked for it",
            frozenset(request.agent_ids),
            request.limit,
            look_only=request.look_only,
        )
        return fleet_pb2.AdviseReconnectResponse(
            proxy_id=self._proxy_id,
            advised=advice.advised,
            already=advice.already,
            left=advice.left,
            absent=advice.absent,
            staying=advice.staying,
            staying_ids=advice.staying_ids,
            absent_ids=advice.absent_ids,
        )
