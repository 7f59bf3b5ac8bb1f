"""The services of a proxy for agents: Control and Register, two streams of one connection that form one tunnel.

1. The agent sends a hello on Control, and receives the proxy's. A certificate, if required, must prove the agent's id
   and name.
2. The agent registers `_status.AGENT-ID` on the same connection, as a target of TCP over gRPC. From then on the tunnel
   counts.
3. If one stream ends, so does the other; with both, the sessions end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Hashable
from typing import Any

import grpc
import grpc.aio

from fleet import __version__
from fleet.nodes.proxy.auth_reconnects import AuthReconnectAdvisor
from fleet.nodes.proxy.metrics import ProxyMetrics
from fleet.nodes.proxy.reconnects import ReconnectAdvisor
from fleet.nodes.proxy.tunnels import Tunnel, TunnelTable
from fleet.nodes.shared import agent_admission
from fleet.nodes.shared.refusals import Refusals, host_of
from fleet.nodes.shared.response_limiter import ResponseLimiter
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery import auth_path
from fleet.protocol.recovery.discovery import Publisher
from fleet.protocol.tunnel import agent_services
from fleet.protocol.tunnel.messages import Target, TunnelError, WireVersion
from fleet.protocol.tunnel.server_state import ClientConnection, Limits
from fleet.transport import peers
from fleet.transport.tunnel.handlers import SessionHandler
from fleet.transport.tunnel.server import TunnelServer, serve_tunnels
from fleet.transport.tunnel.stream import TunnelStream
from fleet.wire import fleet_pb2, fleet_pb2_grpc

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

#: Seconds within which a connecting agent must send its hello.
_HELLO_WITHIN = 10.0
#: Most tunnels in one response of the feed.
_MOST_TUNNELS = 5_000
#: Limits per agent: sessions that wait for a service to respond, and seconds for each; targets (its services and its
#: status); its own sessions to auths, one per connection.
_LIMITS = Limits(max_pending_sessions=256, set_up_timeout=15.0, max_targets=256, max_sessions=16)


def key_of(peer: Hashable, wire: WireVersion) -> Hashable:
    """Return the key of a client's connection: one host and port may have a connection on each of two listeners."""
    return peer if wire is WireVersion.V0_2 else f"{peer}/{wire.value}"


