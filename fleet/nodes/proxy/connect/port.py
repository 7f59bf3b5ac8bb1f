"""The CONNECT port of a proxy: users reach services of agents by HTTP CONNECT, as `curl --proxytunnel` and ssh do.

1. The proxy reads the head and authenticates the user (`access.py`), who asks for SERVICE.AGENT.
2. The proxy opens a session through the agent's tunnel, or connects to the proxy that has one (`peers.py`). If that
   fails, the user receives the error.
3. Bytes are copied both ways, and each side ends when the other does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Iterator

import h11

from fleet.nodes.proxy.connect.access import ConnectAccess, ConnectFlags
from fleet.nodes.proxy.connect.head import RequestProtocol
from fleet.nodes.proxy.connect.metrics import ConnectMetrics
from fleet.nodes.proxy.connect.peers import Peers
from fleet.nodes.proxy.connect.pending_connections import PendingConnections
from fleet.nodes.proxy.reverse_tunnels import ReverseTunnels
from fleet.nodes.proxy.tunnels import Tunnel
from fleet.nodes.shared import addresses, lifecycle
from fleet.nodes.shared.connect_client import ServiceConnectionLostError, splice
from fleet.nodes.shared.instance import Instance
from fleet.processes import background
from fleet.protocol.tunnel import connect
from fleet.protocol.tunnel.connect import RefusalReason, RefusedError, ServiceTarget
from fleet.protocol.tunnel.messages import TunnelError
from fleet.transport.listen_sockets import stop_listening
from fleet.transport.tunnel.pump import TcpConnection, pump
from fleet.transport.tunnel.stream import TunnelStream

log = logging.getLogger(__name__)

#: Seconds from connecting to the complete head, and from there to the agent's response.
_HEAD_WITHIN = 10.0
_RESPONSE_WITHIN = 10.0
#: Seconds for the TLS handshake and for the TLS shutdown.
_TLS_WITHIN = 5.0
_BACKLOG = 1024
#: Most connections without a request. They must not use up the limit of users.
_MAX_PENDING_CONNECTIONS = 1_000
_PEER_HEADER = connect.PEER_HEADER.lower().encode()


class ConnectPort:
    """The CONNECT port of a running proxy."""

    def __init__(
        self, flags: ConnectFlags, instance: Instance, tunnels: ReverseTunnels, metrics: ConnectMetrics
    ) -> None:
        """Raises NodeStartError if it would admit everybody from other machines."""
        self._flags = flags
        self._access = ConnectAccess(flags, instance.flags.tls)
        self._peers = Peers(instance, flags.tokens[0] if flags.tokens else "")
        self._tunnels = tunnels
        self._table = tunnels.table
        self._metrics = metrics
        self._server: asyncio.Server | None = None
        #: Tasks of all connections; those without a request yet; number of admitted ones.
        self._connection_tasks: set[asyncio.Task[None]] = set()
        self._pending_connections: PendingConnections[RequestProtocol] = PendingConnections()
        self._user_count = 0
        self.address = ""

    @property
    def advertised_address(self) -> str:
        """host:port at which others reach the port."""
        return addresses.join(*self._flags.advertise) if self._flags.advertise else self.address

    async def start(self) -> None:
        """Start listening. Raises NodeStartError."""
        loop = asyncio.get_running_loop()
        tls_timeout = None if self._access.tls is None else _TLS_WITHIN
        listen = self._flags.listen
        server_start = loop.create_server(
            lambda: RequestProtocol(self._on_connect),
            *listen,
            ssl=self._access.tls,
            backlog=_BACKLOG,
            ssl_handshake_timeout=tls_timeout,
            ssl_shutdown_timeout=tls_timeout,
        )
        self._server = await lifecycle.start_listening(listen, server_start)
        self.address = addresses.join(listen[0], self._server.sockets[0].getsockname()[1])

    async def stop_accepting(self) -> None:
        """Stop listening."""
        if self._server is not None:
            server, self._server = self._server, None
            await stop_listening(server)

    async def wait_until_empty(self) -> None:
        """Wait until all connections have ended."""
        while self._connection_tasks:
            await asyncio.wait(list(self._connection_tasks))

    async def stop(self) -> None:
        """Stop listening and end all connections."""
        await self.stop_accepting()
        await background.stop(self._connection_tasks)

    def _on_connect(self, client: RequestProtocol) -> None:
        evicted_client = self._pending_connections.add(
            client, _client_host_of(client), _MAX_PENDING_CONNECTIONS
        )
        if evicted_client is not None:
            self._metrics.record_refusal(RefusalReason.BUSY)
            evicted_client.transport.abort()
        task = asyncio.get_running_loop().create_task(self._serve(client), name="user of the CONNECT port")
        self._connection_tasks.add(task)
        task.add_done_callback(self._connection_tasks.discard)

    async def _serve(self, client: RequestProtocol) -> None:
        try:
            await self._serve_request(client)
        except ConnectionError:
            pass  # the client has left
        except Exception:
            log.exception("connect.failed: a user's connection failed with an internal error")
        finally:
            self._pending_connections.remove(client)
            if client.transport.get_protocol() is client:
                client.transport.close()

    async def _serve_request(self, client: RequestProtocol) -> None:
        try:
            request = await client.read(_HEAD_WITHIN)
            service_target = self._admit(client, request)
            self._pending_connections.remove(client)
            with self._reserve_user_slot():
                await self._connect(client, request, service_target)
        except RefusedError as refusal:
            self._metrics.record_refusal(refusal.reason)
            log.info("connect.refused: %s, %s: %s", _client_address_of(client), refusal.reason.label, refusal)
            await client.refuse(refusal)

    @contextlib.contextmanager
    def _reserve_user_slot(self) -> Iterator[None]:
        if self._user_count >= self._flags.user_limit:
            raise RefusedError(
                RefusalReason.BUSY,
                f"this proxy has reached its limit of {self._flags.user_limit} user connections; try again later",
            )
        self._user_count += 1
        try:
            yield
        finally:
            self._user_count -= 1

    async def _connect(
        self, client: RequestProtocol, request: h11.Request, service_target: ServiceTarget
    ) -> None:
        tunnel = self._find_tunnel(service_target)
        if tunnel is None:
            await self._carry_to_peer(client, service_target, await self._dial_peer(request, service_target))
            return
        stream = await self._open_session(tunnel, service_target)
        self._table.begin_session(tunnel, stream)
        try:
            await self._carry_to_agent(client, service_target, stream)
        finally:
            self._table.end_session(tunnel, stream, time.monotonic())

    def _admit(self, client: RequestProtocol, request: h11.Request) -> ServiceTarget:
        headers = {name: value for name, value in request.headers if name == b"proxy-authorization"}
        authorization = headers.get(b"proxy-authorization", b"").decode("latin-1")
        self._access.check(authorization, client.transport.get_extra_info("peercert"))
        if request.method != b"CONNECT":
            method = request.method.decode("latin-1")
            raise RefusedError(
                RefusalReason.METHOD,
                f"method {method} is not allowed: this port serves CONNECT only (curl: --proxytunnel)",
            )
        connect.check_framing(request.headers)
        return connect.parse(request.target.decode("latin-1"))

    def _find_tunnel(self, service_target: ServiceTarget) -> Tunnel | None:
        if self._tunnels.is_shutting_down:
            raise RefusedError(RefusalReason.DRAINING, "this proxy is shutting down")
        tunnels = self._table.find_by_id_or_name(service_target.agent)
        if len(tunnels) > 1:
            ids = ", ".join(tunnel.agent_id for tunnel in tunnels)
            raise RefusedError(
                RefusalReason.AMBIGUOUS,
                f"several agents have the name {service_target.agent}; use an id instead: {ids}",
            )
        return tunnels[0] if tunnels else None

    async def _dial_peer(self, request: h11.Request, service_target: ServiceTarget) -> TcpConnection:
        if any(name == _PEER_HEADER for name, _ in request.headers):
            raise RefusedError(
                RefusalReason.NO_AGENT, f"agent {service_target.agent!r} has no tunnel to this proxy"
            )
        return await self._peers.dial(service_target)

    async def _open_session(self, tunnel: Tunnel, service_target: ServiceTarget) -> TunnelStream:
        try:
            async with asyncio.timeout(_RESPONSE_WITHIN):
                return await self._tunnels.open_session(tunnel, service_target.service)
        except TimeoutError:
            raise RefusedError(
                RefusalReason.TIMEOUT,
                f"agent {tunnel.agent_name} did not respond within {_RESPONSE_WITHIN:g} s",
            ) from None
        except TunnelError as error:
            raise RefusedError(RefusalReason.AGENT, str(error)) from None

    async def _carry_to_agent(
        self, client: RequestProtocol, service_target: ServiceTarget, stream: TunnelStream
    ) -> None:
        try:
            connection = _take_over(client)
        except ConnectionError:
            stream.abort("the client has left")
            raise
        await self._run_transfer(client, service_target, connection, pump(connection, stream))

    async def _carry_to_peer(
        self, client: RequestProtocol, service_target: ServiceTarget, peer: TcpConnection
    ) -> None:
        try:
            connection = _take_over(client)
        except ConnectionError:
            peer.reset()
            raise
        self._metrics.record_peering()
        await self._run_transfer(
            client, service_target, connection, splice(connection, peer, wait_for_both=True)
        )

    async def _run_transfer(
        self,
        client: RequestProtocol,
        service_target: ServiceTarget,
        connection: TcpConnection,
        transfer: Awaitable[None],
    ) -> None:
        self._metrics.record_open(connection)
        is_aborted = True
        try:
            await transfer
            is_aborted = False
        except (TunnelError, ServiceConnectionLostError) as error:
            log.info("connect.aborted: %s: %s", _client_address_of(client), error)
        except asyncio.CancelledError:
            # The drain time is over. Log whose connection is cut, because nothing else explains it to the user. A
            # metric would be useless: the process ends before a scrape.
            log.warning(
                "connect.drain-timeout: %s, connected to %s of agent %s",
                _describe_user(client),
                service_target.service,
                service_target.agent,
            )
            raise
        finally:
            self._metrics.record_close(connection, is_aborted=is_aborted)


def _take_over(client: RequestProtocol) -> TcpConnection:
    """Respond with HTTP 200, and return the connection that continues. Raises ConnectionError."""
    connection = TcpConnection()
    connection.take_over(client.transport, client.accept())
    if client.at_eof:
        connection.eof_received()
    return connection


def _client_address_of(client: RequestProtocol) -> str:
    peer = client.transport.get_extra_info("peername")
    return addresses.join(*peer[:2]) if peer else "unknown client"


def _client_host_of(client: RequestProtocol) -> str:
    peer = client.transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""


def _describe_user(client: RequestProtocol) -> str:
    """Return the user's certificate name, if any, and address."""
    certificate = client.transport.get_extra_info("peercert") or {}
    names = [
        common_name
        for part in certificate.get("subject", ())
        for key, common_name in part
        if key == "commonName"
    ]
    return f"{names[0]} at {_client_address_of(client)}" if names else _client_address_of(client)
