"""Copies a TCP connection to a tunnel session and back, with bounded buffers.

TCP is read into one buffer that all connections of the process share, and leaves it as a complete message, so an idle
session has no buffer. Each direction has at most one message in flight and one waiting; then TCP is not read. A slow
reader stops only the sender of its own session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import cast

from typing_extensions import override

from fleet.protocol.tunnel.messages import TunnelError
from fleet.transport.tunnel import codec
from fleet.transport.tunnel.stream import CHUNK_SIZE, TunnelAbortedError, TunnelStream

log = logging.getLogger(__name__)

#: Buffer of one read from TCP, which becomes one message.
_READ_BUFFER = bytearray(codec.HEADER_ROOM + CHUNK_SIZE)
_MESSAGE_VIEW = memoryview(_READ_BUFFER)
_PAYLOAD_VIEW = _MESSAGE_VIEW[codec.HEADER_ROOM :]
#: Unsent bytes to TCP above which the tunnel is not read.
_MOST_UNSENT_BYTES = 1024 * 1024
#: Messages read from TCP while one is in flight; more would only take memory.
_MOST_READ_AHEAD = 2
#: Maximum seconds until the other end of an idle session agrees to end it.
_END_WITHIN = 5.0
#: Interval in seconds in which some unsent bytes of a closing connection must be accepted; else it is aborted.
_STALL_TIMEOUT = 60.0
#: TCP keep-alive: a connection to a host that has vanished is detected after 60 s and four more probes of 15 s.
_KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
#: SO_LINGER: close with a reset, or normally.
_LINGER_RESET = struct.pack("ii", 1, 0)
_LINGER_NOT = struct.pack("ii", 0, 0)


class HalfClosePolicy(Enum):
    """Effect of the end of the TCP connection's sending on a session whose peer cannot half-close."""

    #: End the session at once. The other end is informed, but anything it would still send is lost.
    CLOSE = "close"
    #: Wait until the other end has finished. Its data arrives, but a peer that waits for our end waits forever.
    DEFER = "defer"


@dataclass(frozen=True, slots=True)
class SessionPolicy:
    """Rules for the end of sessions."""

    half_close_policy: HalfClosePolicy = HalfClosePolicy.CLOSE
    #: Seconds without a byte in either direction after which a session is closed; None: never.
    idle_timeout: float | None = None


