"""What serves a session: asked first whether it takes one, then given its stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from typing_extensions import override

from fleet.protocol.tunnel import Target, TunnelError
from fleet.transport.tunnel import codec, pump
from fleet.transport.tunnel.pump import Policy
from fleet.transport.tunnel.stream import CHUNK, TunnelStream


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
        raise TunnelError(f"{host}:{port} cannot be reached: {error.strerror or error}") from None


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
    """Carry bytes between two sessions to their ends. Raises TunnelAborted."""
    there = asyncio.create_task(_copy(near, far))
    back = asyncio.create_task(_copy(far, near))
    try:
        waiting = {there, back}
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            # An end that cannot half-close is finished with both directions when it says so.
            if (there.done() and not near.half_close) or (back.done() and not far.half_close):
                break
    except (TunnelError, asyncio.CancelledError) as error:
        for stream in (near, far):
            stream.abort(str(error) or "the bridge was stopped")
        raise
    finally:
        for task in (there, back):
            task.cancel()
        await asyncio.gather(there, back, return_exceptions=True)
    await asyncio.gather(near.close(), far.close())


async def _copy(source: TunnelStream, sink: TunnelStream) -> None:
    while len(payload := await source.receive()):
        for start in range(0, len(payload), CHUNK):
            await sink.send(codec.data_message(payload[start : start + CHUNK]))
    await sink.write_eof()
