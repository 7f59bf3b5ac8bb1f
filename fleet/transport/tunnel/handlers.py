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
from fleet.transport.tunnel.pump import Policy
from fleet.transport.tunnel.stream import CHUNK, TunnelAborted, TunnelStream

log = logging.getLogger(__name__)

T = TypeVar("T")


class Taken(Protocol):
    """A session that was taken, before its stream is there."""

    async def serve(self, stream: TunnelStream) -> None:
        """Serve it to its end. What it raises ends this session only."""

    def discard(self) -> None:
        """The stream never came."""


#: The seed's register handler: takes a session to a target, or refuses it by TunnelError. What it gives back is the
#: handler, so one cannot be there without the other.
Handler = Callable[[Target], Awaitable[Taken]]


class Serve(Taken):
    """A session served by a coroutine function alone."""

    def __init__(self, serve: Callable[[TunnelStream], Awaitable[None]]) -> None:
        self._serve = serve

    @override
    async def serve(self, stream: TunnelStream) -> None:
        await self._serve(stream)

    @override
    def discard(self) -> None:
        pass


class Dialled(Taken):
    """A session to a TCP service."""

    def __init__(self, wire: pump.Wire, policy: Policy) -> None:
        self._wire = wire
        self._policy = policy

    @override
    async def serve(self, stream: TunnelStream) -> None:
        await pump.pump(self._wire, stream, self._policy)

    @override
    def discard(self) -> None:
        self._wire.reset()


async def dial(host: str, port: int, policy: Policy, *, within: float = 5.0) -> Dialled:
    """Take a session by connecting to host:port: who asks for it is told when that fails. Raises TunnelError."""
    try:
        return Dialled(await pump.connect(host, port, within), policy)
    except TimeoutError:
        raise TunnelError(f"{host}:{port} did not answer within {within:g} s") from None
    except OSError as error:
        raise TunnelError(f"{host}:{port} cannot be reached: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    # The words of an event loop ("Connect call failed") say less than the system's. A name that is unknown has a number
    # below zero, and good words of its own.
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


class Bridge(Taken):
    """A session of one client served by a session of another."""

    def __init__(self, far: TunnelStream) -> None:
        self._far = far

    @override
    async def serve(self, stream: TunnelStream) -> None:
        await join(stream, self._far)

    @override
    def discard(self) -> None:
        self._far.abort("its caller never came")


async def join(near: TunnelStream, far: TunnelStream) -> None:
    """Carry bytes between the caller's session and the target's to their ends. Raises TunnelAborted."""
    there = asyncio.create_task(_copy(near, far, "caller", "target"))
    back = asyncio.create_task(_copy(far, near, "target", "caller"))
    try:
        await _carry(there, back, near, far)
    except (TunnelError, asyncio.CancelledError) as error:
        for stream in (near, far):
            stream.abort(str(error) or "the bridge was stopped, or the session's caller went away")
        raise
    finally:
        for task in (there, back):
            task.cancel()
        await asyncio.gather(there, back, return_exceptions=True)
    await asyncio.gather(near.close(), far.close())


async def _carry(
    there: asyncio.Task[None], back: asyncio.Task[None], near: TunnelStream, far: TunnelStream
) -> None:
    watched = {near.over: (near, "caller"), far.over: (far, "target")}
    while True:
        for task in (there, back):
            if task.done():
                task.result()
        # An end that is finished is read no more: only its call's end tells that it is gone.
        for over in [over for over in watched if over.done()]:
            stream, whose = watched.pop(over)
            if why := await stream.verdict():
                raise TunnelAborted(_at(whose, why))
        if there.done() and back.done():
            return
        # An end that cannot half-close, or whose call is over, is finished with both directions when it says so.
        if there.done() and (not near.half_close or near.over.done()):
            return
        if back.done() and (not far.half_close or far.over.done()):
            return
        waiting = [task for task in (there, back) if not task.done()]
        await asyncio.wait((*waiting, *watched), return_when=asyncio.FIRST_COMPLETED)


async def _copy(source: TunnelStream, sink: TunnelStream, here: str, there: str) -> None:
    while len(payload := await _told(here, source.receive())):
        for start in range(0, len(payload), CHUNK):
            await _told(there, sink.send(codec.data_message(payload[start : start + CHUNK])))
    await _told(there, sink.write_eof())


async def _told(whose: str, work: Awaitable[T]) -> T:
    """Do it, and say at whose end it failed: the other end is told, too."""
    try:
        return await work
    except TunnelAborted as error:
        raise TunnelAborted(_at(whose, str(error))) from None


def _at(whose: str, why: str) -> str:
    return f"at the {whose}'s end of the bridge: {why}"


def tell(callback: Callable[..., None] | None, *news: object) -> None:
    """Call a stranger's callback: its fault is logged, and is not the tunnel's."""
    try:
        if callback is not None:
            callback(*news)
    except Exception:
        log.exception("a callback failed")
