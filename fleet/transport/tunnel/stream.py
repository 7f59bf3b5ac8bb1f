"""One session of a tunnel: a byte stream over a Tunnel call, and the two ways to end it.

Between peers of Refloat, `close` ends the sender's direction and the other one continues, as in TCP. With other peers
it ends both: they drop what they receive after it. Any other end is an abort, and both ends are informed.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
from typing_extensions import override

from fleet.protocol.tunnel.messages import Target, TunnelError
from fleet.transport.tunnel import codec

#: Maximum bytes in one of our messages: large ones are cheapest, a quarter per byte less than 256 KiB. Every peer
#: accepts this size: gRPC's limit is 4 MiB unless raised.
CHUNK_SIZE = 1024 * 1024
#: Seconds for which a client waits until the server ends the call after both ends have finished. If this is too short,
#: data in flight on a slow connection is lost.
_END_WITHIN = 30.0
#: Seconds for which the server waits for the end of a client that can half-close, after its own end.
_CLIENT_END_WITHIN = 5.0
#: Seconds within which a call's first message reaches the server's program, so that its end cannot overtake it.
_TAG_WITHIN = 0.25
#: A server cannot distinguish these: gRPC only shows the end of the call.
_CLIENT_GONE = (
    "the client disconnected: it aborted the session, was lost, or sent a message that is too large"
)
_SESSION_CLOSED = "the other end has closed the session"
#: grpc.aio's details for a write after the end of its call, whatever ended it.
_CALL_END_DETAILS = "Internal error from Core"


class TunnelAbortedError(TunnelError):
    """The session did not end normally; data may be missing at its end."""


class _CallEndedError(TunnelAbortedError):
    """The other end had already ended the call, normally, before this was sent."""


class TunnelStream(ABC):
    """A session at either end. One task may read and one may write at a time."""

    def __init__(self, target: Target, tag: int, *, can_half_close: bool) -> None:
        self.target = target
        self.tag = tag
        #: The other end still sends after our end, and still receives after its own.
        self.can_half_close = can_half_close
        #: The other end has ended its direction.
        self.is_remote_finished = False
        #: This end has ended its direction.
        self.is_finished = False
        self.closed_event = asyncio.Event()
        #: Done when the call is over, whoever ended it. Do not await it directly: cancellation would cancel it for all.
        loop = asyncio.get_running_loop()
        self.call_over_future: asyncio.Future[None] = loop.create_future()
        self._now = loop.time
        #: When the other end last sent something, by the loop's clock.
        self.last_seen_at = loop.time()
        #: Why this end aborted the session; empty if it did not.
        self.abort_reason = ""
        #: Called with the error for a message of the other end that does not belong here; the error is sent on
        #: Register.
        self.on_fault: Callable[[str], None] = lambda _: None
        self._rest = memoryview(b"")
        self._read_task: asyncio.Task[memoryview] | None = None
        self._write_lock = asyncio.Lock()

    # -- direct access to the call: pumps use these, each from one task -----------------------------

    async def receive(self) -> memoryview:
        """Return the next payload, or the rest of one after `read`; empty at the end. Raises TunnelAbortedError."""
        if self._rest:
            rest, self._rest = self._rest, memoryview(b"")
            return rest
        if self._read_task is not None:
            read_task, self._read_task = self._read_task, None
            return await read_task
        return await self._receive_payload()

    async def _receive_payload(self) -> memoryview:
        while not self.is_remote_finished:
            payload, is_finished = self._decode(await self._receive())
            self.last_seen_at = self._now()
            if is_finished:
                self.is_remote_finished = True
            if len(payload):
                return payload
        return memoryview(b"")

    def _decode(self, raw: bytes) -> tuple[memoryview, bool]:
        try:
            return codec.read_data(raw, self.tag)
        except TunnelError as error:
            self.on_fault(str(error))
            self.abort(str(error))
            raise TunnelAbortedError(str(error)) from None

    @abstractmethod
    async def send(self, message: bytes) -> None:
        """Send a whole message. Raises TunnelAbortedError."""

    @abstractmethod
    async def _receive(self) -> bytes:
        """Return the next raw message. Raises TunnelAbortedError."""

    @abstractmethod
    async def _finish(self) -> None:
        """Complete the session after both directions have ended."""

    @abstractmethod
    async def failure_reason(self) -> str:
        """Return, once the call is over, why it failed; empty if it ended normally."""

    def _set_call_over(self) -> None:
        if not self.call_over_future.done():
            self.call_over_future.set_result(None)

    # -- the byte stream -------------------------------------------------------------------------

    async def read(self, limit: int = -1) -> bytes:
        """Return available bytes, at most `limit`; empty at the end. Raises TunnelAbortedError."""
        if not self._rest:
            self._rest = await self._next_payload()
        chunk = self._rest if limit < 0 else self._rest[:limit]
        self._rest = self._rest[len(chunk) :]
        return bytes(chunk)

    async def _next_payload(self) -> memoryview:
        # Cancelling the read would end the whole call, so it has a task of its own.
        if self.closed_event.is_set():
            raise TunnelAbortedError(self.abort_reason or "the session was closed")
        if self._read_task is None:
            self._read_task = asyncio.create_task(self._receive_payload())
            self._read_task.add_done_callback(_retrieve_exception)
        end_task = asyncio.create_task(self.closed_event.wait())
        try:
            await asyncio.wait((self._read_task, end_task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            end_task.cancel()
        if not self._read_task.done():
            raise TunnelAbortedError(self.abort_reason or "the session was closed")
        read_task, self._read_task = self._read_task, None
        return read_task.result()

    async def write(self, payload: bytes | memoryview) -> None:
        """Send, and wait until gRPC has accepted it. Raises TunnelAbortedError; TunnelError after `write_eof`."""
        view = memoryview(payload)
        async with self._write_lock:
            for start in range(0, len(view), CHUNK_SIZE):
                if self.is_finished:
                    raise TunnelError("this end has already finished sending")
                await self.send(codec.data_message(view[start : start + CHUNK_SIZE]))

    async def write_eof(self) -> None:
        """End this direction; with peers other than Refloat's this ends both."""
        async with self._write_lock:
            if not self.is_finished:
                self.is_finished = True
                await self._send_end()

    async def close(self) -> None:
        """End both directions normally."""
        with contextlib.suppress(TunnelError):
            await self.write_eof()
        self.closed_event.set()
        await self._finish()

    @abstractmethod
    async def ensure_tag_sent(self) -> None:
        """Before aborting a session that was just opened, make sure that the other end received its tag."""

    @abstractmethod
    def abort(self, reason: str) -> None:
        """End both directions at once, and inform the other end."""

    async def _send_end(self) -> None:
        await self.send(codec.CLOSE_MESSAGE)


