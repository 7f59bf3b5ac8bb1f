"""grpc.health.v1.Health, driven by the process state: ok is SERVING, everything else NOT_SERVING.

Our own servicer: the library's starts as SERVING, answers List with UNIMPLEMENTED, and lets one blocked watcher
delay all.
https://github.com/grpc/grpc/blob/master/doc/health-checking.md
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.protocol import announce
from fleet.transport.process import ProcessState

Context = grpc.aio.ServicerContext[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse]

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class HealthServicer:
    """Health of the whole server, service name "". Method names are those of the .proto."""

    def __init__(self, process: ProcessState) -> None:
        self._status = _NOT_SERVING
        # Replaced at each change: whoever waits on the old one wakes up and looks.
        self._changed = asyncio.Event()
        process.listen(self._follow)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve it."""
        health_pb2_grpc.add_HealthServicer_to_server(self, server)

    async def Check(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """Answer the status now; NOT_FOUND for a service by name."""
        if request.service:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"unknown service {request.service!r}")
        return health_pb2.HealthCheckResponse(status=self._status)

    async def List(  # noqa: N802
        self, request: health_pb2.HealthListRequest, context: Context
    ) -> health_pb2.HealthListResponse:
        """Answer the status of every service: there is one."""
        del request, context
        status = health_pb2.HealthCheckResponse(status=self._status)
        return health_pb2.HealthListResponse(statuses={"": status})

    async def Watch(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Answer the status now and on every change, each once."""
        del context
        if request.service:
            yield health_pb2.HealthCheckResponse(status=_SERVICE_UNKNOWN)
            await asyncio.Event().wait()  # the protocol keeps the stream open: the service may come to be
        told = None
        while True:
            changed, status = self._changed, self._status
            if status != told:
                yield health_pb2.HealthCheckResponse(status=status)
                told = status
            await changed.wait()

    def _follow(self, state: announce.State) -> None:
        self._status = _SERVING if announce.is_serving(state) else _NOT_SERVING
        self._changed.set()
        self._changed = asyncio.Event()
