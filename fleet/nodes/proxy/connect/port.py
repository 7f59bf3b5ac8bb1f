"""A proxy's CONNECT port: users reach services of agents by HTTP CONNECT, as `curl --proxytunnel` and ssh do.

1. The head is read and its sender let in (`access.py`); it asks for SERVICE.AGENT and nothing else.
2. The agent is asked for a session through its tunnel, or the proxy that has one (`peers.py`). What is said
   against that is the user's answer.
3. The connection's bytes go through the session, and both end as the other does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Iterator

import h11

from fleet.nodes.proxy.connect.access import Access, ConnectFlags
from fleet.nodes.proxy.connect.head import Head
from fleet.nodes.proxy.connect.metrics import ConnectMetrics
from fleet.nodes.proxy.connect.peers import Peers
from fleet.nodes.proxy.connect.pending_connections import Strangers
from fleet.nodes.proxy.reverse_tunnels import ReverseTunnels
from fleet.nodes.proxy.tunnels import Tunnel
from fleet.nodes.shared import addresses, lifecycle
from fleet.nodes.shared.connect_client import BrokenError, splice
from fleet.nodes.shared.instance import Instance
from fleet.processes import background
from fleet.protocol.tunnel import connect
from fleet.protocol.tunnel.connect import Asked, Reason, RefusedError
from fleet.protocol.tunnel.messages import TunnelError
from fleet.transport.listen_sockets import stop_listening
from fleet.transport.tunnel.pump import Wire, pump
from fleet.transport.tunnel.stream import TunnelStream

log = logging.getLogger(__name__)

#: From connecting to the whole head, and from there to the agent's answer, seconds.
_HEAD_WITHIN = 10.0
_ANSWER_WITHIN = 10.0
#: A TLS connection's last words may take so long, seconds.
_TLS_WITHIN = 5.0
_BACKLOG = 1024
#: Strangers who have not asked for anything yet: they must not take the places of users.
_MOST_STRANGERS = 1_000
_PEER_HEADER = connect.PEER_HEADER.lower().encode()


class ConnectPort:
    """The port, once the proxy runs."""

    def __init__(
        self, flags: ConnectFlags, instance: Instance, tunnels: ReverseTunnels, metrics: ConnectMetrics
    ) -> None:
        """Make it. Raises StartError when it would let in everybody from anywhere."""
        self._flags = flags
        self._access = Access(flags, instance.flags.tls)
        self._peers = Peers(instance, flags.tokens[0] if flags.tokens else "")
        self._tunnels = tunnels
        self._table = tunnels.table
        self._metrics = metrics
        self._server: asyncio.Server | None = None
        #: All connections, those that were not let in yet, and how many were.
        self._users: set[asyncio.Task[None]] = set()
        self._strangers: Strangers[Head] = Strangers()
        self._seated = 0
        self.address = ""

    @property
    def advertised(self) -> str:
        """Where others reach it."""
        return addresses.join(*self._flags.advertise) if self._flags.advertise else self.address

    async def start(self) -> None:
        """Listen. Raises StartError."""
        loop = asyncio.get_running_loop()
        within = None if self._access.tls is None else _TLS_WITHIN
        listen = self._flags.listen
        starting = loop.create_server(
            lambda: Head(self._made),
            *listen,
            ssl=self._access.tls,
            backlog=_BACKLOG,
            ssl_handshake_timeout=within,
            ssl_shutdown_timeout=within,
        )
        self._server = await lifecycle.listening(listen, starting)
        self.address = addresses.join(listen[0], self._server.sockets[0].getsockname()[1])

    async def leave(self) -> None:
        """Take nobody new."""
        if self._server is not None:
            server, self._server = self._server, None
            await stop_listening(server)

    async def empty(self) -> None:
        """Wait until nobody is on it."""
        while self._users:
            await asyncio.wait(list(self._users))

    async def stop(self) -> None:
        """End everything now."""
        await self.leave()
        await background.stop(self._users)

    def _made(self, head: Head) -> None:
        leaving = self._strangers.add(head, _host(head), _MOST_STRANGERS)
        if leaving is not None:
            self._metrics.refused(Reason.BUSY)
            leaving.transport.abort()
        task = asyncio.get_running_loop().create_task(self._serve(head), name="user of the CONNECT port")
        self._users.add(task)
        task.add_done_callback(self._users.discard)

    async def _serve(self, head: Head) -> None:
        try:
            await self._serve_head(head)
        except ConnectionError:
            pass  # nobody is there any more
        except Exception:
            log.exception("connect.failed: a user's connection failed by a fault of ours")
        finally:
            self._strangers.remove(head)
            if head.transport.get_protocol() is head:
                head.transport.close()

    async def _serve_head(self, head: Head) -> None:
        try:
            request = await head.read(_HEAD_WITHIN)
            asked = self._admit(head, request)
            self._strangers.remove(head)
            with self._seat():
                await self._lead(head, request, asked)
        except RefusedError as refusal:
            self._metrics.refused(refusal.reason)
            log.info("connect.refused: %s, %s: %s", _peer(head), refusal.reason.word, refusal)
            await head.refuse(refusal)

    @contextlib.contextmanager
    def _seat(self) -> Iterator[None]:
        if self._seated >= self._flags.limit:
            raise RefusedError(
                Reason.BUSY, f"this proxy has {self._flags.limit} user connections, and takes no more"
            )
        self._seated += 1
        try:
            yield
        finally:
            self._seated -= 1

    async def _lead(self, head: Head, request: h11.Request, asked: Asked) -> None:
        tunnel = self._find(asked)
        if tunnel is None:
            await self._carry_to_peer(head, asked, await self._dial_peer(request, asked))
            return
        stream = await self._open(tunnel, asked)
        self._table.begin_session(tunnel, stream)
        try:
            await self._carry(head, asked, stream)
        finally:
            self._table.end_session(tunnel, stream, time.monotonic())

    def _admit(self, head: Head, request: h11.Request) -> Asked:
        headers = {name: value for name, value in request.headers if name == b"proxy-authorization"}
        authorization = headers.get(b"proxy-authorization", b"").decode("latin-1")
        self._access.check(authorization, head.transport.get_extra_info("peercert"))
        if request.method != b"CONNECT":
            method = request.method.decode("latin-1")
            raise RefusedError(
                Reason.METHOD, f"this port takes CONNECT alone, not {method} (curl: --proxytunnel)"
            )
        connect.check_framing(request.headers)
        return connect.parse(request.target.decode("latin-1"))

    def _find(self, asked: Asked) -> Tunnel | None:
        if self._tunnels.draining:
            raise RefusedError(Reason.LEAVING, "this proxy is shutting down")
        found = self._table.find(asked.agent)
        if len(found) > 1:
            ids = ", ".join(tunnel.agent_id for tunnel in found)
            raise RefusedError(Reason.AMBIGUOUS, f"agents with the name {asked.agent}: ask by id, {ids}")
        return found[0] if found else None

    async def _dial_peer(self, request: h11.Request, asked: Asked) -> Wire:
        if any(name == _PEER_HEADER for name, _ in request.headers):
            raise RefusedError(Reason.NO_AGENT, f"no agent {asked.agent!r} has a tunnel to this proxy")
        return await self._peers.dial(asked)

    async def _open(self, tunnel: Tunnel, asked: Asked) -> TunnelStream:
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                return await self._tunnels.open_session(tunnel, asked.service)
        except TimeoutError:
            raise RefusedError(
                Reason.TIMEOUT, f"agent {tunnel.agent_name} did not answer within {_ANSWER_WITHIN:g} s"
            ) from None
        except TunnelError as error:
            raise RefusedError(Reason.AGENT, str(error)) from None

    async def _carry(self, head: Head, asked: Asked, stream: TunnelStream) -> None:
        try:
            wire = _take_over(head)
        except ConnectionError:
            stream.abort("the user went away")
            raise
        await self._count(head, asked, wire, pump(wire, stream))

    async def _carry_to_peer(self, head: Head, asked: Asked, peer: Wire) -> None:
        try:
            wire = _take_over(head)
        except ConnectionError:
            peer.reset()
            raise
        self._metrics.peered()
        await self._count(head, asked, wire, splice(wire, peer, both=True))

    async def _count(self, head: Head, asked: Asked, wire: Wire, carrying: Awaitable[None]) -> None:
        self._metrics.opened(wire)
        aborted = True
        try:
            await carrying
            aborted = False
        except (TunnelError, BrokenError) as error:
            log.info("connect.aborted: %s: %s", _peer(head), error)
        except asyncio.CancelledError:
            # The drain is over: whose work it was is to be known, as nothing else tells them why it broke. No metric
            # says it: the process ends before anybody could read one.
            log.warning("connect.cut: %s, to %s of agent %s", _user(head), asked.service, asked.agent)
            raise
        finally:
            self._metrics.closed(wire, aborted=aborted)


def _take_over(head: Head) -> Wire:
    """Accept, and be what the connection's bytes go to. Raises ConnectionError."""
    wire = Wire()
    wire.take_over(head.transport, head.accept())
    if head.ended:
        wire.eof_received()
    return wire


def _peer(head: Head) -> str:
    peer = head.transport.get_extra_info("peername")
    return addresses.join(*peer[:2]) if peer else "somebody"


def _host(head: Head) -> str:
    peer = head.transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""


def _user(head: Head) -> str:
    """Who it is by the certificate, if one was shown, and where."""
    certificate = head.transport.get_extra_info("peercert") or {}
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return f"{names[0]} at {_peer(head)}" if names else _peer(head)
