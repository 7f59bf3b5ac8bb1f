"""A proxy's CONNECT port: users reach services of agents by HTTP CONNECT, as `curl --proxytunnel` and ssh do.

1. The head is read and its sender let in (`connect_access`); it asks for SERVICE.AGENT and nothing else.
2. The agent is asked for a session through its tunnel. What it says against that is the user's answer.
3. The connection's bytes go through the session, and both end as the other does.
"""

from __future__ import annotations

import asyncio
import logging
import time

import h11

from fleet.nodes import addresses, running
from fleet.nodes.connect_access import Access, ConnectFlags
from fleet.nodes.connect_head import Head
from fleet.nodes.connect_metrics import ConnectMetrics
from fleet.nodes.reverse_tunnels import ReverseTunnels
from fleet.nodes.tunnels import Tunnel
from fleet.protocol import connect
from fleet.protocol.connect import Asked, Reason, RefusedError
from fleet.protocol.tunnel import TunnelError
from fleet.transport.channels import TLSFiles
from fleet.transport.tunnel.pump import Wire, pump
from fleet.transport.tunnel.stream import TunnelStream

log = logging.getLogger(__name__)

#: From connecting to the whole head, and from there to the agent's answer, seconds.
_HEAD_WITHIN = 10.0
_ANSWER_WITHIN = 10.0
#: A TLS connection's last words may take so long, seconds.
_TLS_WITHIN = 5.0
_BACKLOG = 1024


class ConnectPort:
    """The port, once the proxy runs."""

    def __init__(
        self, flags: ConnectFlags, tls: TLSFiles, tunnels: ReverseTunnels, metrics: ConnectMetrics
    ) -> None:
        """Make it. Raises StartError when it would let in everybody from anywhere."""
        self._flags = flags
        self._access = Access(flags, tls)
        self._tunnels = tunnels
        self._table = tunnels.table
        self._metrics = metrics
        self._server: asyncio.Server | None = None
        self._users: set[asyncio.Task[None]] = set()
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
        self._server = await running.listening(listen, starting)
        self.address = addresses.join(listen[0], self._server.sockets[0].getsockname()[1])

    def leave(self) -> None:
        """Take nobody new."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def stop(self) -> None:
        """End everything now."""
        self.leave()
        users = list(self._users)
        for task in users:
            task.cancel()
        if users:
            await asyncio.wait(users)

    def _made(self, head: Head) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(head), name="user of the CONNECT port")
        self._users.add(task)
        task.add_done_callback(self._users.discard)

    async def _serve(self, head: Head) -> None:
        try:
            await self._serve_head(head)
        except ConnectionError:
            pass  # nobody is there any more
        except Exception:
            log.exception("event=connect.failed: a user's connection failed by a fault of ours")
        finally:
            if head.transport.get_protocol() is head:
                head.transport.close()

    async def _serve_head(self, head: Head) -> None:
        try:
            request = await head.read(_HEAD_WITHIN)
            asked = self._admit(head, request)
            tunnel = self._find(asked)
            stream = await self._open(tunnel, asked)
        except RefusedError as refusal:
            self._metrics.refused(refusal.reason)
            log.info("event=connect.refused: %s, %s: %s", _peer(head), refusal.reason.word, refusal)
            await head.refuse(refusal)
            return
        self._table.begin_session(tunnel, stream)
        try:
            await self._carry(head, stream)
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
        return connect.parse(request.target.decode("latin-1"))

    def _find(self, asked: Asked) -> Tunnel:
        if self._tunnels.draining:
            raise RefusedError(Reason.LEAVING, "this proxy is shutting down")
        found = self._table.find(asked.agent)
        if not found:
            raise RefusedError(Reason.NO_AGENT, f"no agent {asked.agent!r} has a tunnel to this proxy")
        if len(found) > 1:
            ids = ", ".join(tunnel.agent_id for tunnel in found)
            raise RefusedError(Reason.AMBIGUOUS, f"agents with the name {asked.agent}: ask by id, {ids}")
        return found[0]

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

    async def _carry(self, head: Head, stream: TunnelStream) -> None:
        wire = Wire()
        try:
            early = head.accept()
        except ConnectionError:
            stream.abort("the user went away")
            raise
        wire.take_over(head.transport, early)
        if head.ended:
            wire.eof_received()
        self._metrics.opened(wire)
        aborted = True
        try:
            await pump(wire, stream)
            aborted = False
        except TunnelError as error:
            log.info("event=connect.aborted: %s to %s: %s", _peer(head), stream.target, error)
        finally:
            self._metrics.closed(wire, aborted=aborted)


def _peer(head: Head) -> str:
    peer = head.transport.get_extra_info("peername")
    return addresses.join(*peer[:2]) if peer else "somebody"
