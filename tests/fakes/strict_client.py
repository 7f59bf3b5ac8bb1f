"""A tunnel client as strict as openconfig's Go code, in both versions. Its peer: tests/fakes/strict_server.py.

It dies of what the Go client dies of: a target, a subscription or a session that is refused, a session without accept,
a handler that refuses or fails. It never half-closes nor cancels a Tunnel call: the server must finish it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc
import grpc.aio

from fleet.protocol.tunnel.messages import WireVersion
from tests.fakes.strict_stream import StrictStream
from tests.fakes.strict_wire import ADD, REMOVE, WireError
from tests.fakes.strict_words import Complaints, GoError, Said, read, write, write_data

Handler = Callable[[StrictStream], Awaitable[None]]
#: A server that leaves a Tunnel call open this long after the session's end leaks it, seconds.
_FINISHED_WITHIN = 10.0
#: How grpc.aio names a write that met the end of its call, whatever that end was; Go's Send would return io.EOF.
_MET_THE_END = "Internal error from Core"


class StrictClient:
    """Registers pairs and serves their sessions by `handler`, unless it `refuses`."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        wire: WireVersion,
        *,
        handler: Handler | None = None,
        refuses: str = "",
    ) -> None:
        self.wire = wire
        self.complaints = Complaints()
        self.refuses = refuses
        self.up = asyncio.Event()
        self.news: list[tuple[int, str, str]] = []
        self.subscribed: list[str] = []
        #: Codes with which Tunnel calls ended.
        self.codes: list[grpc.StatusCode] = []
        self._handler = handler
        self._register: Any = channel.stream_stream("/grpctunnel.Tunnel/Register")
        self._tunnel: Any = channel.stream_stream("/grpctunnel.Tunnel/Tunnel")
        self._call: Any = None
        self._tag = 0
        self._writing = asyncio.Lock()
        self._last_of_server = 0
        self._unanswered: list[tuple[str, str]] = []
        self._waiters: dict[int, tuple[Said, asyncio.Future[StrictStream]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._died: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, targets: Iterable[tuple[str, str]] = (), subscribe: Iterable[str] = ()) -> None:
        """Register, and serve until something kills it. Raises GoError."""
        self._call = self._register()
        reading = asyncio.create_task(self._read(tuple(targets), tuple(subscribe)), name="strict register")
        try:
            await asyncio.wait((reading, self._died), return_when=asyncio.FIRST_COMPLETED)
            for done in (self._died, reading):
                if done.done():
                    done.result()
        finally:
            self._call.cancel()
            for task in (reading, *self._tasks):
                task.cancel()
            await asyncio.gather(reading, *self._tasks, return_exceptions=True)

    async def new_session(self, target: str, kind: str = "") -> StrictStream:
        """Ask the server. Raises GoError."""
        self._tag -= 1
        said = Said(
            "session", tag=self._tag, target=target, kind="" if self.wire is WireVersion.V0_1 else kind
        )
        waiter: asyncio.Future[StrictStream] = asyncio.get_running_loop().create_future()
        self._waiters[said.tag] = (said, waiter)
        await self._say(said)
        async with asyncio.timeout(60):
            return await waiter

    async def finished(self) -> None:
        """Wait until the server has finished every Tunnel call."""
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _say(self, said: Said) -> None:
        async with self._writing:
            await self._call.write(write(self.wire, said))

    async def _read(self, targets: tuple[tuple[str, str], ...], subscribe: tuple[str, ...]) -> None:
        try:
            if self.wire is WireVersion.V0_1:
                await self._exchange_capabilities()
            self._unanswered.extend(targets)
            for target, kind in targets:
                await self._say(Said("target", op=ADD, target=target, kind=kind))
            for kind in subscribe:
                await self._say(Said("subscription", op=ADD, kind=kind))
            if not targets:
                self.up.set()
            while isinstance(raw := await self._call.read(), bytes):
                await self._hear(self._parse(raw))
        except grpc.aio.AioRpcError as error:
            raise GoError(f"rpc error: code = {error.code().name} desc = {error.details()}") from None
        raise GoError("EOF")

    def _parse(self, raw: bytes) -> Said:
        try:
            return read(self.wire, raw)
        except WireError as error:
            raise GoError(self.complaints.add(f"what came on Register is no message: {error}")) from error

    async def _exchange_capabilities(self) -> None:
        await self._say(Said("capabilities", handler=self._handler is not None))
        raw = await self._call.read()
        if not isinstance(raw, bytes):
            raise GoError("EOF")
        said = self._parse(raw)
        if said.what != "capabilities":
            raise GoError(self.complaints.add("the first message of version 0.1 must be capabilities"))
        if not (said.handler or self._handler):
            raise GoError("no handlers defined")

    async def _hear(self, said: Said) -> None:
        if said.what == "capabilities":
            self.complaints.add("capabilities after the first message")
        elif said.what == "target":
            self._hear_target(said)
        elif said.what == "subscription":
            if said.error or not said.accept:
                raise GoError(f"subscription failed: {said.error}")
            self.subscribed.append(said.kind)
        elif said.what == "session":
            await self._hear_session(said)
        else:
            self.complaints.add("an empty message on Register")

    def _hear_target(self, said: Said) -> None:
        if said.accept and said.error:
            self.complaints.add(f"accepted and refused at once: {said}")
        if said.accept or said.error:
            if said.op != 0:
                self.complaints.add(f"an answer has no operation: {said}")
            if said.pair not in self._unanswered:
                self.complaints.add(f"an answer to nothing: {said}")
            else:
                self._unanswered.remove(said.pair)
            if said.error:
                raise GoError(f"failed to register target: {said.error}")
            if not self._unanswered:
                self.up.set()
        elif said.op not in (ADD, REMOVE):
            self.complaints.add(f"news of nothing: {said}")
        else:
            self.news.append((said.op, said.target, said.kind))

    async def _hear_session(self, said: Said) -> None:
        if said.tag == 0:
            self.complaints.add("tag 0")
        elif said.tag < 0:
            self._hear_answer(said)
        else:
            if not said.accept or said.error:
                raise GoError(self.complaints.add(f"not accepted by server: {said}"))
            if said.tag <= self._last_of_server:
                self.complaints.add(f"tag {said.tag} after {self._last_of_server}: a server counts up")
            self._last_of_server = said.tag
            if self.refuses or self._handler is None:
                await self._say(Said("session", tag=said.tag, error=self.refuses or "no handler"))
                raise GoError(f"register handler: {self.refuses}")
            self._start(self._open(said.tag, None))

    def _hear_answer(self, said: Said) -> None:
        asked, waiter = self._waiters.pop(said.tag, (None, None))
        if asked is None or waiter is None:
            self.complaints.add(f"an answer to a session that was not asked for: {said}")
            return
        if said.error or not said.accept:
            if said.accept:
                self.complaints.add(f"accepted and refused at once: {said}")
            waiter.set_exception(GoError(said.error))
            return
        if said.pair != asked.pair:
            self.complaints.add(f"accepted another target than was asked for: {said}")
        self._start(self._open(said.tag, waiter))

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work, name="strict session")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, tag: int, waiter: asyncio.Future[StrictStream] | None) -> None:
        call = self._tunnel()
        await call.write(write_data(tag))
        stream = StrictStream(tag, call.read, call.write, self.complaints)
        if waiter is not None:
            waiter.set_result(stream)
            waiting = [asyncio.ensure_future(work) for work in (stream.closed.wait(), call.code())]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
        else:
            assert self._handler is not None, "else it refuses"
            await self._handle(self._handler, stream)
        await self._expect_end(call, stream)

    async def _handle(self, handler: Handler, stream: StrictStream) -> None:
        try:
            await handler(stream)
        except GoError as error:
            if not self._died.done():
                self._died.set_exception(error)
        await stream.close()

    async def _expect_end(self, call: Any, stream: StrictStream) -> None:
        draining = asyncio.create_task(_drain(stream))
        code = asyncio.ensure_future(call.code())
        await asyncio.wait((code,), timeout=_FINISHED_WITHIN)
        if not code.done():
            self.complaints.add("the server does not finish the call of a session that is over")
            call.cancel()
        met_the_end = await call.details() == _MET_THE_END
        self.codes.append(grpc.StatusCode.OK if met_the_end else await code)
        await asyncio.wait((draining,))


async def _drain(stream: StrictStream) -> None:
    with contextlib.suppress(GoError):
        await stream.nothing_follows()
