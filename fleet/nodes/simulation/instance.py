"""One simulated instance on real ports: gRPC with health checks, and the diag endpoints.

docs/reference/simulated-fleet.md.

A frozen instance behaves as after SIGSTOP: it keeps and accepts connections, but does not respond.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio
from aiohttp import web
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from typing_extensions import override

from fleet.nodes.simulation.advice import SimulatedReconnectAdvisor, SimulatedTunnelAdmin
from fleet.nodes.simulation.fleet import InstanceModel, SimulatedFleet
from fleet.nodes.simulation.services import (
    Clock,
    Directory,
    SimulatedAgentFeed,
    SimulatedAgentStatus,
    SimulatedPresence,
    SimulatedServiceConfigDiscovery,
    SimulatedTunnelFeed,
)
from fleet.vocabulary.instances import InstanceKind
from fleet.wire import agent_status_pb2_grpc, fleet_pb2_grpc, grpcclientconfig_pb2_grpc, presence_pb2_grpc

_HOST = "127.0.0.1"


class _Gate(grpc.aio.ServerInterceptor):
    """Holds every request while the instance is frozen. The wait ends with the deadline or a resume."""

    def __init__(self) -> None:
        self.passable = asyncio.Event()
        self.passable.set()

    @override
    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        await self.passable.wait()
        return await continuation(handler_call_details)


class SimulatedInstance:
    """Serves one instance, with the faults that the model has for it."""

    def __init__(
        self,
        fleet: SimulatedFleet,
        instance: InstanceModel,
        directory: Directory,
        clock: Clock,
        advisor: SimulatedReconnectAdvisor,
    ) -> None:
        self._fleet = fleet
        self._instance = instance
        self._directory = directory
        self._clock = clock
        self._advisor = advisor
        self._gate = _Gate()
        self._grpc_port = 0
        self._diag_port = 0
        # Keep a reference to the server: a garbage-collected grpc.aio server stops serving.
        self._server: grpc.aio.Server | None = None
        self._health = health.aio.HealthServicer()
        self._diag: web.ServerRunner | None = None

    @property
    def addresses(self) -> tuple[str, str]:
        """host:port of gRPC and of the diag endpoints, after the start. A kill does not change them."""
        return f"{_HOST}:{self._grpc_port}", f"{_HOST}:{self._diag_port}"

    async def apply_state(self) -> None:
        """Apply the instance's faults: up or down, frozen, unhealthy. Raises OSError."""
        if self._instance.is_killed:
            await self.stop()
            return
        if self._server is None:
            await self._start()
        health_response = health_pb2.HealthCheckResponse
        status = health_response.NOT_SERVING if self._instance.is_unhealthy else health_response.SERVING
        await self._health.set("", status)
        if self._instance.is_frozen:
            self._gate.passable.clear()
        else:
            self._gate.passable.set()

    async def stop(self) -> None:
        """Refuse new connections and end the open ones."""
        server, diag = self._server, self._diag
        self._server = self._diag = None
        if server is not None:
            await server.stop(None)
        if diag is not None:
            await diag.cleanup()
        self._gate.passable.set()

    async def _start(self) -> None:
        self._health = health.aio.HealthServicer()
        server = grpc.aio.server(interceptors=[self._gate], options=[("grpc.so_reuseport", 0)])
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        self._add_services(server)
        try:
            self._grpc_port = server.add_insecure_port(f"{_HOST}:{self._grpc_port}")
        except RuntimeError as error:
            raise OSError(
                f"{self._instance.name}: cannot listen on port {self._grpc_port}: {error}"
            ) from error
        await server.start()
        self._server = server
        self._diag = web.ServerRunner(
            web.Server(self._handle_request, handler_cancellation=True), shutdown_timeout=0.1
        )
        await self._diag.setup()
        site = web.TCPSite(self._diag, _HOST, self._diag_port)
        await site.start()
        self._diag_port = int(self._diag.addresses[0][1])

    def _add_services(self, server: grpc.aio.Server) -> None:
        if self._instance.kind is InstanceKind.PROXY:
            tunnels = SimulatedTunnelFeed(self._fleet, self._instance, self._clock)
            fleet_pb2_grpc.add_TunnelFeedServicer_to_server(tunnels, server)
            statuses = SimulatedAgentStatus(self._fleet, self._instance, self._clock)
            agent_status_pb2_grpc.add_AgentStatusServicer_to_server(statuses, server)
            admin = SimulatedTunnelAdmin(self._advisor, self._instance)
            fleet_pb2_grpc.add_TunnelAdminServicer_to_server(admin, server)
            return
        fleet_pb2_grpc.add_AgentFeedServicer_to_server(SimulatedAgentFeed(self._fleet, self._clock), server)
        presence = SimulatedPresence(self._fleet, self._directory, self._clock)
        presence_pb2_grpc.add_PresenceServiceServicer_to_server(presence, server)
        grpcclientconfig_pb2_grpc.add_ServiceConfigDiscoveryServiceServicer_to_server(
            SimulatedServiceConfigDiscovery(), server
        )

    async def _handle_request(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serve `/healthz` and `/readyz` with Teleport's status codes and texts."""
        await self._gate.passable.wait()
        if request.path == "/healthz":
            return web.json_response({"status": "ok"})
        if request.path != "/readyz":
            return web.json_response({"error": "not found"}, status=404)
        if self._instance.is_unhealthy:
            status = "teleport is in a degraded state, check logs for details"
            return web.json_response({"status": status}, status=503)
        return web.json_response({"status": "ok"})
