"""Client of a proxy's CONNECT port: reaches an agent's service on standard input and output."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import h11
from typing_extensions import override

from fleet.nodes.shared import addresses
from fleet.nodes.shared.stdio import open_stdio
from fleet.protocol.tunnel.connect import PEER_HEADER, RefusalReason
from fleet.transport import connection_errors
from fleet.transport.tls import TLSFiles, client_context
from fleet.transport.tunnel import codec
from fleet.transport.tunnel.pump import TcpConnection

#: Seconds from connecting to the proxy's response; the proxy itself waits up to 10 s for the agent.
_RESPONSE_WITHIN = 20.0
#: Seconds that the service may take to finish after the user has left.
_LEAVE_WITHIN = 5.0
#: Bytes read of an error response.
_MAX_ERROR_BYTES = 4096


class ConnectError(Exception):
    """No connection to the service. The message is the last proxy's error, or why no proxy responded."""

    def __init__(self, sentence: str, status: int = 0) -> None:
        super().__init__(sentence)
        #: HTTP status code; 0 if no proxy responded.
        self.status = status


class ServiceConnectionLostError(Exception):
    """The connection to the service was open, and broke."""


@dataclass(frozen=True, slots=True)
class ConnectPlan:
    """The settings of `refloat connect`."""

    #: Name of the service and agent: SERVICE.AGENT.
    target: str
    #: Proxies to try in order, while they respond that they have no tunnel to the agent.
    proxy_addresses: Sequence[tuple[str, int]]
    token: str = ""
    tls: TLSFiles = field(default_factory=TLSFiles)
    #: Id of the proxy that connects on behalf of its user (proxy peering); empty for users.
    peer_id: str = ""


class NoTunnelError(ConnectError):
    """This proxy has no tunnel to the agent."""


async def carry_stdio(plan: ConnectPlan) -> None:
    """Copy standard input and output until both end. Raises ConnectError, ServiceConnectionLostError, TLSError."""
    proxy = await dial(plan, client_context(plan.tls))
    stdio = await open_stdio()
    await splice(stdio.connection, proxy)
    await stdio.wait_until_written()


async def dial(plan: ConnectPlan, context: ssl.SSLContext | None) -> TcpConnection:
    """Connect through the first proxy that has a tunnel to the agent. Raises ConnectError."""
    last_error = ConnectError("no proxy address was given")
    for address in plan.proxy_addresses:
        try:
            return await _dial(plan, address, context)
        except NoTunnelError as error:
            last_error = error
        except TimeoutError:
            last_error = ConnectError(
                f"proxy {addresses.join(*address)} did not respond within {_RESPONSE_WITHIN:g} s"
            )
        except OSError as error:
            reason = connection_errors.describe(error)
            last_error = ConnectError(f"cannot connect to proxy {addresses.join(*address)}: {reason}")
    raise last_error


async def splice(user: TcpConnection, proxy: TcpConnection, *, wait_for_both: bool = False) -> None:
    """Copy bytes until the direction of the proxy ends (`wait_for_both`: both). Raises ServiceConnectionLostError."""
    outward = asyncio.create_task(_copy(user, proxy))
    inward = asyncio.create_task(_copy(proxy, user))
    try:
        while not (inward.done() and (outward.done() or not wait_for_both)):
            pending = [future for future in (outward, inward, user.closed_future) if not future.done()]
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if outward.done():
                outward.result()
            if inward.done():
                inward.result()
                user.write_eof()
            elif user.error is not None:
                await _leave(user, proxy, inward)
    except OSError as error:
        user.reset()
        proxy.reset()
        raise ServiceConnectionLostError(str(error)) from None
    except asyncio.CancelledError:
        user.reset()
        proxy.reset()
        raise
    finally:
        for task in (outward, inward):
            task.cancel()
        proxy.close()
        user.close()
        await asyncio.gather(outward, inward, return_exceptions=True)
    # Unsent bytes and the TLS close_notify go out before the process ends.
    await asyncio.wait((proxy.closed_future,), timeout=_LEAVE_WITHIN)