class ClientStream(TunnelStream):
    """A session at the client, which opens the call; the server ends it."""

    def __init__(self, call: Any, target: Target, tag: int, *, can_half_close: bool) -> None:
        super().__init__(target, tag, can_half_close=can_half_close)
        self._call = call
        self._opened_at = self.last_seen_at
        call.add_done_callback(lambda _: self._set_call_over())

    @property
    def is_unacknowledged(self) -> bool:
        """Return whether the server has not sent anything yet: it may not know the tag."""
        return self.last_seen_at == self._opened_at

    @property
    def age_seconds(self) -> float:
        """Seconds since the session was opened."""
        return self._now() - self._opened_at

    @override
    async def send(self, message: bytes) -> None:
        try:
            await self._call.write(message)
        except grpc.aio.AioRpcError as error:
            # gRPC has no status for a write after the end: if the server has finished, the end was normal.
            is_call_end = self.is_remote_finished and _is_call_end(error.code(), error.details())
            kind = _CallEndedError if is_call_end else TunnelAbortedError
            raise kind(end_reason(error.code(), error.details())) from None
        except asyncio.InvalidStateError:
            reason = await self.failure_reason()
            raise (TunnelAbortedError(reason) if reason else _CallEndedError(_SESSION_CLOSED)) from None
        except asyncio.CancelledError:
            self._raise_if_aborted()
            raise

    @override
    async def _receive(self) -> bytes:
        try:
            raw = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise TunnelAbortedError(end_reason(error.code(), error.details())) from None
        except asyncio.CancelledError:
            self._raise_if_aborted()
            raise
        if raw is grpc.aio.EOF:
            # Status OK is as good as a close: a server's close may arrive after the trailers.
            self.is_remote_finished = True
            return b""
        assert isinstance(raw, bytes)
        return raw

    @override
    async def _send_end(self) -> None:
        # A call that has ended needs no end from this side.
        with contextlib.suppress(_CallEndedError):
            await super()._send_end()
            if self.can_half_close:
                await self._call.done_writing()

    @override
    async def _finish(self) -> None:
        """Wait until the server ends the call, as it must; cancel it otherwise."""
        if not self._call.done():
            # gRPC delivers the end only after all earlier messages were read. After the other end's close there are
            # none.
            unread = not self.is_remote_finished
            drain_task = asyncio.create_task(self._drain()) if unread else None
            try:
                with contextlib.suppress(asyncio.InvalidStateError):
                    await self._call.done_writing()
                await asyncio.wait((self.call_over_future,), timeout=_END_WITHIN)
            finally:
                self._call.cancel()
                if drain_task is not None:
                    await asyncio.wait((drain_task,))

    @override
    async def ensure_tag_sent(self) -> None:
        """Wait until the tag was sent: a call cancelled earlier may reach the server without it."""
        if self.is_unacknowledged:
            await asyncio.wait((self.call_over_future,), timeout=self._opened_at + _TAG_WITHIN - self._now())

    async def _drain(self) -> None:
        if self._read_task is not None:
            await asyncio.wait((self._read_task,))
        with contextlib.suppress(grpc.aio.AioRpcError):
            while isinstance(await self._call.read(), bytes):
                pass

    @override
    def abort(self, reason: str) -> None:
        self.abort_reason = self.abort_reason or reason
        self.closed_event.set()
        self._call.cancel()

    def _raise_if_aborted(self) -> None:
        """Raise TunnelAbortedError for a CancelledError that comes from cancelling the call, not the task."""
        if not is_being_cancelled():
            raise TunnelAbortedError(self.abort_reason or "this end aborted the session") from None

    @override
    async def failure_reason(self) -> str:
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            return ""
        return self.abort_reason or end_reason(code, await self._call.details())


