"""fleet.v1.InstanceAdmin: drains an instance or marks it degraded, on request of an operator or the web app."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from fleet.nodes.shared import operators
from fleet.transport.declared_status import DeclaredStatus
from fleet.wire import fleet_pb2, fleet_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]
_Request = fleet_pb2.SetDeclaredStatusRequest


class InstanceAdminServicer:
    """The gRPC service. Method names are those of the .proto."""

    def __init__(self, instance_id: str, declared_status: DeclaredStatus, host: str = "127.0.0.1") -> None:
        """`host` is the address on which the instance listens."""
        self._instance_id = instance_id
        self._declared_status = declared_status
        self._host = host

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service on a gRPC server."""
        fleet_pb2_grpc.add_InstanceAdminServicer_to_server(self, server)

    async def SetDeclaredStatus(  # noqa: N802
        self, request: fleet_pb2.SetDeclaredStatusRequest, context: Context
    ) -> fleet_pb2.SetDeclaredStatusResponse:
        """Drain, undrain, mark degraded or clear degraded. Repeating a request changes nothing."""
        await operators.require_operator(context, "drain instances", self._host)
        await operators.require_reason(context, request.reason)
        declared_status, reason = self._declared_status, request.reason
        match request.declaration:
            case _Request.DECLARATION_DRAIN:
                declared_status.drain(reason)
            case _Request.DECLARATION_UNDRAIN:
                declared_status.undrain()
            case _Request.DECLARATION_DEGRADE:
                declared_status.degrade(reason, request.duration_ms / 1000 or None)
            case _Request.DECLARATION_RESTORE:
                declared_status.restore()
            case _:
                await context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"declaration: {request.declaration} is not a known action",
                )
        return fleet_pb2.SetDeclaredStatusResponse(
            instance_id=self._instance_id,
            draining=declared_status.draining_declaration is not None,
            degraded=declared_status.degraded_declaration is not None,
        )
