"""grpc.health.v1.Health, driven by the process state: ok is SERVING, everything else NOT_SERVING; and by what the
process says of itself, under two more names.

Our own servicer: the library's starts as SERVING, answers List with UNIMPLEMENTED, and lets one blocked watcher
delay all.
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
    """Health of the whole server, service name "", and of what it says of itself. Method names are those of the
    .proto."""

    def __init__(self, process: ProcessHealth, declared_status: DeclaredStatus | None = None) -> None:
        self._process = process
        self._declared_status = declared_status or DeclaredStatus()
        self._statuses: dict[str, health_pb2.HealthCheckResponse] = {}
        # Replaced at each change: whoever waits on the old one wakes up and looks.
        self._change_event = asyncio.Event()
        process.listen(lambda _: self._update_statuses())
        self._declared_status.listen(self._update_statuses)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve it."""
        health_pb2_grpc.add_HealthServicer_to_server(self, server)

    async def Check(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """Answer the status now, with what it says of itself as metadata; NOT_FOUND for other services."""
        status = self._statuses.get(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"unknown service {request.service!r}")
        metadata = instance_status.headers(self._declared_status.status)
        if metadata:
            context.set_trailing_metadata(tuple(metadata))
        return status

    async def List(  # noqa: N802
        self, request: health_pb2.HealthListRequest, context: Context
    ) -> health_pb2.HealthListResponse:
        """Answer the status of every service."""
        del request, context
        return health_pb2.HealthListResponse(statuses=self._statuses)

    async def Watch(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> None:
        """Answer the status now and on every change, each once."""
        if request.service not in self._statuses:
            if len(request.service) > LONGEST_NAME:
                # A watch keeps its request for as long as it is open.
                details = f"the name of a service has at most {LONGEST_NAME} characters"
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, details)
            await context.write(health_pb2.HealthCheckResponse(status=_SERVICE_UNKNOWN))
            await asyncio.Event().wait()  # the protocol keeps the stream open: the service may come to be
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
