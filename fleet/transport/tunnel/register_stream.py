"""One Register stream as a tunnel client has it: what is said on it, who waits for which answer, how it is left."""

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
    """The state of one, and its shell."""

    def __init__(self, wire: WireVersion, has_handler: bool, limits: Limits) -> None:
        self.state = ClientState(wire, has_handler=has_handler, limits=limits)
        self.call: Any = None
        #: None ends it.
        self.outgoing_queue = OutgoingQueue()
        self.waiters: dict[int, asyncio.Future[ClientStream]] = {}
        #: Changes of a target that the server did not answer yet, and who waits for each. It answers in their order.
        self.changes: dict[Target, deque[asyncio.Future[None] | None]] = {}
        self.rejected_targets: dict[Target, str] = {}
        self.is_connected = False
        self.up = asyncio.Event()
        self.has_metadata = False
        self.half_close = False
        self.token = ""
        self.timer: asyncio.TimerHandle | None = None
        #: Tags of sessions that the server asked for, until their streams are open or refused.
        self.pending_tags: set[int] = set()
        self._set_up = asyncio.Event()
        #: Streams that the server did not take, until it is told.
        self.refusals: set[asyncio.Task[None]] = set()
        #: The server lets go of the connection; and: we leave it.
        self.has_goaway = False
        self.is_leaving = False
        self.end_event = asyncio.Event()

    def update_up(self) -> None:
        """Whether it is up now."""
        if self.is_connected and self.state.ready and not self.changes:
            self.up.set()

    def on_session_set_up(self, tag: int) -> None:
        """The stream of a session that the server asked for is open, or refused."""
        self.pending_tags.discard(tag)
        self._set_up.set()

    async def wait_until_answered(self) -> None:
        """Wait until the server was answered whatever it asked for."""
        while self.pending_tags:
            self._set_up.clear()
            await self._set_up.wait()

    def send(self, raw: bytes) -> None:
        """Say something; a server that does not listen is left."""
        if not self.outgoing_queue.put(raw):
            log.warning("the tunnel's server does not read its Register stream: the tunnel is ended")
            self.call.cancel()

    def add_waiter(self, target: Target, waiter: asyncio.Future[None] | None) -> None:
        """A change of a target is said: there will be an answer."""
        self.changes.setdefault(target, deque()).append(waiter)

    def pop_waiter(self, target: Target) -> asyncio.Future[None] | None:
        """The server answered the oldest change of a target: who waits for that."""
        changes = self.changes.get(target)
        if not changes:
            return None
        waiter = changes.popleft()
        if not changes:
            del self.changes[target]
        return waiter

    def fail(self, tag: int, error: str) -> None:
        """Tell who waits for a session."""
        waiter = self.waiters.get(tag)
        if waiter is not None and not waiter.done():
            waiter.set_exception(TunnelError(error))

    def finish(self) -> None:
        """It is over: nobody waits any longer."""
        reason = "the tunnel went down"
        for effect in self.state.end(reason):
            assert isinstance(effect, SessionFailed)
            self.fail(effect.tag, effect.error)
        for waiters in self.changes.values():
            for waiter in waiters:
                if waiter is not None and not waiter.done():
                    waiter.set_exception(TunnelError(reason))
        if self.timer is not None:
            self.timer.cancel()
        self.up.set()

    async def write(self) -> None:
        """Say what is to be said, until None comes; a broken stream is noticed by who reads."""
        with contextlib.suppress(grpc.aio.BaseError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self.call.wait_for_connection()
            self.is_connected = True
            self.update_up()
            while (raw := await self.outgoing_queue.get()) is not None:
                await self.call.write(raw)
            await self.call.done_writing()