class ServerStream(TunnelStream):
    """A session at the server: the call lasts until `call_over_future` is done."""

    def __init__(
        self, context: grpc.aio.ServicerContext[Any, Any], target: Target, tag: int, *, can_half_close: bool
    ) -> None:
        super().__init__(target, tag, can_half_close=can_half_close)
        self._context = context

    @override
    async def send(self, message: bytes) -> None:
        try:
            await self._context.write(message)
        except (grpc.aio.BaseError, asyncio.InvalidStateError):
            raise TunnelAbortedError(self.abort_reason or _CLIENT_GONE) from None

    @override
    async def _receive(self) -> bytes:
        try:
            raw = await self._context.read()
        except (grpc.aio.BaseError, asyncio.InvalidStateError):
            raise TunnelAbortedError(self.abort_reason or _CLIENT_GONE) from None
        if raw is grpc.aio.EOF:
            # A client that was killed looks like one that has finished, except that it sent no close.
            raise TunnelAbortedError(self.abort_reason or _CLIENT_GONE)
        assert isinstance(raw, bytes)
        return raw

    @override
    async def _finish(self) -> None:
        """Let a client that can half-close end its direction first.

        gRPC drops what a client has not read yet if the client writes after the end of its call: a response, especially
        a short one to a client that has nothing to send. If data comes instead of that end, the call ends at once.
        """
        if self.can_half_close and not self.is_remote_finished and not self.call_over_future.done():
            if self._read_task is None:
                self._read_task = asyncio.create_task(self._receive_payload())
                self._read_task.add_done_callback(_retrieve_exception)
            await asyncio.wait(
                (self._read_task, self.call_over_future),
                timeout=_CLIENT_END_WITHIN,
                return_when=asyncio.FIRST_COMPLETED,
            )
        self._set_call_over()

    @override
    async def failure_reason(self) -> str:
        return self.abort_reason

    @override
    def abort(self, reason: str) -> None:
        if not self.call_over_future.done():
            self.abort_reason = reason
        self.closed_event.set()
        self._set_call_over()

    @override
    async def ensure_tag_sent(self) -> None:
        """Do nothing: the client opened the call, so it knows the tag."""

    def on_client_gone(self) -> None:
        """Abort the session, because its call has ended."""
        self.abort(_CLIENT_GONE)


def _is_call_end(code: grpc.StatusCode, details: str | None) -> bool:
    return code is grpc.StatusCode.INTERNAL and details == _CALL_END_DETAILS


def end_reason(code: grpc.StatusCode, details: str | None) -> str:
    """Return why a call ended, as text; gRPC has no status for a call whose end came before a write."""
    if _is_call_end(code, details):
        return f"{_SESSION_CLOSED} while data was being sent to it"
    return details or code.name


def is_being_cancelled() -> bool:
    """Return whether the current task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _retrieve_exception(task: asyncio.Task[memoryview]) -> None:
    if not task.cancelled():
        task.exception()  # retrieve the exception: the task has no reader any more
