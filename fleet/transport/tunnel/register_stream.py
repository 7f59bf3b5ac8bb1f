"""One Register stream of a tunnel client: its messages, the callers that wait for responses, and its orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import Any

import grpc.aio

from fleet.protocol.tunnel.client_state import ClientState, SessionFailed
from fleet.protocol.tunnel.messages import Target, TunnelError, WireVersion
from fleet.protocol.tunnel.server_state import Limits
from fleet.transport.tunnel.outgoing_queue import OutgoingQueue
from fleet.transport.tunnel.stream import ClientStream

log = logging.getLogger(__name__)


class RegisterStream:
    """State and I/O of one Register stream."""

    def __init__(self, wire: WireVersion, has_handler: bool, limits: Limits) -> None:
        self.state = ClientState(wire, has_handler=has_handler, limits=limits)
        self.call: Any = None
        #: Queued messages; None ends the stream.
        self.outgoing_queue = OutgoingQueue()
        self.session_waiters: dict[int, asyncio.Future[ClientStream]] = {}
        #: Changes of a target without a response, and the caller that waits for each. The server responds in order.
        self.change_waiters: dict[Target, deque[asyncio.Future[None] | None]] = {}
        self.rejected_targets: dict[Target, str] = {}
        self.is_connected = False
        self.up_event = asyncio.Event()
        self.has_metadata = False
        self.can_half_close = False
        self.token = ""
        self.timer: asyncio.TimerHandle | None = None
        #: Tags of sessions that the server requested, until their streams are open or refused.
        self.pending_tags: set[int] = set()
        self._set_up_event = asyncio.Event()
        #: Tasks that report streams which did not reach the server.
        self.refusal_tasks: set[asyncio.Task[None]] = set()
        #: The server is closing the connection; the client is leaving it.
        self.has_goaway = False
        self.is_leaving = False
        self.end_event = asyncio.Event()

    def update_up(self) -> None:
        """Set `up_event` once the client is registered."""
        if self.is_connected and self.state.is_ready and not self.change_waiters:
            self.up_event.set()

    def on_session_set_up(self, tag: int) -> None:
        """Record that the stream of a session that the server requested is open, or refused."""
        self.pending_tags.discard(tag)
        self._set_up_event.set()

    async def wait_until_answered(self) -> None:
        """Wait until every request of the server has an answer."""
        while self.pending_tags:
            self._set_up_event.clear()
            await self._set_up_event.wait()

    def send(self, raw: bytes) -> None:
        """Queue a message; end the tunnel if the server does not read."""
        if not self.outgoing_queue.put(raw):
            log.warning("the tunnel server does not read its Register stream: ending the tunnel")
            self.call.cancel()

    def add_change_waiter(self, target: Target, waiter: asyncio.Future[None] | None) -> None:
        """Record a change of a target that the server will answer."""
        self.change_waiters.setdefault(target, deque()).append(waiter)

    def pop_change_waiter(self, target: Target) -> asyncio.Future[None] | None:
        """Record the response to the oldest change of a target; return its waiter, if any."""
        waiters = self.change_waiters.get(target)
        if not waiters:
            return None
        waiter = waiters.popleft()
        if not waiters:
            del self.change_waiters[target]
        return waiter

    def fail_session(self, tag: int, error: str) -> None:
        """Fail the caller that waits for a session."""
        waiter = self.session_waiters.get(tag)
        if waiter is not None and not waiter.done():
            waiter.set_exception(TunnelError(error))

    def fail_waiters(self) -> None:
        """Fail all waiting callers, because the stream has ended."""
        reason = "the tunnel connection ended"
        for effect in self.state.end(reason):
            assert isinstance(effect, SessionFailed)
            self.fail_session(effect.tag, effect.error)
        for waiters in self.change_waiters.values():
            for waiter in waiters:
                if waiter is not None and not waiter.done():
                    waiter.set_exception(TunnelError(reason))
        if self.timer is not None:
            self.timer.cancel()
        self.up_event.set()

    async def write_queued(self) -> None:
        """Send queued messages until None; the reader of the stream notices when it breaks."""
        with contextlib.suppress(grpc.aio.BaseError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self.call.wait_for_connection()
            self.is_connected = True
            self.update_up()
            while (raw := await self.outgoing_queue.get()) is not None:
                await self.call.write(raw)
            await self.call.done_writing()