class TcpConnection(asyncio.BufferedProtocol):
    """The TCP end. Bytes that arrive before the session is open wait, at most one buffer of them."""

    def __init__(self, on_connection: Callable[[TcpConnection], None] | None = None) -> None:
        self._on_connection = on_connection
        self.transport: asyncio.Transport | None = None
        #: Messages read from TCP that the tunnel has not taken.
        self._messages: deque[bytes] = deque()
        self._is_reading_paused = False
        self._has_eof = False
        #: Why the connection is lost; None while it is open.
        self.error: Exception | None = None
        #: The connection is gone after an orderly end: TLS ends both directions at once.
        self.has_closed_cleanly = False
        #: Bytes received from TCP, and bytes sent to it.
        self.received_bytes = 0
        self.sent_bytes = 0
        self._read_waiter: asyncio.Future[None] | None = None
        self._write_waiter: asyncio.Future[None] | None = None
        self._is_writing_paused = False
        loop = asyncio.get_running_loop()
        self._now = loop.time
        #: Done when the connection is gone.
        self.closed_future: asyncio.Future[None] = loop.create_future()
        #: Time of the last byte, by the loop's clock.
        self.last_byte_at = loop.time()

    # -- called by asyncio -----------------------------------------------------------------------

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_MOST_UNSENT_BYTES)
        # Reset until it is closed in an orderly way: if this process is killed, the peer must not see a normal end.
        self._set_linger(_LINGER_RESET)
        self._enable_keep_alive()
        if self._on_connection is not None:
            self._on_connection(self)

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        return _PAYLOAD_VIEW

    @override
    def buffer_updated(self, nbytes: int) -> None:
        if self._has_eof:
            return  # this end was closed by us: see write_eof
        self.received_bytes += nbytes
        head = codec.data_header(nbytes)
        start = codec.HEADER_ROOM - len(head)
        _MESSAGE_VIEW[start : codec.HEADER_ROOM] = head
        self._messages.append(bytes(_MESSAGE_VIEW[start : codec.HEADER_ROOM + nbytes]))
        if len(self._messages) >= _MOST_READ_AHEAD and not self._is_reading_paused:
            assert self.transport is not None
            self._is_reading_paused = True
            self.transport.pause_reading()
        self._wake_reader()

    @override
    def eof_received(self) -> bool:
        self._has_eof = True
        self._wake_reader()
        assert self.transport is not None
        if self.transport.can_write_eof():
            return True  # half open, as TCP allows
        self._set_linger(_LINGER_NOT)  # TLS now closes on its own
        return False

    @override
    def pause_writing(self) -> None:
        self._is_writing_paused = True

    @override
    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._wake_writer()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc or ConnectionResetError("the TCP connection is closed")
        self.has_closed_cleanly = exc is None and self._has_eof
        self._is_writing_paused = False
        if not self.closed_future.done():
            self.closed_future.set_result(None)
        self._wake_reader()
        self._wake_writer()

    # -- called by the pump ----------------------------------------------------------------------

    @property
    def is_drained(self) -> bool:
        """Return whether the tunnel has sent everything that was read, and waits for more."""
        return self._read_waiter is not None and not self._messages

    @property
    def has_unread(self) -> bool:
        """Return whether bytes wait that the tunnel did not take."""
        return bool(self._messages)

    def take_over(self, transport: asyncio.Transport, early_data: bytes) -> None:
        """Take over a paused connection; `early_data` are bytes that its previous protocol has already read."""
        self.connection_made(transport)
        if early_data:
            self.received_bytes += len(early_data)
            self._messages.append(codec.data_message(early_data))
        transport.set_protocol(self)
        transport.resume_reading()

    async def read(self) -> bytes | None:
        """Return the next message, ready to send; None at the end of the stream. Raises OSError."""
        while not self._messages:
            if self._has_eof:
                return None
            if self.error is not None:
                raise ConnectionResetError(_error_text(self.error))
            self._read_waiter = asyncio.get_running_loop().create_future()
            try:
                await self._read_waiter
            finally:
                self._read_waiter = None
        self.last_byte_at = self._now()
        message = self._messages.popleft()
        if self._is_reading_paused and self.error is None:
            assert self.transport is not None
            self._is_reading_paused = False
            self.transport.resume_reading()
        return message

    async def write(self, payload: memoryview) -> None:
        """Send, and wait while too many bytes are unsent. Raises OSError."""
        assert self.transport is not None
        if self.has_closed_cleanly:
            return  # the client has disconnected and does not read it
        if self.error is not None:
            raise ConnectionResetError(_error_text(self.error))
        self.transport.write(payload)
        self.sent_bytes += len(payload)
        self.last_byte_at = self._now()
        while self._is_writing_paused:
            self._write_waiter = asyncio.get_running_loop().create_future()
            try:
                await self._write_waiter
            finally:
                self._write_waiter = None

    def write_eof(self) -> None:
        """End the sending direction. asyncio's TLS cannot half-close: then the other direction ends, too."""
        if self.transport is None or self.transport.is_closing():
            return
        if self.transport.can_write_eof():
            with contextlib.suppress(OSError):  # gone already
                self.transport.write_eof()
            return
        self._has_eof = True
        self.close()
        self._wake_reader()

    def close(self) -> None:
        """Close after the unsent bytes."""
        if self.transport is not None and not self.transport.is_closing():
            self._set_linger(_LINGER_NOT)
            self.transport.close()
            self._abort_if_stalled(sys.maxsize)

    def reset(self) -> None:
        """Close with a reset, so that the client does not take it for a normal end."""
        if self.transport is None or self.transport.is_closing():
            return
        self._set_linger(_LINGER_RESET)
        self.transport.abort()

    def _abort_if_stalled(self, previous_unsent_bytes: int) -> None:
        """Abort a closing connection whose peer accepts none of the unsent bytes: it would stay forever."""
        if self.error is not None or self.transport is None:
            return
        unsent = self.transport.get_write_buffer_size()
        if unsent >= previous_unsent_bytes:
            self._set_linger(_LINGER_RESET)
            self.transport.abort()
        elif unsent:
            asyncio.get_running_loop().call_later(_STALL_TIMEOUT, self._abort_if_stalled, unsent)

    def _enable_keep_alive(self) -> None:
        assert self.transport is not None
        sock = self.transport.get_extra_info("socket")
        if sock.family not in (socket.AF_INET, socket.AF_INET6):
            return
        with contextlib.suppress(OSError):  # gone already
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, seconds in _KEEP_ALIVE:
                sock.setsockopt(socket.IPPROTO_TCP, option, seconds)

    def _set_linger(self, option: bytes) -> None:
        assert self.transport is not None
        with contextlib.suppress(OSError):
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)

    def _wake_reader(self) -> None:
        if self._read_waiter is not None and not self._read_waiter.done():
            self._read_waiter.set_result(None)

    def _wake_writer(self) -> None:
        if self._write_waiter is not None and not self._write_waiter.done():
            self._write_waiter.set_result(None)


def _error_text(error: Exception) -> str:
    return str(error) or "the TCP connection broke"  # a broken pipe may have no message


