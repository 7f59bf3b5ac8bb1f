"""A session as a Go peer has it: ioStream of openconfig/grpctunnel, on raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio

from tests.fakes.strict_messages import BLOCK, Complaints, GoError, read_data, write_data
from tests.fakes.strict_wire import WireError


class StrictStream:
    """Reads and writes as Go does: a close ends both directions, a tag is sent with every block and never looked at."""

    def __init__(
        self,
        tag: int,
        receive: Callable[[], Awaitable[object]],
        send: Callable[[bytes], Awaitable[object]],
        complaints: Complaints,
    ) -> None:
        self.tag = tag
        self._receive = receive
        self._send = send
        self._complaints = complaints
        self._rest = b""
        self._remote_closed = False
        self._closing = False
        self._write_lock = asyncio.Lock()
        #: A server's message that closes does not make it before the call's end.
        self.close_loses = False
        #: Set once Close was called here: the server's RPC ends by it.
        self.closed = asyncio.Event()

    async def read(self, limit: int = BLOCK) -> bytes:
        """As io.Reader; empty at the end. Raises GoError for a broken transport."""
        if self._closing:
            raise GoError("context canceled")
        while not self._rest:
            if self._remote_closed:
                return b""
            raw = await self._message()
            if raw is None:
                # io.EOF of Recv: trailers that say OK, or a client that half-closed.
                self._remote_closed = True
                return b""
            self._rest = self._take(raw)
        chunk, self._rest = self._rest[:limit], self._rest[limit:]
        return chunk

    async def read_all(self) -> bytes:
        """To the end."""
        chunks = bytearray()
        while part := await self.read():
            chunks += part
        return bytes(chunks)

    async def write(self, data: bytes) -> None:
        """As io.Writer, in io.Copy's blocks."""
        for start in range(0, len(data), BLOCK):
            async with self._write_lock:
                if self._closing:
                    raise GoError("context canceled")
                await self._send(write_data(self.tag, data[start : start + BLOCK]))

    async def close(self) -> None:
        """Say so, unless that loses against the end of the call, as it may in Go; then nothing is read here."""
        if self._closing:
            return
        self._closing = True
        if not self.close_loses:
            with contextlib.suppress(grpc.aio.BaseError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
                async with self._write_lock:
                    await self._send(write_data(self.tag, close=True))
        self.closed.set()

    def _take(self, raw: bytes) -> bytes:
        try:
            _, payload, closes = read_data(raw)
        except WireError as error:
            raise GoError(
                self._complaints.add(f"what came on a Tunnel stream is no Data: {error}")
            ) from error
        if closes:
            self._remote_closed = True
            if payload:
                self._complaints.add("a payload in the message that closes: Go drops it")
            return b""
        return payload

    async def _message(self) -> bytes | None:
        try:
            raw = await self._receive()
        except grpc.aio.AioRpcError as error:
            raise GoError(f"rpc error: code = {error.code().name} desc = {error.details()}") from None
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            raise GoError(f"rpc error: {error}") from None
        if isinstance(raw, bytes):
            return raw
        return None

    async def nothing_follows(self) -> None:
        """Read to the end of the call; after its own end the other may send no more: Go's reader would be gone."""
        while (raw := await self._message()) is not None:
            _, payload, closes = read_data(raw)
            if payload and self._remote_closed:
                self._complaints.add("a payload after the end of the session")
            self._remote_closed = self._remote_closed or closes


async def echo(stream: StrictStream) -> None:
    """A handler that says everything again, then closes."""
    while data := await stream.read():
        await stream.write(data)
    await stream.close()
