"""Handlers of sessions: a handler accepts or refuses a session first, and then gets its stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from typing_extensions import override

from fleet.protocol.tunnel.messages import Target, TunnelError
from fleet.transport import connection_errors
from fleet.transport.tunnel import codec, pump
from fleet.transport.tunnel.pump import SessionPolicy
from fleet.transport.tunnel.stream import CHUNK_SIZE, TunnelAbortedError, TunnelStream

log = logging.getLogger(__name__)

T = TypeVar("T")


class AcceptedSession(Protocol):
    """An accepted session whose stream is not open yet."""

    async def serve(self, stream: TunnelStream) -> None:
        """Serve the session until it ends. An exception ends only this session."""

    def discard(self) -> None:
        """Clean up: the stream was never opened."""


#: The register handler of the design "TCP over gRPC Tunnel": accepts a session to a target, or refuses it with
#: TunnelError. Its result is the handler, so the two cannot be configured separately.
SessionHandler = Callable[[Target], Awaitable[AcceptedSession]]


class FunctionSession(AcceptedSession):
    """A session served by a single coroutine function."""

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
    """Accept a session by connecting to host:port. Raises TunnelError, which the requester gets, if that fails."""
    try:
        return TcpSession(await pump.connect(host, port, within), policy)
    except TimeoutError:
        raise TunnelError(f"{host}:{port} did not answer within {within:g} s") from None
    except OSError as error:
        raise TunnelError(f"cannot connect to {host}:{port}: {connection_errors.describe(error)}") from None


class BridgeSession(AcceptedSession):
    """A session of one client, served by a session of another one."""

    def __init__(self, target_stream: TunnelStream) -> None:
        self._target_stream = target_stream

    @override
    async def serve(self, stream: TunnelStream) -> None:
        await bridge_streams(stream, self._target_stream)

    @override
    def discard(self) -> None:
        self._target_stream.abort("the caller never opened the session")


async def bridge_streams(caller_stream: TunnelStream, target_stream: TunnelStream) -> None:
    """Copy bytes between the caller's session and the target's until both end. Raises TunnelAbortedError."""
    outbound_task = asyncio.create_task(_copy(caller_stream, target_stream, "caller", "target"))
    inbound_task = asyncio.create_task(_copy(target_stream, caller_stream, "target", "caller"))
    try:
        await _supervise(outbound_task, inbound_task, caller_stream, target_stream)
    except (TunnelError, asyncio.CancelledError) as error:
        for stream in (caller_stream, target_stream):
            stream.abort(str(error) or "the bridge was stopped, or the caller disconnected")
        raise
    finally:
        for task in (outbound_task, inbound_task):
            task.cancel()
        await asyncio.gather(outbound_task, inbound_task, return_exceptions=True)
    await asyncio.gather(caller_stream.close(), target_stream.close())


async def _supervise(
    outbound_task: asyncio.Task[None],
    inbound_task: asyncio.Task[None],
    caller_stream: TunnelStream,
    target_stream: TunnelStream,
) -> None:
    end_by_call = {
        caller_stream.call_over_future: (caller_stream, "caller"),
        target_stream.call_over_future: (target_stream, "target"),
    }
    while True:
        for task in (outbound_task, inbound_task):
            if task.done():
                task.result()
        # A finished end is not read any more: only the end of its call shows that it is gone.
        for over in [over for over in end_by_call if over.done()]:
            stream, end_name = end_by_call.pop(over)
            if reason := await stream.failure_reason():
                raise TunnelAbortedError(_end_error_text(end_name, reason))
        if outbound_task.done() and inbound_task.done():
            return
        # An end that cannot half-close, or whose call is over, has ended both directions once it says so.
        if outbound_task.done() and (
            not caller_stream.can_half_close or caller_stream.call_over_future.done()
        ):
            return
        if inbound_task.done() and (
            not target_stream.can_half_close or target_stream.call_over_future.done()
        ):
            return
        pending_tasks = [task for task in (outbound_task, inbound_task) if not task.done()]
        await asyncio.wait((*pending_tasks, *end_by_call), return_when=asyncio.FIRST_COMPLETED)


async def _copy(source: TunnelStream, sink: TunnelStream, source_name: str, sink_name: str) -> None:
    while len(payload := await _await_at_end(source_name, source.receive())):
        for start in range(0, len(payload), CHUNK_SIZE):
            await _await_at_end(sink_name, sink.send(codec.data_message(payload[start : start + CHUNK_SIZE])))
    await _await_at_end(sink_name, sink.write_eof())


async def _await_at_end(end_name: str, work: Awaitable[T]) -> T:
    """Await `work`; an error names the end at which it happened, because the other end gets it."""
    try:
        return await work
    except TunnelAbortedError as error:
        raise TunnelAbortedError(_end_error_text(end_name, str(error))) from None


def _end_error_text(end_name: str, reason: str) -> str:
    return f"at the {end_name}'s end of the bridge: {reason}"


def call_back(callback: Callable[..., None] | None, *args: object) -> None:
    """Call a callback of the user; an exception is logged, and does not affect the tunnel."""
    try:
        if callback is not None:
            callback(*args)
    except Exception:
        log.exception("a callback of the tunnel's user failed")