async def _leave(user: TcpConnection, proxy: TcpConnection, inward: asyncio.Task[None]) -> None:
    """End the connection after the user has left: cleanly, if the user closed it cleanly. Raises OSError."""
    if not user.has_closed_cleanly:
        raise ConnectionResetError(str(user.error))
    proxy.write_eof()
    await asyncio.wait((inward,), timeout=_LEAVE_WITHIN)
    if not inward.done():
        raise ConnectionResetError("the user left before the service finished")


async def _copy(source: TcpConnection, sink: TcpConnection) -> None:
    while (message := await source.read()) is not None:
        payload, _ = codec.read_data(message)
        await sink.write(payload)
    assert sink.transport is not None
    # Half-closing TLS would end the response with the request: TLS connections end when the response does.
    if sink.transport.can_write_eof():
        sink.write_eof()


async def _dial(plan: ConnectPlan, address: tuple[str, int], context: ssl.SSLContext | None) -> TcpConnection:
    loop = asyncio.get_running_loop()
    server_name = None if context is None else plan.tls.for_role("proxy").server_name
    async with asyncio.timeout(_RESPONSE_WITHIN):
        transport, protocol = await loop.create_connection(
            lambda: _ConnectProtocol(plan), *address, ssl=context, server_hostname=server_name
        )
        try:
            early_data = await protocol.early_data
        except BaseException:
            transport.close()
            raise
    connection = TcpConnection()
    connection.take_over(transport, early_data)
    if protocol.at_eof:
        connection.eof_received()
    return connection


class _ConnectProtocol(asyncio.Protocol):
    """Sends the CONNECT request and reads the head of the response."""

    def __init__(self, plan: ConnectPlan) -> None:
        # CONNECT requires a port; the proxy ignores it.
        self._target = plan.target if ":" in plan.target else f"{plan.target}:80"
        self._headers = [("Host", self._target)]
        if plan.token:
            self._headers.append(("Proxy-Authorization", f"Bearer {plan.token}"))
        if plan.peer_id:
            self._headers.append((PEER_HEADER, plan.peer_id))
        self._conn = h11.Connection(h11.CLIENT)
        self._status = 0
        self._error_body = b""
        #: Bytes that followed the head of a successful response; else ConnectError or OSError.
        self.early_data: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        #: The proxy has closed its direction.
        self.at_eof = False

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        request = h11.Request(method="CONNECT", target=self._target, headers=self._headers)
        self._transport.write(
            (self._conn.send(request) or b"") + (self._conn.send(h11.EndOfMessage()) or b"")
        )

    @override
    def data_received(self, data: bytes) -> None:
        if self.early_data.done() and self.early_data.exception() is not None:
            return
        try:
            self._conn.receive_data(data)
            self._read()
        except h11.RemoteProtocolError as error:
            self._fail(ConnectError(f"the peer is not an HTTP proxy: {error}"))

    @override
    def eof_received(self) -> bool:
        self.at_eof = True
        if not self.early_data.done():
            try:
                self._conn.receive_data(b"")
                self._read()
            except h11.RemoteProtocolError:
                self._fail(ConnectionResetError("the proxy closed the connection without a response"))
        is_accepted = self.early_data.done() and self.early_data.exception() is None
        return is_accepted and self._transport.can_write_eof()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionResetError("the proxy closed the connection without a response"))

    def _read(self) -> None:
        while not self.early_data.done():
            event = self._conn.next_event()
            if isinstance(event, h11.Response):
                self._status = event.status_code
                self._error_body = b""
                if 200 <= self._status < 300:
                    self._transport.pause_reading()
                    self.early_data.set_result(self._conn.trailing_data[0])
            elif isinstance(event, h11.Data):
                self._error_body = (self._error_body + event.data)[:_MAX_ERROR_BYTES]
            elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
                kind = NoTunnelError if self._status == RefusalReason.NO_AGENT.status else ConnectError
                message = self._error_body.decode(errors="replace").strip()
                self._fail(kind(message or f"the proxy responded with HTTP {self._status}", self._status))
            else:
                return

    def _fail(self, error: Exception) -> None:
        if not self.early_data.done():
            self.early_data.set_exception(error)
