"""Connections to one backend: dialed on demand, shared by all calls, with another one when a peer takes no more."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from fleet.processes import background
from fleet.transport import connection_errors
from fleet.transport.http2.connection import Http2Connection
from fleet.transport.http2.fields import HeaderBlockCache
from fleet.transport.http2.options import ConnectionOptions
from fleet.transport.tls import TLSError, TLSFiles, check_files

#: ALPN name of HTTP/2 over TLS, RFC 9113 section 3.2.
ALPN = "h2"


#: Maximum number of connections that a call waits for, each full or gone before its turn.
_MOST_DIALS = 64


class DialError(Exception):
    """A failed connection to a backend; the message says why."""


def create_client_tls_context(files: TLSFiles) -> ssl.SSLContext:
    """Return a TLS context for backends: it verifies their certificates, and shows ours if any. Raises TLSError."""
    if (files.certificate is None) != (files.key is None):
        raise TLSError("set both --backend-tls-cert and --backend-tls-key, or neither")
    check_files(files)
    context = ssl.create_default_context(cafile=files.authority)
    context.set_alpn_protocols([ALPN])
    if files.certificate is not None:
        context.load_cert_chain(files.certificate, files.key)
    return context


def create_server_tls_context(files: TLSFiles) -> ssl.SSLContext:
    """Return a TLS context for clients; with a CA they must show a certificate of it. Raises TLSError."""
    if files.certificate is None or files.key is None:
        raise TLSError("a server with TLS needs a certificate and its key: set both --tls-cert and --tls-key")
    check_files(files)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([ALPN])
    context.load_cert_chain(files.certificate, files.key)
    if files.authority is not None:
        context.load_verify_locations(files.authority)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class BackendDialer:
    """Connections to one address."""

    def __init__(
        self,
        address: tuple[str, int],
        cache: HeaderBlockCache[Any],
        options: ConnectionOptions,
        *,
        within: float = 2.0,
        tls: ssl.SSLContext | None = None,
        server_name: str = "",
    ) -> None:
        """Start without a connection; connecting, with the first frames, may take `within` seconds."""
        self.address = address
        self._cache = cache
        self._options = options
        self._within = within
        self._tls = tls
        self.server_name = server_name or address[0]
        self._connections: list[Http2Connection] = []
        self._dial_task: asyncio.Task[Http2Connection] | None = None
        self._is_closed = False

    @property
    def connection_count(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    def use_tls(self, tls: ssl.SSLContext) -> None:
        """Use this TLS context for new connections; existing ones stay."""
        self._tls = tls

    def find_ready_connection(self) -> Http2Connection | None:
        """Return a connection that takes a call at once; None without one."""
        for connection in self._connections:
            if connection.can_open:
                return connection
        return None

    async def dial(self) -> Http2Connection:
        """Return a connection that takes a call; all callers share one attempt. Raises DialError."""
        for _ in range(_MOST_DIALS):
            ready = self.find_ready_connection()
            if ready is not None:
                return ready
            if self._is_closed:
                raise DialError("the backend was removed")
            if self._dial_task is None:
                self._dial_task = asyncio.create_task(self._dial())
                self._dial_task.add_done_callback(self._on_dialed)
            # Other callers waited, too, and may have filled it in the meantime.
            await asyncio.shield(self._dial_task)
        raise DialError("the backend accepts no more calls")

    def retire(self) -> None:
        """Take no more calls; connections close after their last call."""
        self._is_closed = True
        for connection in list(self._connections):
            connection.retire()

    async def close(self) -> None:
        """Close all connections and end their calls."""
        self._is_closed = True
        for connection in list(self._connections):
            connection.close()
        if self._dial_task is not None:
            await background.stop([self._dial_task])

    def _on_dialed(self, task: asyncio.Task[Http2Connection]) -> None:
        self._dial_task = None
        if not task.cancelled():
            task.exception()  # the callers got the exception

    async def _dial(self) -> Http2Connection:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[Http2Connection] = loop.create_future()

        def on_ready(connection: Http2Connection) -> None:
            if not ready.done():
                ready.set_result(connection)

        def on_end(connection: Http2Connection, reason: str) -> None:
            if connection in self._connections:
                self._connections.remove(connection)
            if not ready.done():
                ready.set_exception(DialError(reason))

        connection = Http2Connection(
            self._cache, self._options, on_ready=on_ready, on_retire=self._on_retire, on_end=on_end
        )
        try:
            async with asyncio.timeout(self._within):
                name = self.server_name if self._tls is not None else None
                transport, _ = await loop.create_connection(
                    lambda: connection, *self.address, ssl=self._tls, server_hostname=name
                )
                _check_alpn(transport.get_extra_info("ssl_object"))
                await ready
        except TimeoutError:
            connection.close()
            raise DialError(f"not connected within {self._within:g} s") from None
        except (OSError, ssl.SSLError) as error:
            raise DialError(connection_errors.describe(error)) from error
        except DialError:
            connection.close()
            raise
        finally:
            if ready.done() and not ready.cancelled():
                ready.exception()
        if self._is_closed:
            connection.close()
            raise DialError("the backend was removed")
        self._connections.append(connection)
        return connection

    def _on_retire(self, connection: Http2Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)


def _check_alpn(tls: ssl.SSLObject | None) -> None:
    if tls is not None and tls.selected_alpn_protocol() != ALPN:
        raise DialError("the TLS of the backend does not offer HTTP/2")
