"""Tunnel client as strict as openconfig's Go code, in both versions. Its peer: tests/fakes/strict_server.py.
It ends where the Go client ends: on a refused target, subscription or session, on a session without
accept, and on a handler that refuses or fails. It never half-closes or cancels a Tunnel call: the server
must finish it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc
import grpc.aio

from fleet.protocol.tunnel.messages import WireVersion
from tests.fakes.strict_messages import Complaints, GoError, RegisterMessage, read, write, write_data
from tests.fakes.strict_stream import StrictStream
from tests.fakes.strict_wire import ADD, REMOVE, WireError

Handler = Callable[[StrictStream], Awaitable[None]]
#: Seconds within which the server must finish a Tunnel call after the session's end.
_FINISH_SECONDS = 10.0
#: What grpc.aio reports for a write on an ended call, whatever its status; Go's Send returns io.EOF.
_WRITE_AFTER_END = "Internal error from Core"


class StrictClient:
    """Registers target pairs and serves their sessions with `handler`, unless it `refuses`."""

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
        self.accepted_subscriptions: list[str] = []
        #: Status codes of the ended Tunnel calls.
        self.codes: list[grpc.StatusCode] = []
        self._handler = handler
        self._register: Any = channel.stream_stream("/grpctunnel.Tunnel/Register")
        self._tunnel: Any = channel.stream_stream("/grpctunnel.Tunnel/Tunnel")
        self._call: Any = None
        self._tag = 0
        self._write_lock = asyncio.Lock()
        self._last_server_tag = 0
        self._pending_targets: list[tuple[str, str]] = []
        self._waiters: dict[int, tuple[RegisterMessage, asyncio.Future[StrictStream]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure_future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, targets: Iterable[tuple[str, str]] = (), subscribe: Iterable[str] = ()) -> None:
        """Register and serve until a failure. Raises GoError."""
        self._call = self._register()
        read_task = asyncio.create_task(self._read(tuple(targets), tuple(subscribe)), name="strict register")
        try:
            await asyncio.wait((read_task, self._failure_future), return_when=asyncio.FIRST_COMPLETED)
            for future in (self._failure_future, read_task):
                if future.done():
                    future.result()
        finally:
            self._call.cancel()
            for task in (read_task, *self._tasks):
                task.cancel()
            await asyncio.gather(read_task, *self._tasks, return_exceptions=True)

    async def new_session(self, target: str, kind: str = "") -> StrictStream:
        """Request a session from the server. Raises GoError."""
        self._tag -= 1
        message = RegisterMessage(
            "session", tag=self._tag, target=target, kind="" if self.wire is WireVersion.V0_1 else kind
        )
        waiter: asyncio.Future[StrictStream] = asyncio.get_running_loop().create_future()
        self._waiters[message.tag] = (message, waiter)
        await self._send(message)
        async with asyncio.timeout(60):
            return await waiter

    async def wait_for_calls(self) -> None:
        """Wait until the server has finished every Tunnel call."""
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _send(self, message: RegisterMessage) -> None:
        async with self._write_lock:
            await self._call.write(write(self.wire, message))

    async def _read(self, targets: tuple[tuple[str, str], ...], subscribe: tuple[str, ...]) -> None:
        try:
            if self.wire is WireVersion.V0_1:
                await self._exchange_capabilities()
            self._pending_targets.extend(targets)
            for target, kind in targets:
                await self._send(RegisterMessage("target", op=ADD, target=target, kind=kind))
            for kind in subscribe:
                await self._send(RegisterMessage("subscription", op=ADD, kind=kind))
            if not targets:
                self.up.set()
            while isinstance(raw := await self._call.read(), bytes):
                await self._handle_message(self._parse(raw))
        except grpc.aio.AioRpcError as error:
            raise GoError(f"rpc error: code = {error.code().name} desc = {error.details()}") from None
        raise GoError("EOF")

    def _parse(self, raw: bytes) -> RegisterMessage:
        try:
            return read(self.wire, raw)
        except WireError as error:
            raise GoError(self.complaints.add(f"what came on Register is no message: {error}")) from error

    async def _exchange_capabilities(self) -> None:
        await self._send(RegisterMessage("capabilities", handler=self._handler is not None))
        raw = await self._call.read()
        if not isinstance(raw, bytes):
            raise GoError("EOF")
        message = self._parse(raw)
        if message.member != "capabilities":
            raise GoError(self.complaints.add("the first message of version 0.1 must be capabilities"))
        if not (message.handler or self._handler):
            raise GoError("no handlers defined")

    async def _handle_message(self, message: RegisterMessage) -> None:
        if message.member == "capabilities":
            self.complaints.add("capabilities after the first message")
        elif message.member == "target":
            self._handle_target(message)
        elif message.member == "subscription":
            if message.error or not message.accept:
                raise GoError(f"subscription failed: {message.error}")
            self.accepted_subscriptions.append(message.kind)
        elif message.member == "session":
            await self._handle_session(message)
        else:
            self.complaints.add("an empty message on Register")

    def _handle_target(self, message: RegisterMessage) -> None:
        if message.accept and message.error:
            self.complaints.add(f"accepted and refused at once: {message}")
        if message.accept or message.error:
            if message.op != 0:
                self.complaints.add(f"an answer has no operation: {message}")
            if message.pair not in self._pending_targets:
                self.complaints.add(f"an answer to nothing: {message}")
            else:
                self._pending_targets.remove(message.pair)
            if message.error:
                raise GoError(f"failed to register target: {message.error}")
            if not self._pending_targets:
                self.up.set()
        elif message.op not in (ADD, REMOVE):
            self.complaints.add(f"news of nothing: {message}")
        else:
            self.news.append((message.op, message.target, message.kind))

    async def _handle_session(self, message: RegisterMessage) -> None:
        if message.tag == 0:
            self.complaints.add("tag 0")
        elif message.tag < 0:
            self._handle_response(message)
        else:
            if not message.accept or message.error:
                raise GoError(self.complaints.add(f"not accepted by server: {message}"))
            if message.tag <= self._last_server_tag:
                self.complaints.add(f"tag {message.tag} after {self._last_server_tag}: a server counts up")
            self._last_server_tag = message.tag
            if self.refuses or self._handler is None:
                await self._send(
                    RegisterMessage("session", tag=message.tag, error=self.refuses or "no handler")
                )
                raise GoError(f"register handler: {self.refuses}")
            self._start(self._open(message.tag, None))

    def _handle_response(self, message: RegisterMessage) -> None:
        request, waiter = self._waiters.pop(message.tag, (None, None))
        if request is None or waiter is None:
            self.complaints.add(f"an answer to a session that was not asked for: {message}")
            return
        if message.error or not message.accept:
            if message.accept:
                self.complaints.add(f"accepted and refused at once: {message}")
            waiter.set_exception(GoError(message.error))
            return
        if message.pair != request.pair:
            self.complaints.add(f"accepted another target than was asked for: {message}")
        self._start(self._open(message.tag, waiter))

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
            end_tasks = [asyncio.ensure_future(work) for work in (stream.closed.wait(), call.code())]
            await asyncio.wait(end_tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in end_tasks:
                task.cancel()
        else:
            assert self._handler is not None, "else it refuses"
            await self._run_handler(self._handler, stream)
        await self._expect_end(call, stream)

    async def _run_handler(self, handler: Handler, stream: StrictStream) -> None:
        try:
            await handler(stream)
        except GoError as error:
            if not self._failure_future.done():
                self._failure_future.set_exception(error)
        await stream.close()

    async def _expect_end(self, call: Any, stream: StrictStream) -> None:
        drain_task = asyncio.create_task(_drain(stream))
        code = asyncio.ensure_future(call.code())
        await asyncio.wait((code,), timeout=_FINISH_SECONDS)
        if not code.done():
            self.complaints.add("the server does not finish the call of a session that is over")
            call.cancel()
        is_write_after_end = await call.details() == _WRITE_AFTER_END
        self.codes.append(grpc.StatusCode.OK if is_write_after_end else await code)
        await asyncio.wait((drain_task,))


async def _drain(stream: StrictStream) -> None:
    with contextlib.suppress(GoError):
        await stream.nothing_follows()