class ReverseTunnels:
    """All tunnels of a proxy, and the services that create them."""

    def __init__(
        self,
        proxy_id: str,
        cluster: str,
        publisher: Publisher,
        keep_alive: KeepAlive,
        metrics: ProxyMetrics,
        refusals: Refusals,
        reconnect_interval: float = 0.0,
        auth_handler: SessionHandler | None = None,
    ) -> None:
        """Start without tunnels. `reconnect_interval`: seconds between the periodic advice to reconnect; 0: never."""
        self.table = TunnelTable(publisher, keep_alive, metrics, self._on_tunnel_closed)
        self.reconnect_advisor = ReconnectAdvisor(self.table, reconnect_interval, metrics)
        self.auth_reconnect_advisor = AuthReconnectAdvisor(self.table, metrics)
        self.refusals = refusals
        #: No new agents are admitted, because the proxy is shutting down or an operator drained it.
        self.is_shutting_down = False
        self.is_drained = False
        self._proxy_id = proxy_id
        self._cluster = cluster
        self._servers = {wire: self._make_server(wire, auth_handler) for wire in WireVersion}

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the services on a gRPC server that has not started yet."""
        self.add_tunnels_to(server, WireVersion.V0_2)
        fleet_pb2_grpc.add_TunnelFeedServicer_to_server(
            TunnelFeedServicer(self._proxy_id, self.table), server
        )

    def add_tunnels_to(self, server: grpc.aio.Server, wire: WireVersion) -> None:
        """Register the tunnel services of one protocol version on a gRPC server that has not started yet."""
        serve_tunnels(server, self._servers[wire])
        fleet_pb2_grpc.add_TunnelControlServicer_to_server(
            TunnelControlServicer(self._proxy_id, self, wire), server
        )

    async def open_session(self, tunnel: Tunnel, service: str) -> TunnelStream:
        """Open a session to a service of an agent. Raises TunnelError."""
        if tunnel.register_client is None:
            raise TunnelError("the agent's tunnel is down")
        target = agent_services.target_of(service, tunnel.agent_id)
        return await self._servers[tunnel.wire].open_session(target, to=tunnel.register_client)

    def refusal_of(
        self, hello: fleet_pb2.AgentHello, context: Context, wire: WireVersion = WireVersion.V0_2
    ) -> str:
        """Return why an agent is not admitted; empty if it is."""
        if self.table.find_by_connection(key_of(context.peer(), wire)) is not None:
            return "this connection already has a tunnel; use a new connection for another tunnel"
        caller = peers.caller_of(context)
        return agent_admission.identity_refusal_of(caller, hello.agent_id, hello.name, self._cluster)

    def _make_server(self, wire: WireVersion, auth_handler: SessionHandler | None) -> TunnelServer:
        return TunnelServer(
            wire,
            handler=auth_handler,
            local=auth_path.TARGETS,
            may_claim=agent_services.may_claim,
            is_silent=lambda client: self.table.is_silent(client.key, time.monotonic()),
            limits=_LIMITS,
            on_client=lambda client, is_connected: self._on_client(wire, client, is_connected),
            on_target=self._on_target,
            on_capabilities=self._on_capabilities,
        )

    def _on_client(self, wire: WireVersion, client: ClientConnection, is_connected: bool) -> None:
        tunnel = self.table.find_by_connection(key_of(client.key, wire))
        if is_connected:
            if tunnel is None and not client.peer.name:
                return  # it registers nothing, and only opens sessions to auths
            if tunnel is None or not _is_agent_of(tunnel, client) or tunnel.register_client is not None:
                reason = (
                    "send a hello on the Control stream of this connection first, as the agent that registers"
                )
                self._servers[wire].end_client(client, reason)
                return
            tunnel.register_client = client
        elif tunnel is not None and tunnel.register_client is client:
            tunnel.register_client = None
            tunnel.end("the Register stream ended", time.monotonic())

    def _on_target(self, target: Target, is_registered: bool) -> None:
        service, agent_id = agent_services.split_target(target)
        if service != agent_services.STATUS_SERVICE:
            return
        owner = self._servers[WireVersion.V0_2].owner(target)
        if is_registered and owner is not None:
            self._join(self.table.find_by_connection(owner.key))
        elif owner is None and (tunnel := self.table.find_current(agent_id)) is not None:
            tunnel.end("the agent removed its status target", time.monotonic())

    def _on_capabilities(self, client: ClientConnection) -> None:
        """Handle a client of version 0.1, which registers no targets: its tunnel counts once it has a handler."""
        tunnel = self.table.find_by_connection(key_of(client.key, WireVersion.V0_1))
        if tunnel is None or tunnel.register_client is not client:
            return
        if client.has_handler:
            self._join(tunnel)
        else:
            self._servers[WireVersion.V0_1].end_client(
                client, "an agent must have a handler, because it serves sessions"
            )

    def _join(self, tunnel: Tunnel | None) -> None:
        if tunnel is not None:
            now = time.monotonic()
            self.table.join(tunnel, now)
            self.reconnect_advisor.add_tunnel(tunnel, now)

    def _on_tunnel_closed(self, tunnel: Tunnel) -> None:
        self.reconnect_advisor.remove_tunnel(tunnel)
        if tunnel.register_client is not None:
            register, tunnel.register_client = tunnel.register_client, None
            self._servers[tunnel.wire].end_client(register, tunnel.end_reason or "the Control stream ended")


def _is_agent_of(tunnel: Tunnel, client: ClientConnection) -> bool:
    """Return whether a Register stream belongs to the agent that sent the hello on its connection.

    Other clients of version 0.1 have no name: then the same connection is enough.
    """
    return client.peer.name == tunnel.agent_id or (tunnel.wire is WireVersion.V0_1 and not client.peer.name)


class TunnelControlServicer:
    """fleet.v1.TunnelControl. Method names here and below are those of the .proto."""

    def __init__(self, proxy_id: str, tunnels: ReverseTunnels, wire: WireVersion = WireVersion.V0_2) -> None:
        self._wire = wire
        self._hello = fleet_pb2.ProxyFrame(hello=fleet_pb2.ProxyHello(proxy_id=proxy_id, version=__version__))
        self._tunnels = tunnels
        self._table = tunnels.table

    async def Control(  # noqa: N802
        self, requests: AsyncIterator[fleet_pb2.AgentFrame], context: Context
    ) -> AsyncIterator[fleet_pb2.ProxyFrame]:
        """Serve one tunnel: exchange hellos, then pings, discovery and advice until either end closes."""
        if self._tunnels.is_shutting_down:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this proxy is shutting down")
        if self._tunnels.is_drained:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, "this proxy is drained and accepts no new agents"
            )
        hello = await self._expect_hello(requests, context)
        refusal = self._tunnels.refusal_of(hello, context, self._wire)
        if refusal:
            host = host_of(context.peer())
            self._tunnels.refusals.record("tunnel", host, f"agent {hello.name[:40]!r} at {host}", refusal)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal)
        key = key_of(context.peer(), self._wire)
        tunnel = self._table.open(hello, key, time.monotonic(), self._wire)
        tunnel.task = asyncio.current_task()
        reader = asyncio.create_task(self._read(tunnel, requests), name=f"tunnel of {tunnel.agent_name}")
        try:
            yield self._hello
            while (frame := await tunnel.next_frame(time.monotonic)) is not None:
                yield frame
        finally:
            reader.cancel()
            self._table.close(tunnel)
        if tunnel.end_reason:
            await context.abort(grpc.StatusCode.ABORTED, tunnel.end_reason)

    async def _expect_hello(
        self, requests: AsyncIterator[fleet_pb2.AgentFrame], context: Context
    ) -> fleet_pb2.AgentHello:
        try:
            async with asyncio.timeout(_HELLO_WITHIN):
                first_frame = await anext(requests, None)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no hello arrived in time")
        hello = fleet_pb2.AgentHello() if first_frame is None else first_frame.hello
        if refusal := agent_admission.hello_refusal_of(hello):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, refusal)
        return hello

    async def _read(self, tunnel: Tunnel, requests: AsyncIterator[fleet_pb2.AgentFrame]) -> None:
        try:
            async for frame in requests:
                self._table.record_frame(tunnel, time.monotonic())
                self._handle_frame(tunnel, frame)
                await tunnel.wait_for_room()
        except grpc.aio.AioRpcError as error:
            log.debug("tunnel of %s broke: %s", tunnel.agent_name, error)
        except Exception:  # ends only this tunnel
            log.exception(
                "tunnel.failed: %s: an internal error of this proxy ends the tunnel", tunnel.agent_name
            )
        # Empty, because the agent closed the tunnel: that is no error.
        tunnel.end("", time.monotonic())

    def _handle_frame(self, tunnel: Tunnel, frame: fleet_pb2.AgentFrame) -> None:
        if frame.HasField("ping"):
            tunnel.ping_interval = frame.ping.keep_alive_interval_ms / 1000
            tunnel.send(fleet_pb2.ProxyFrame(pong=fleet_pb2.Pong(sequence=frame.ping.sequence)))
        elif frame.HasField("advisory_reply"):
            self._tunnels.reconnect_advisor.record_reply(tunnel, frame.advisory_reply)
        elif frame.HasField("auth_advisory_reply"):
            self._tunnels.auth_reconnect_advisor.record_reply(tunnel, frame.auth_advisory_reply)
        elif frame.HasField("retiring"):
            self._table.retire(tunnel)
            self._tunnels.reconnect_advisor.remove_tunnel(tunnel)
        else:
            # A second hello or an unknown frame: ignored, and the tunnel stays open.
            host = host_of(str(tunnel.key))
            self._tunnels.refusals.record(
                "frame",
                host,
                f"agent {tunnel.agent_name[:40]!r} at {host}",
                "the frame is empty or a second hello",
            )


class TunnelFeedServicer:
    """fleet.v1.TunnelFeed: the live tunnels of the proxy."""

    def __init__(self, proxy_id: str, table: TunnelTable) -> None:
        self._proxy_id = proxy_id
        self._table = table
        self._response_limiter = ResponseLimiter()

    async def ListTunnels(  # noqa: N802
        self, request: fleet_pb2.ListTunnelsRequest, context: Context
    ) -> fleet_pb2.ListTunnelsResponse:
        """Return the tunnels that opened and closed since a revision."""
        await self._response_limiter.admit(context)
        limit = min(request.limit or _MOST_TUNNELS, _MOST_TUNNELS)
        page = self._table.since(request.epoch, request.since_revision, limit)
        now = time.monotonic()
        return fleet_pb2.ListTunnelsResponse(
            epoch=page.epoch,
            revision=page.revision,
            full=page.full,
            more=page.more,
            tunnels=[
                fleet_pb2.TunnelEntry(
                    agent_id=tunnel.agent_id,
                    agent_name=tunnel.agent_name,
                    open_for_ms=int((now - tunnel.opened_at) * 1000),
                    sessions=len(tunnel.sessions),
                )
                for tunnel in page.updates
            ],
            closed=page.removed_keys,
            proxy_id=self._proxy_id,
        )
