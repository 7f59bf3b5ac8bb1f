"""Auths and proxies in this process with configurable responses: services of fleet.v1, Teleport and gRPC health."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from typing_extensions import override

from fleet.transport.tls import TLSFiles, server_credentials
from fleet.wire import (
    agent_status_pb2,
    agent_status_pb2_grpc,
    fleet_pb2,
    fleet_pb2_grpc,
    presence_pb2,
    presence_pb2_grpc,
    types_pb2,
)


class FakeInstance:
    """One gRPC port and one diag port. While `freeze_event` is set, gRPC calls wait until the caller gives up."""

    def __init__(self, identity: str, name: str, tls: TLSFiles | None = None) -> None:
        self.id = identity
        self.name = name
        self.serving = health_pb2.HealthCheckResponse.SERVING
        self.readyz = 200
        #: The body of `/metrics`.
        self.metrics = ""
        #: Trailing metadata of health responses, and headers of `/readyz`.
        self.metadata: dict[str, str] = {}
        self.freeze_event = threading.Event()
        self.calls: list[Any] = []
        self._server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        health_pb2_grpc.add_HealthServicer_to_server(_Health(self), self._server)
        self.add_services(self._server)
        port = (
            self._server.add_insecure_port("127.0.0.1:0")
            if tls is None
            else self._server.add_secure_port("127.0.0.1:0", server_credentials(tls))
        )
        self.address = f"127.0.0.1:{port}"
        self._server.start()
        self._diag = ThreadingHTTPServer(("127.0.0.1", 0), _diag(self))
        self.diag_address = f"127.0.0.1:{self._diag.server_address[1]}"
        threading.Thread(target=self._diag.serve_forever, args=(0.05,), daemon=True).start()

    def add_services(self, server: grpc.Server) -> None:
        """Add the services of this kind of instance besides health."""

    def note_call(self, request: Any, context: grpc.ServicerContext) -> None:
        """Record a call, and wait while the instance is frozen."""
        self.calls.append(request)
        while self.freeze_event.is_set() and context.is_active():
            threading.Event().wait(0.01)

    def stop(self) -> None:
        """Close both ports."""
        self.freeze_event.clear()
        self._server.stop(None).wait()
        self._diag.shutdown()
        self._diag.server_close()

    def resource(self, expires_at: float, ttl: str = "10s", **labels: str) -> types_pb2.ServerV2:
        """Return the resource of the instance in presence lists."""
        server = types_pb2.ServerV2()
        server.metadata.name = self.id
        server.metadata.expires.FromMicroseconds(int(expires_at * 1e6))
        server.metadata.labels["refloat.dev/diag-addr"] = self.diag_address
        server.metadata.labels["refloat.dev/announce-ttl"] = ttl
        for name, value in labels.items():
            server.metadata.labels[name] = value
        server.spec.addr, server.spec.hostname, server.spec.version = self.address, self.name, "1"
        return server


class FakeAuth(FakeInstance):
    """Lists the resources resources; `agents` is a function of the request, and `error_code` makes calls fail."""

    def __init__(self, identity: str, name: str, tls: TLSFiles | None = None) -> None:
        self.auths: list[types_pb2.ServerV2] = []
        self.proxies: list[types_pb2.ServerV2] = []
        self.agents: Callable[[fleet_pb2.ListAgentsRequest], fleet_pb2.ListAgentsResponse] = _no_agents
        self.error_code: grpc.StatusCode | None = None
        super().__init__(identity, name, tls)

    @override
    def add_services(self, server: grpc.Server) -> None:
        presence_pb2_grpc.add_PresenceServiceServicer_to_server(_Presence(self), server)
        fleet_pb2_grpc.add_AgentFeedServicer_to_server(_Agents(self), server)


class FakeProxy(FakeInstance):
    """Reports tunnels; `tunnels` is a function of the request."""

    def __init__(self, identity: str, name: str) -> None:
        self.tunnels: Callable[[fleet_pb2.ListTunnelsRequest], fleet_pb2.ListTunnelsResponse] = _no_tunnels
        #: Agent reports by agent id; other agents have no tunnel to this proxy.
        self.statuses: dict[str, str] = {}
        super().__init__(identity, name)

    @override
    def add_services(self, server: grpc.Server) -> None:
        fleet_pb2_grpc.add_TunnelFeedServicer_to_server(_Tunnels(self), server)
        agent_status_pb2_grpc.add_AgentStatusServicer_to_server(_Statuses(self), server)


def agent_entry(
    agent: str, auth: str, *, expires_in: float = 20.0, desired_count: int = 1
) -> fleet_pb2.AgentEntry:
    """Return the entry of an agent in the feed of an auth."""
    resource = fleet_pb2.AgentResource(agent_id=agent, name=agent.removesuffix("-id"), ttl_ms=20_000)
    resource.policy.mode, resource.policy.health_check = "reconnect", True
    resource.tracker.desired_count, resource.tracker.tracked = desired_count, 2
    return fleet_pb2.AgentEntry(agent=resource, auth_id=auth, expires_in_ms=int(expires_in * 1000))


def _no_agents(request: fleet_pb2.ListAgentsRequest) -> fleet_pb2.ListAgentsResponse:
    return fleet_pb2.ListAgentsResponse(epoch="agents", revision=1, full=request.epoch != "agents")


def _no_tunnels(request: fleet_pb2.ListTunnelsRequest) -> fleet_pb2.ListTunnelsResponse:
    return fleet_pb2.ListTunnelsResponse(epoch="tunnels", revision=1, full=request.epoch != "tunnels")


class _Health(health_pb2_grpc.HealthServicer):
    def __init__(self, instance: FakeInstance) -> None:
        self._instance = instance

    @override
    def Check(self, request: Any, context: grpc.ServicerContext) -> health_pb2.HealthCheckResponse:
        self._instance.note_call(request, context)
        context.set_trailing_metadata(tuple(self._instance.metadata.items()))
        return health_pb2.HealthCheckResponse(status=self._instance.serving)


class _Presence(presence_pb2_grpc.PresenceServiceServicer):
    def __init__(self, instance: FakeAuth) -> None:
        self._instance = instance

    @override
    def ListAuthServers(self, request: Any, context: Any) -> presence_pb2.ListAuthServersResponse:
        self._instance.note_call(request, context)
        if self._instance.error_code is not None:
            context.abort(self._instance.error_code, "told to fail")
        return presence_pb2.ListAuthServersResponse(servers=self._instance.auths)

    @override
    def ListProxyServers(self, request: Any, context: Any) -> presence_pb2.ListProxyServersResponse:
        """Return one proxy per page."""
        self._instance.note_call(request, context)
        at = int(request.page_token or 0)
        more = at + 1 < len(self._instance.proxies)
        return presence_pb2.ListProxyServersResponse(
            servers=self._instance.proxies[at : at + 1], next_page_token=str(at + 1) if more else ""
        )


class _Agents(fleet_pb2_grpc.AgentFeedServicer):
    def __init__(self, instance: FakeAuth) -> None:
        self._instance = instance

    @override
    def ListAgents(self, request: Any, context: Any) -> fleet_pb2.ListAgentsResponse:
        self._instance.note_call(request, context)
        if self._instance.error_code is not None:
            context.abort(self._instance.error_code, "told to fail")
        return self._instance.agents(request)


class _Tunnels(fleet_pb2_grpc.TunnelFeedServicer):
    def __init__(self, instance: FakeProxy) -> None:
        self._instance = instance

    @override
    def ListTunnels(self, request: Any, context: Any) -> fleet_pb2.ListTunnelsResponse:
        self._instance.note_call(request, context)
        return self._instance.tunnels(request)


class _Statuses(agent_status_pb2_grpc.AgentStatusServicer):
    def __init__(self, instance: FakeProxy) -> None:
        self._instance = instance

    @override
    def ReadAgentStatus(self, request: Any, context: Any) -> agent_status_pb2.ReadAgentStatusResponse:
        self._instance.note_call(request, context)
        document = self._instance.statuses.get(request.agent_id)
        if document is None:
            context.abort(
                grpc.StatusCode.NOT_FOUND, f"agent {request.agent_id!r} has no live tunnel to this proxy"
            )
        return agent_status_pb2.ReadAgentStatusResponse(document=document.encode())


def _diag(instance: FakeInstance) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            while instance.freeze_event.is_set():
                threading.Event().wait(0.01)
            body = instance.metrics.encode() if self.path == "/metrics" else b""
            self.send_response({"/readyz": instance.readyz, "/metrics": 200}.get(self.path, 404))
            self.send_header("Content-Length", str(len(body)))
            for name, value in instance.metadata.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    return Handler
