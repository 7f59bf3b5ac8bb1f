"""A TCP port whose connections become sessions of a tunnel."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Self

from fleet.processes import background
from fleet.protocol.tunnel.messages import TunnelError
from fleet.transport.listen_sockets import stop_listening
from fleet.transport.tunnel.pump import SessionPolicy, TcpConnection, pump
from fleet.transport.tunnel.stream import TunnelStream

log = logging.getLogger(__name__)


class TunnelListener:
    """Listens, requests a session for each connection with `open_session`, and copies its bytes."""

    def __init__(
        self, open_session: Callable[[], Awaitable[TunnelStream]], policy: SessionPolicy | None = None
    ) -> None:
        self._open_session = open_session
        self._policy = policy or SessionPolicy()
        self._server: asyncio.Server | None = None
        self._session_tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> Self:
        """Start to listen. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: TcpConnection(self._on_connection), host, port, backlog=1024
        )
        return self

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None, "call start() first"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Stop listening, and abort open connections."""
        if self._server is not None:
            await stop_listening(self._server)
        await background.stop(self._session_tasks)

    def _on_connection(self, connection: TcpConnection) -> None:
        task = asyncio.create_task(self._forward(connection), name="tunnelled connection")
        self._session_tasks.add(task)
        task.add_done_callback(self._session_tasks.discard)

    async def _forward(self, connection: TcpConnection) -> None:
        try:
            stream = await self._open_session()
        except TunnelError as error:
            log.warning("a connection was reset, because no session could be opened: %s", error)
            connection.reset()
            return
        except asyncio.CancelledError:
            connection.reset()
            raise
        except Exception:  # open_session is foreign code: its error must end only this connection
            log.exception("a connection was reset, because no session could be opened")
            connection.reset()
            return
        try:
            await pump(connection, stream, self._policy)
        except TunnelError as error:
            log.info("a session to %s was aborted: %s", stream.target, error)