async def connect(host: str, port: int, within: float) -> TcpConnection:
    """Return a new TCP connection. Raises OSError, which includes TimeoutError."""
    async with asyncio.timeout(within):
        _, connection = await asyncio.get_running_loop().create_connection(TcpConnection, host, port)
    return connection


async def pump(connection: TcpConnection, stream: TunnelStream, policy: SessionPolicy | None = None) -> None:
    """Copy both directions until both have ended. Raises TunnelAbortedError unless both ended normally."""
    policy = policy or SessionPolicy()
    outbound_task = asyncio.create_task(_copy_outbound(connection, stream, policy))
    inbound_task = asyncio.create_task(_copy_inbound(connection, stream))
    try:
        await _supervise(outbound_task, inbound_task, connection, stream, policy)
    except (OSError, TunnelError) as error:
        connection.reset()
        try:
            await stream.ensure_tag_sent()
        finally:
            stream.abort(str(error))
        raise TunnelAbortedError(str(error)) from None
    except asyncio.CancelledError:
        stream.abort("this end of the tunnel was stopped")
        connection.reset()
        raise
    finally:
        for task in (outbound_task, inbound_task):
            task.cancel()
        connection.close()  # before any await: this task may be cancelled again
        await asyncio.gather(outbound_task, inbound_task, return_exceptions=True)
    await stream.close()


async def _supervise(
    outbound_task: asyncio.Task[None],
    inbound_task: asyncio.Task[None],
    connection: TcpConnection,
    stream: TunnelStream,
    policy: SessionPolicy,
) -> None:
    loop = asyncio.get_running_loop()
    while not (inbound_task.done() and (outbound_task.done() or not stream.can_half_close)):
        pending_futures = [
            future
            for future in (outbound_task, inbound_task, connection.closed_future, stream.call_over_future)
            if not future.done()
        ]
        remaining = (
            None
            if policy.idle_timeout is None
            else connection.last_byte_at + policy.idle_timeout - loop.time()
        )
        if remaining is not None and remaining <= 0:
            await _end_idle(outbound_task, inbound_task, connection, stream)
            return
        await asyncio.wait(pending_futures, timeout=remaining, return_when=asyncio.FIRST_COMPLETED)
        for task in (outbound_task, inbound_task):
            if task.done():
                task.result()
        if connection.error is not None and not inbound_task.done():
            if not connection.has_closed_cleanly:
                raise ConnectionResetError(_error_text(connection.error))
            await _end_after_close(outbound_task, inbound_task)
            return
        if stream.call_over_future.done() and not outbound_task.done():
            # The call may have no reader any more, as with a finished end: only this shows that it is over.
            await _end_with_call(inbound_task, connection, stream)
            return


async def _end_after_close(outbound_task: asyncio.Task[None], inbound_task: asyncio.Task[None]) -> None:
    await asyncio.wait((outbound_task, inbound_task), timeout=_END_WITHIN)
    if not inbound_task.done():
        raise TunnelAbortedError("the client disconnected before the other end had finished")
    for task in (outbound_task, inbound_task):
        if task.done():
            task.result()


async def _end_with_call(
    inbound_task: asyncio.Task[None], connection: TcpConnection, stream: TunnelStream
) -> None:
    if reason := await stream.failure_reason():
        raise TunnelAbortedError(reason)
    await inbound_task  # data that arrived before the end
    if connection.has_unread or not (connection.is_drained or stream.is_finished):
        raise TunnelAbortedError("the other end closed the session before it received all data")


async def _end_idle(
    outbound_task: asyncio.Task[None],
    inbound_task: asyncio.Task[None],
    connection: TcpConnection,
    stream: TunnelStream,
) -> None:
    if not outbound_task.done() and not connection.is_drained:
        # No message may be sent beside the one in flight, and an orderly end would lose that one.
        raise TunnelAbortedError(
            "the session was idle, and the other end does not read the data that was sent"
        )
    outbound_task.cancel()
    await stream.write_eof()
    await asyncio.wait((inbound_task,), timeout=_END_WITHIN)
    if not inbound_task.done():
        raise TunnelAbortedError("the session was idle, and the other end did not agree to close it")
    if connection.has_unread:
        raise TunnelAbortedError("data arrived after the session was closed as idle")
    connection.write_eof()


async def _copy_outbound(connection: TcpConnection, stream: TunnelStream, policy: SessionPolicy) -> None:
    while (message := await connection.read()) is not None:
        await stream.send(message)
    if stream.can_half_close or policy.half_close_policy is HalfClosePolicy.CLOSE:
        await stream.write_eof()


async def _copy_inbound(connection: TcpConnection, stream: TunnelStream) -> None:
    while len(payload := await stream.receive()):
        await connection.write(payload)
    connection.write_eof()
