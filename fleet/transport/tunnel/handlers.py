"""What serves a session: asked first whether it takes one, then given its stream."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from typing_extensions import override

from fleet.protocol.tunnel.messages import Target, TunnelError
from fleet.transport.tunnel import codec, pump
from fleet.transport.tunnel.pump import SessionPolicy
from fleet.transport.tunnel.stream import CHUNK, TunnelAbortedError, TunnelStream

log = logging.getLogger(__name__)

T = TypeVar("T")


class AcceptedSession(Protocol):
    """A session that was taken, before its stream is there."""

    async def serve(self, stream: TunnelStream) -> None:
        """Serve it to its end. What it raises ends this session only."""

    def discard(self) -> None:
        """The stream never came."""


#: The seed's register handler: takes a session to a target, or refuses it by TunnelError. What it gives back is the
#: handler, so one cannot be there without the other.
Handler = Callable[[Target], Awaitable[AcceptedSession]]


class FunctionSession(AcceptedSession):
    """A session served by a coroutine function alone."""

    def __init__(self, serve: Callable[[TunnelStream], Awaitable[None]]) -> None:
        self._serve = serve

    @override
    async def serve(self, stream: TunnelStream) -> None:
        await self._serve(stream)

    @override
    def discard(self) -> None:
        pass


class TcpSession(AcceptedSession):
    """A session to a TCP service."""

    def __init__(self, connection: pump.TcpConnection, policy: SessionPolicy) -> None:
        self._connection = connection
        self._policy = policy

    @override
    async def serve(self, stream: TunnelStream) -> None:
        await pump.pump(self._connection, stream, self._policy)

    @override
    def discard(self) -> None:
        self._connection.reset()


async def dial(host: str, port: int, policy: SessionPolicy, *, within: float = 5.0) -> TcpSession:
    """Take a session by connecting to host:port: who asks for it is told when that fails. Raises TunnelError."""
    try:
        return TcpSession(await pump.connect(host, port, within), policy)
    except TimeoutError:
        raise TunnelError(f"{host}:{port} did not answer within {within:g} s") from None
    except OSError as error:
        raise TunnelError(f"{host}:{port} cannot be reached: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    # The words of an event loop ("Connect call failed") say less than the system's. A name that is unknown has a number
    # below zero, and good words of its own.
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


class BridgeSession(AcceptedSession):
    """A session of one client served by a session of another."""

    def __init__(self, target_stream: TunnelStream) -> None:
        self._target_stream = target_stream

    @override
    async def serve(self, stream: TunnelStream) -> None:
        await join(stream, self._target_stream)

    @override
    def discard(self) -> None:
        self._target_stream.abort("its caller never came")


async def join(caller_stream: TunnelStream, target_stream: TunnelStream) -> None:
    """Carry bytes between the caller's session and the target's to their ends. Raises TunnelAborted."""
    outbound = asyncio.create_task(_copy(caller_stream, target_stream, "caller", "target"))
    inbound = asyncio.create_task(_copy(target_stream, caller_stream, "target", "caller"))
    try:
        await _carry(outbound, inbound, caller_stream, target_stream)
    except (TunnelError, asyncio.CancelledError) as error:
        for stream in (caller_stream, target_stream):
            stream.abort(str(error) or "the bridge was stopped, or the session's caller went away")
        raise
    finally:
        for task in (outbound, inbound):
            task.cancel()
        await asyncio.gather(outbound, inbound, return_exceptions=True)
    await asyncio.gather(caller_stream.close(), target_stream.close())


async def _carry(
    outbound: asyncio.Task[None], inbound: asyncio.Task[None], caller_stream: TunnelStream, target_stream: TunnelStream
) -> None:
    open_calls = {caller_stream.over_future: (caller_stream, "caller"), target_stream.over_future: (target_stream, "target")}
    while True:
        for task in (outbound, inbound):
            if task.done():
                task.result()
        # An end that is finished is read no more: only its call's end tells that it is gone.
        for over in [over for over in open_calls if over.done()]:
            stream, end_name = open_calls.pop(over)
            if reason := await stream.verdict():
                raise TunnelAbortedError(_end_error(end_name, reason))
        if outbound.done() and inbound.done():
            return
        # An end that cannot half-close, or whose call is over, is finished with both directions when it says so.
        if outbound.done() and (not caller_stream.half_close or caller_stream.over_future.done()):
            return
        if inbound.done() and (not target_stream.half_close or target_stream.over_future.done()):
            return
        pending_tasks = [task for task in (outbound, inbound) if not task.done()]
        await asyncio.wait((*pending_tasks, *open_calls), return_when=asyncio.FIRST_COMPLETED)


async def _copy(source: TunnelStream, sink: TunnelStream, source_name: str, sink_name: str) -> None:
    while len(payload := await _name_failed_end(source_name, source.receive())):
        for start in range(0, len(payload), CHUNK):
            await _name_failed_end(sink_name, sink.send(codec.data_message(payload[start : start + CHUNK])))
    await _name_failed_end(sink_name, sink.write_eof())


async def _name_failed_end(end_name: str, work: Awaitable[T]) -> T:
    """Do it, and say at whose end it failed: the other end is told, too."""
    try:
        return await work
    except TunnelAbortedError as error:
        raise TunnelAbortedError(_end_error(end_name, str(error))) from None


def _end_error(end_name: str, reason: str) -> str:
    return f"at the {end_name}'s end of the bridge: {reason}"


def call_back(callback: Callable[..., None] | None, *args: object) -> None:
    """Call a stranger's callback: its fault is logged, and is not the tunnel's."""
    try:
        if callback is not None:
            callback(*args)
    except Exception:
        log.exception("a callback failed")
