"""A local port whose connections are sessions to auths, each through a proxy on its own tunnel connection.

grpcio can only dial addresses: this provides an address with a tunnel behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable

import grpc.aio

from fleet.processes import background
from fleet.protocol.recovery import auth_path
from fleet.protocol.tunnel.messages import Target, TunnelError
from fleet.transport.listen_sockets import stop_listening
from fleet.transport.tunnel.client import TunnelClient
from fleet.transport.tunnel.pump import TcpConnection, pump
from fleet.transport.tunnel.stream import TunnelStream

log = logging.getLogger(__name__)

#: Seconds from a connection to its session: the dialled proxy may be frozen.
_OPEN_WITHIN = 5.0
_BACKLOG = 16


class TunnelForwarder:
    """Listens on loopback for programs of this host; the session's own TLS authenticates them to the auth."""

    def __init__(
        self, open_channel: Callable[[], grpc.aio.Channel], target: Target = auth_path.AUTH_TARGET
    ) -> None:
        """Start to listen; `open_channel` returns a new channel to some proxy, for each connection."""
        self._open_channel = open_channel
        self._target = target
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self._socket.setblocking(False)
        #: Id of the proxy of the newest connection; empty before the first one.
        self.proxy_id = ""
        self._connection_tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._serve_task = background.start(self._serve(), name="tunnel forwarder")

    @property
    def address(self) -> tuple[str, int]:
        """Address it listens on."""
        host, port = self._socket.getsockname()
        return host, port

    async def close(self) -> None:
        """Stop listening, and reset open connections."""
        await background.stop([self._serve_task])
        if self._server is not None:
            await stop_listening(self._server)
        self._socket.close()
        await background.stop(self._connection_tasks)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: TcpConnection(self._on_connection), sock=self._socket)

    def _on_connection(self, connection: TcpConnection) -> None:
        task = asyncio.create_task(self._forward(connection), name="connection through a proxy")
        self._connection_tasks.add(task)
        task.add_done_callback(self._connection_tasks.discard)

    async def _forward(self, connection: TcpConnection) -> None:
        channel = self._open_channel()
        client = TunnelClient(channel)
        run_task = asyncio.create_task(client.run(), name="tunnel to auths")
        run_task.add_done_callback(_retrieve_exception)
        try:
            async with asyncio.timeout(_OPEN_WITHIN):
                stream = await self._open_unless_register_ends(client, run_task)
            await pump(connection, stream)
        except (TunnelError, TimeoutError) as error:
            log.info("tunnel-forwarder.failed: %s", str(error) or "no proxy answered in time")
            connection.reset()
        except asyncio.CancelledError:
            connection.reset()
            raise
        finally:
            run_task.cancel()
            await client.close()
            await channel.close()

    async def _open_unless_register_ends(
        self, client: TunnelClient, run_task: asyncio.Task[None]
    ) -> TunnelStream:
        await asyncio.sleep(0)  # let the client begin
        session_task = asyncio.create_task(self._open_session(client))
        try:
            await asyncio.wait((session_task, run_task), return_when=asyncio.FIRST_COMPLETED)
            if session_task.done():
                return session_task.result()
            raise TunnelError(str(run_task.exception() or "the proxy ended the Register stream"))
        finally:
            session_task.cancel()

    async def _open_session(self, client: TunnelClient) -> TunnelStream:
        await client.wait_until_up()
        proxy_id, stream = await asyncio.gather(
            _read_all(client, auth_path.PROXY_ID_TARGET), client.open_session(self._target)
        )
        self.proxy_id = proxy_id
        return stream


async def _read_all(client: TunnelClient, target: Target) -> str:
    stream = await client.open_session(target)
    content = b""
    while part := await stream.read():
        content += part
    await stream.close()
    return content.decode(errors="replace")


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """Retrieve the exception of a task that another one already reports, so that asyncio does not log it."""
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()
