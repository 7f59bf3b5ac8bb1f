"""One session of a tunnel: a byte stream over a Tunnel call, with the two ways to end it.

Between peers of our own, `close` ends the sender's direction and the other goes on, as in TCP. With others it ends
both: what they would receive after it they drop. An end that nobody said is an abort, and both ends are told.
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

#: Bytes in one message of ours, at most: large ones cost least a byte, a quarter less than of 256 KiB. Every peer takes
#: this much: gRPC's limit is 4 MiB unless raised.
CHUNK = 1024 * 1024
#: After both ends are finished the server ends the call; a client waits so long for it, seconds. What is still on its
#: way over a slow line is lost if this is too short.
_END_WITHIN = 30.0
#: A client that can half-close, and was sent our end, may take so long to send its own, seconds.
_LAST_WORD_WITHIN = 5.0
#: A call's first message has reached the server's program within this, seconds, so that an end cannot overtake it.
_TAG_WITHIN = 0.25
#: A server cannot tell these from each other: gRPC shows it the end of the call and no more.
_CLIENT_GONE = "the client went away: it aborted the session, was lost, or sent too large a message"
_SESSION_CLOSED = "the other end has closed the session"
#: How grpc.aio names a write that met the end of its call, whatever that end was.
_CALL_END_DETAILS = "Internal error from Core"


class TunnelAbortedError(TunnelError):
    """The session ended without the other end having said so; what came before it may not be all."""


class _CallEndedError(TunnelAbortedError):
    """The other end had ended the call, as it should, when this was sent."""


class TunnelStream(ABC):
    """A session, whichever end has it. One reads and one writes at a time."""

    def __init__(self, target: Target, tag: int, *, half_close: bool) -> None:
        self.target = target
        self.tag = tag
        #: The other end goes on sending after we said that we are finished, and takes what we send after it did.
        self.half_close = half_close
        #: The other end is finished, and said so.
        self.is_remote_finished = False
        #: We are finished, and said so.
        self.is_finished = False
        self.end_event = asyncio.Event()
        #: Done when the call is over, whoever ended it. Not to be awaited alone: that would cancel it for all.
        loop = asyncio.get_running_loop()
        self.over_future: asyncio.Future[None] = loop.create_future()
        self._now = loop.time
        #: When the other end last said something, by the loop's clock.
        self.last_seen_at = loop.time()
        #: Why it was aborted here; empty when it was not.
        self.abort_reason = ""
        #: Hears what of the other end's messages was none of this session's, so that the error goes to it on Register.
        self.on_fault: Callable[[str], None] = lambda _: None
        self._rest = memoryview(b"")
        self._read_task: asyncio.Task[memoryview] | None = None
        self._write_lock = asyncio.Lock()

    # -- the bare call, without any care: pumps use these, each from one task of its own ------------

    async def receive(self) -> memoryview:
        """The next payload, of any size; empty at the end. What `read` left comes first. Raises TunnelAborted."""
        if self._rest:
            rest, self._rest = self._rest, memoryview(b"")
            return rest
        if self._read_task is not None:
            read_task, self._read_task = self._read_task, None
            return await read_task
        return await self._payload()

    async def _payload(self) -> memoryview:
        while not self.is_remote_finished:
            payload, is_finished = self._read(await self._receive())
            self.last_seen_at = self._now()
            if is_finished:
                self.is_remote_finished = True
            if len(payload):
                return payload
        return memoryview(b"")

    def _read(self, raw: bytes) -> tuple[memoryview, bool]:
        try:
            return codec.read_data(raw, self.tag)
        except TunnelError as error:
            self.on_fault(str(error))
            self.abort(str(error))
            raise TunnelAbortedError(str(error)) from None

    @abstractmethod
    async def send(self, message: bytes) -> None:
        """Send a whole message. Raises TunnelAborted."""

    @abstractmethod
    async def _receive(self) -> bytes:
        """The next message, as it came. Raises TunnelAborted."""

    @abstractmethod
    async def _finish(self) -> None:
        """Both directions have ended."""

    @abstractmethod
    async def verdict(self) -> str:
        """Once the call is over: why it ended badly; empty when it ended well."""

    def _set_over(self) -> None:
        if not self.over_future.done():
            self.over_future.set_result(None)

    # -- the byte stream -------------------------------------------------------------------------

    async def read(self, limit: int = -1) -> bytes:
        """Read what is there, `limit` bytes at most; empty at the end. Raises TunnelAborted."""
        if not self._rest:
            self._rest = await self._next()
        chunk = self._rest if limit < 0 else self._rest[:limit]
        self._rest = self._rest[len(chunk) :]
        return bytes(chunk)

    async def _next(self) -> memoryview:
        # The read below must not be cancelled: that would end the whole call. So it has a task of its own.
        if self.end_event.is_set():
            raise TunnelAbortedError(self.abort_reason or "the session is closed")
        if self._read_task is None:
            self._read_task = asyncio.create_task(self._payload())
            self._read_task.add_done_callback(_forget)
        end_task = asyncio.create_task(self.end_event.wait())
        try:
            await asyncio.wait((self._read_task, end_task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            end_task.cancel()
        if not self._read_task.done():
            raise TunnelAbortedError(self.abort_reason or "the session is closed")
        read_task, self._read_task = self._read_task, None
        return read_task.result()

    async def write(self, payload: bytes | memoryview) -> None:
        """Send, and wait until gRPC took it. Raises TunnelAborted; TunnelError once `write_eof` was called."""
        view = memoryview(payload)
        async with self._write_lock:
            for start in range(0, len(view), CHUNK):
                if self.is_finished:
                    raise TunnelError("this end is finished already")
                await self.send(codec.data_message(view[start : start + CHUNK]))

    async def write_eof(self) -> None:
        """Say that nothing more comes from here; with a peer of other make this ends its sending, too."""
        async with self._write_lock:
            if not self.is_finished:
                self.is_finished = True
                await self._send_end()

    async def close(self) -> None:
        """End both directions in an orderly way."""
        with contextlib.suppress(TunnelError):
            await self.write_eof()
        self.end_event.set()
        await self._finish()

    @abstractmethod
    async def settle(self) -> None:
        """Before an abort of a session that was just opened: see to it that the other end knows which one it is."""

    @abstractmethod
    def abort(self, reason: str) -> None:
        """End both directions at once, and tell the other end that it is not the orderly way."""

    async def _send_end(self) -> None:
        await self.send(codec.CLOSE)


class ClientStream(TunnelStream):
    """A session as the client has it: it opens the call, and the server ends it."""

    def __init__(self, call: Any, target: Target, tag: int, *, half_close: bool) -> None:
        super().__init__(target, tag, half_close=half_close)
        self._call = call
        self._opened_at = self.last_seen_at
        call.add_done_callback(lambda _: self._set_over())

    @property
    def is_unacknowledged(self) -> bool:
        """Whether the server said nothing yet: it may not know the tag."""
        return self.last_seen_at == self._opened_at

    @property
    def age(self) -> float:
        """Seconds since it was opened."""
        return self._now() - self._opened_at

    @override
    async def send(self, message: bytes) -> None:
        try:
            await self._call.write(message)
        except grpc.aio.AioRpcError as error:
            # Of a write that met the end gRPC keeps no status: a server that was finished is taken at its word.
            is_call_end = self.is_remote_finished and _is_call_end(error.code(), error.details())
            kind = _CallEndedError if is_call_end else TunnelAbortedError
            raise kind(end_reason(error.code(), error.details())) from None
        except asyncio.InvalidStateError:
            reason = await self.verdict()
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
            # Trailers that say OK are an end as good as a close: a server's close may lose the race against them.
            self.is_remote_finished = True
            return b""
        assert isinstance(raw, bytes)
        return raw

    @override
    async def _send_end(self) -> None:
        # A call that has ended needs no end from here.
        with contextlib.suppress(_CallEndedError):
            await super()._send_end()
            if self.half_close:
                await self._call.done_writing()

    @override
    async def _finish(self) -> None:
        """Wait for the server to end the call, as it must; one that does not is cancelled."""
        if not self._call.done():
            # gRPC holds the end back until everything before it was read. After the other's close nothing is.
            unread = not self.is_remote_finished
            drain_task = asyncio.create_task(self._drain()) if unread else None
            try:
                with contextlib.suppress(asyncio.InvalidStateError):
                    await self._call.done_writing()
                await asyncio.wait((self.over_future,), timeout=_END_WITHIN)
            finally:
                self._call.cancel()
                if drain_task is not None:
                    await asyncio.wait((drain_task,))

    @override
    async def settle(self) -> None:
        """A call that is cancelled at once may reach the server without its tag, whose caller would wait in vain."""
        if self.is_unacknowledged:
            await asyncio.wait((self.over_future,), timeout=self._opened_at + _TAG_WITHIN - self._now())

    async def _drain(self) -> None:
        if self._read_task is not None:
            await asyncio.wait((self._read_task,))
        with contextlib.suppress(grpc.aio.AioRpcError):
            while isinstance(await self._call.read(), bytes):
                pass

    @override
    def abort(self, reason: str) -> None:
        self.abort_reason = self.abort_reason or reason
        self.end_event.set()
        self._call.cancel()

    def _raise_if_aborted(self) -> None:
        """A call that was cancelled by us raises CancelledError in tasks that nobody cancels. Raises TunnelAborted."""
        if not is_cancelled():
            raise TunnelAbortedError(self.abort_reason or "the session was aborted here") from None

    @override
    async def verdict(self) -> str:
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            return ""
        return self.abort_reason or end_reason(code, await self._call.details())


class ServerStream(TunnelStream):
    """A session as the server has it: the call lasts until `over` is told."""

    def __init__(
        self, context: grpc.aio.ServicerContext[Any, Any], target: Target, tag: int, *, half_close: bool
    ) -> None:
        super().__init__(target, tag, half_close=half_close)
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
            # A client that was killed looks like one that is finished, but for the close it did not send.
            raise TunnelAbortedError(self.abort_reason or _CLIENT_GONE)
        assert isinstance(raw, bytes)
        return raw

    @override
    async def _finish(self) -> None:
        """Let a client that can half-close end its direction first.

        gRPC drops what a client has not read yet once a write of it meets the end of its call: an answer, most of all
        the short answer to a client that has nothing to send. Data in the place of that end is refused at once.
        """
        if self.half_close and not self.is_remote_finished and not self.over_future.done():
            if self._read_task is None:
                self._read_task = asyncio.create_task(self._payload())
                self._read_task.add_done_callback(_forget)
            await asyncio.wait(
                (self._read_task, self.over_future), timeout=_LAST_WORD_WITHIN, return_when=asyncio.FIRST_COMPLETED
            )
        self._set_over()

    @override
    async def verdict(self) -> str:
        return self.abort_reason

    @override
    def abort(self, reason: str) -> None:
        if not self.over_future.done():
            self.abort_reason = reason
        self.end_event.set()
        self._set_over()

    @override
    async def settle(self) -> None:
        """Its client knows: it opened the call."""

    def on_client_gone(self) -> None:
        """Its call has ended, whether or not this end was ready for it."""
        self.abort(_CLIENT_GONE)


def _is_call_end(code: grpc.StatusCode, details: str | None) -> bool:
    return code is grpc.StatusCode.INTERNAL and details == _CALL_END_DETAILS


def end_reason(code: grpc.StatusCode, details: str | None) -> str:
    """Why a call ended, in words; gRPC keeps no status of a call whose end was met by a write."""
    if _is_call_end(code, details):
        return f"{_SESSION_CLOSED}, while more was sent to it"
    return details or code.name


def is_cancelled() -> bool:
    """Whether the task that asks is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _forget(task: asyncio.Task[memoryview]) -> None:
    if not task.cancelled():
        task.exception()  # it was nobody's any more
