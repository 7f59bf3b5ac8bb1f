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
from fleet.transport.declared_status import Standing
from fleet.transport.process import ProcessState

Context = grpc.aio.ServicerContext[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse]

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class HealthServicer:
    """Health of the whole server, service name "", and of what it says of itself. Method names are those of the
    .proto."""

    def __init__(self, process: ProcessState, own: Standing | None = None) -> None:
        self._process = process
        self._standing = own or Standing()
        self._statuses: dict[str, health_pb2.HealthCheckResponse] = {}
        # Replaced at each change: whoever waits on the old one wakes up and looks.
        self._changed = asyncio.Event()
        process.listen(lambda _: self._follow())
        self._standing.listen(self._follow)

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
        said = instance_status.headers(self._standing.said)
        if said:
            context.set_trailing_metadata(tuple(said))
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
                why = f"the name of a service has at most {LONGEST_NAME} characters"
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
            await context.write(health_pb2.HealthCheckResponse(status=_SERVICE_UNKNOWN))
            await asyncio.Event().wait()  # the protocol keeps the stream open: the service may come to be
        told = None
        while True:
            changed, status = self._changed, self._statuses[request.service]
            if status != told:
                await context.write(status)
                told = status
            await changed.wait()

    def _follow(self) -> None:
        well = announce.is_serving(self._process.state)
        said = self._standing.said
        serving = {
            "": well,
            PREFERRED_SERVICE: well and said.degraded is None,
            ACCEPTING_SERVICE: well and said.draining is None,
        }
        self._statuses = {
            name: health_pb2.HealthCheckResponse(status=_SERVING if good else _NOT_SERVING)
            for name, good in serving.items()
        }
        self._changed.set()
        self._changed = asyncio.Event()
