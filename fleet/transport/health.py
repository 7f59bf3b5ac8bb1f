"""grpc.health.v1.Health for an instance: SERVING in process state OK, else NOT_SERVING. Two more services report the
declared status.

A servicer of our own: the library's starts as SERVING, answers List with UNIMPLEMENTED, and lets one blocked watcher
delay all others.
https://github.com/grpc/grpc/blob/master/doc/health-checking.md
"""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.protocol.destination import instance_status
from fleet.protocol.destination.instance_status import ACCEPTING_SERVICE, PREFERRED_SERVICE
from fleet.protocol.recovery import announce
from fleet.protocol.text_limits import LONGEST_NAME
from fleet.transport.declared_status import DeclaredStatus
from fleet.transport.process import ProcessHealth

Context = grpc.aio.ServicerContext[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse]

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class HealthServicer:
    """Health of the whole server (service name "") and its declared status. Methods are named as in the .proto."""

    def __init__(self, process: ProcessHealth, declared_status: DeclaredStatus | None = None) -> None:
        self._process = process
        self._declared_status = declared_status or DeclaredStatus()
        self._statuses: dict[str, health_pb2.HealthCheckResponse] = {}
        # Replaced at each change, which wakes up all that wait on the old one.
        self._change_event = asyncio.Event()
        process.add_listener(lambda _: self._update_statuses())
        self._declared_status.add_listener(self._update_statuses)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service on a server."""
        health_pb2_grpc.add_HealthServicer_to_server(self, server)

    async def Check(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """Return the current status, with the declared status as metadata; NOT_FOUND for other services."""
        status = self._statuses.get(request.service)
        if status is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"health service {request.service!r} was not found"
            )
        metadata = instance_status.to_headers(self._declared_status.status)
        if metadata:
            context.set_trailing_metadata(tuple(metadata))
        return status

    async def List(  # noqa: N802
        self, request: health_pb2.HealthListRequest, context: Context
    ) -> health_pb2.HealthListResponse:
        """Return the status of every service."""
        del request, context
        return health_pb2.HealthListResponse(statuses=self._statuses)

    async def Watch(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> None:
        """Send the current status, then every change."""
        if request.service not in self._statuses:
            if len(request.service) > LONGEST_NAME:
                # A watch stores its request while it is open.
                details = f"the name of the health service is longer than {LONGEST_NAME} characters"
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, details)
            await context.write(health_pb2.HealthCheckResponse(status=_SERVICE_UNKNOWN))
            await (
                asyncio.Event().wait()
            )  # by the protocol the stream stays open: the service may appear later
        sent_status = None
        while True:
            change_event, status = self._change_event, self._statuses[request.service]
            if status != sent_status:
                await context.write(status)
                sent_status = status
            await change_event.wait()

    def _update_statuses(self) -> None:
        is_process_serving = announce.is_serving(self._process.state)
        own_status = self._declared_status.status
        serving_by_service = {
            "": is_process_serving,
            PREFERRED_SERVICE: is_process_serving and own_status.degraded_reason is None,
            ACCEPTING_SERVICE: is_process_serving and own_status.draining_reason is None,
        }
        self._statuses = {
            name: health_pb2.HealthCheckResponse(status=_SERVING if is_serving else _NOT_SERVING)
            for name, is_serving in serving_by_service.items()
        }
        self._change_event.set()
        self._change_event = asyncio.Event()
