"""A local port whose connections are sessions to auths, each through a proxy on a tunnel connection of its own.

grpcio dials addresses and nothing else: this is the address behind which there is a tunnel.
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
from fleet.transport.tunnel.pump import Wire, pump
from fleet.transport.tunnel.stream import TunnelStream

log = logging.getLogger(__name__)

#: From a connection to its session, seconds: the proxy that was dialled may be frozen.
_OPEN_WITHIN = 5.0
_BACKLOG = 16


class Passage:
    """Listens on loopback, for programs of this host; the session's own TLS keeps strangers out of the auth."""

    def __init__(self, open_channel: Callable[[], grpc.aio.Channel], target: Target = auth_path.AUTH) -> None:
        """Listen at once; `open_channel` makes a connection to some proxy, another one each time."""
        self._open_channel = open_channel
        self._target = target
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self._socket.setblocking(False)
        #: Id of the proxy through which the newest connection goes; empty before the first.
        self.via = ""
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._serving = background.start(self._serve(), name="passage")

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._socket.getsockname()
        return host, port

    async def close(self) -> None:
        """Listen no more, and reset what is open."""
        await background.stop([self._serving])
        if self._server is not None:
            await stop_listening(self._server)
        self._socket.close()
        await background.stop(self._connections)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Wire(self._made), sock=self._socket)

    def _made(self, wire: Wire) -> None:
        task = asyncio.create_task(self._carry(wire), name="connection through a proxy")
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _carry(self, wire: Wire) -> None:
        channel = self._open_channel()
        client = TunnelClient(channel)
        running = asyncio.create_task(client.run(), name="tunnel to auths")
        running.add_done_callback(_look_at)
        try:
            async with asyncio.timeout(_OPEN_WITHIN):
                stream = await self._open(client, running)
            await pump(wire, stream)
        except (TunnelError, TimeoutError) as error:
            log.info("passage.ended: %s", str(error) or "no proxy answered in time")
            wire.reset()
        except asyncio.CancelledError:
            wire.reset()
            raise
        finally:
            running.cancel()
            await client.close()
            await channel.close()

    async def _open(self, client: TunnelClient, running: asyncio.Task[None]) -> TunnelStream:
        await asyncio.sleep(0)  # let the client begin
        asked = asyncio.create_task(self._ask(client))
        try:
            await asyncio.wait((asked, running), return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
            raise TunnelError(str(running.exception() or "the proxy ended it"))
        finally:
            asked.cancel()

    async def _ask(self, client: TunnelClient) -> TunnelStream:
        await client.wait_until_up()
        who, stream = await asyncio.gather(
            _read_all(client, auth_path.PROXY), client.open_session(self._target)
        )
        self.via = who
        return stream


async def _read_all(client: TunnelClient, target: Target) -> str:
    stream = await client.open_session(target)
    said = b""
    while part := await stream.read():
        said += part
    await stream.close()
    return said.decode(errors="replace")


def _look_at(task: asyncio.Task[None]) -> None:
    """Its end is told by what waits for it; here only so that nobody complains of an error that was not looked at."""
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()
