"""Copying bytes between two TCP connections with backpressure; both can be held or reset.

The forwarder and the balancer use it. Nothing is parsed. Nothing is buffered except what a transport had already
accepted when its peer became slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any, cast

from typing_extensions import override

from fleet.processes import background

#: SO_LINGER on with 0 seconds: close with RST at once and drop unsent bytes.
_LINGER_RESET = struct.pack("ii", 1, 0)


class _End(asyncio.Protocol):
    """One of the two connections of a pair."""

    def __init__(self, pair: ConnectionPair) -> None:
        self._pair = pair
        self.transport: asyncio.Transport | None = None
        #: The write buffer is full: the other end must stop reading.
        self.is_full = False
        self.is_reading = False
        self.at_eof = False
        #: Bytes received while not reading: uvloop starts reading after `connection_made`, paused or not.
        self._early_data: list[bytes] = []

    @property
    def peer(self) -> _End:
        return self._pair.far if self is self._pair.near else self._pair.near

    @property
    def _transport(self) -> asyncio.Transport:
        assert self.transport is not None, "connected before anything is read or written"
        return self.transport

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.pause_reading()
        self._pair.on_end_connected(self)

    @override
    def data_received(self, data: bytes) -> None:
        if not self.is_reading:
            self._early_data.append(data)
            self._transport.pause_reading()
            return
        self.peer.write(data)

    @override
    def eof_received(self) -> bool:
        self.at_eof = True
        if self.is_reading:
            self._pass_eof()
        return True  # half-closed: the other direction may continue

    @override
    def pause_writing(self) -> None:
        self.is_full = True
        self._pair.update_reading()

    @override
    def resume_writing(self) -> None:
        self.is_full = False
        self._pair.update_reading()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._pair.on_end_lost(exc)

    def set_reading(self, enabled: bool) -> None:
        """Start or stop reading."""
        if self.transport is None or enabled == self.is_reading or self.transport.is_closing():
            return
        self.is_reading = enabled
        if not enabled:
            self.transport.pause_reading()
            return
        early_data, self._early_data = self._early_data, []
        for chunk in early_data:
            self.peer.write(chunk)
        if self.at_eof:
            self._pass_eof()
        else:
            self.transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Write bytes to this connection."""
        self._transport.write(data)

    def reset(self) -> None:
        """Close this connection with RST."""
        if self.transport is None or self.transport.is_closing():
            return
        with contextlib.suppress(OSError):  # closed already
            self.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET
            )
        self.transport.abort()

    def _pass_eof(self) -> None:
        peer = self.peer
        if peer.transport is not None and not peer.transport.is_closing():
            peer.transport.write_eof()
        if peer.at_eof and not peer.has_pending_data:
            self._pair.close()

    @property
    def has_pending_data(self) -> bool:
        """This connection has ended, but not all of its bytes have been passed on yet."""
        return bool(self._early_data) or not self.is_reading


class ConnectionPair:
    """An accepted connection and the connection made for it. Give `near` to a server as its protocol."""

    def __init__(
        self, on_accepted: Callable[[ConnectionPair], None], on_ended: Callable[[ConnectionPair], None]
    ) -> None:
        self._on_accepted = on_accepted
        self._on_ended = on_ended
        self._is_held = False
        self._is_closed = False
        self.near = _End(self)
        self.far = _End(self)

    async def dial(self, host: str, port: int, *, within: float) -> None:
        """Open the far connection and start copying. `within`: seconds. Raises OSError (and TimeoutError)."""
        async with asyncio.timeout(within):
            await asyncio.get_running_loop().create_connection(lambda: self.far, host, port)
        if self._is_closed:
            self.far.reset()
        self.update_reading()

    def set_held(self, is_held: bool) -> None:
        """Stop or resume copying, including the end of stream. Meanwhile bytes wait in the sender's kernel."""
        self._is_held = is_held
        self.update_reading()

    def reset(self) -> None:
        self.near.reset()
        self.far.reset()

    def close(self) -> None:
        """Close both connections after sending what is unsent."""
        for end in (self.near, self.far):
            if end.transport is not None:
                end.transport.close()

    def update_reading(self) -> None:
        """Read from each end if the other end can accept more."""
        is_connected = self.near.transport is not None and self.far.transport is not None
        for end in (self.near, self.far):
            end.set_reading(is_connected and not self._is_held and not end.peer.is_full)

    def on_end_connected(self, end: _End) -> None:
        """Handle a new connection of either end."""
        if end is self.near:
            self._on_accepted(self)

    def on_end_lost(self, error: Exception | None) -> None:
        """Handle the loss of one end: close or reset the other end likewise."""
        if error is not None:
            self.reset()
        else:
            self.close()
        if not self._is_closed:
            self._is_closed = True
            self._on_ended(self)


class Tasks:
    """Background tasks that nobody awaits. They are kept from the garbage collector, and their errors are logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in the background."""
        task = background.start(work, name="work of a connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        for task in list(self._tasks):
            task.cancel()
