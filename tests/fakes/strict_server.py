"""Tunnel server as strict as openconfig's Go code, in both versions. Its peer: tests/fakes/strict_client.py.
It behaves like the Go code where that is known (v0.1: commit 7a84e1a, v0.2: d148cb5): it sends headers
with its first message only, ends its calls with UNKNOWN and Go's texts, sets up a client's session inside
the Register loop, accepts a tag on its own connection only, and receives at most 4 MiB. It records every
violation of our client as a complaint.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import grpc
import grpc.aio

from fleet.protocol.tunnel.messages import WireVersion
from tests.fakes.strict_messages import Complaints, GoError, RegisterMessage, read, read_data, write
from tests.fakes.strict_stream import StrictStream
from tests.fakes.strict_wire import ADD, REMOVE, WireError

Context = grpc.aio.ServicerContext[Any, Any]
Handler = Callable[[StrictStream], Awaitable[None]]
Pair = tuple[str, str]


@dataclass(eq=False)
class Client:
    """A Register stream."""

    context: Context
    handler: bool = True
    targets: set[Pair] = field(default_factory=set)
    subscriptions: set[str] = field(default_factory=set)
    #: Tags must be -1, -2, …
    last_tag: int = 0
    write_lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class StrictServer:
    """Serves `local` (target, type) pairs with `handler`; in version 0.1 the handler serves any target."""

    def __init__(
        self,
        wire: WireVersion,
        *,
        handler: Handler | None = None,
        local: frozenset[Pair] = frozenset(),
        options: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self.wire = wire
        self.complaints = Complaints()
        self.clients: dict[str, Client] = {}
        self.refuses = ""
        #: Whether sessions end by the end of their calls, without a closing message.
        self.close_loses = False
        self._handler = handler
        self._local = local
        self._tag = 0
        #: The connection map: futures for the stream of (tag, address), or for its refusal.
        self._waiters: dict[tuple[int, str], asyncio.Future[StrictStream]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0), *options])
        methods = {
            "Register": grpc.stream_stream_rpc_method_handler(self._register),
            "Tunnel": grpc.stream_stream_rpc_method_handler(self._tunnel),
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("grpctunnel.Tunnel", methods),)
        )

    async def start(self) -> str:
        """Listen, and return the address."""
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return f"127.0.0.1:{port}"

    async def stop(self) -> None:
        """Stop the server and its sessions."""
        for task in list(self._tasks):
            task.cancel()
        await self._server.stop(0)

    def targets(self) -> set[Pair]:
        """Return the targets that clients registered."""
        return {pair for client in self.clients.values() for pair in client.targets}

    async def new_session(self, target: str, kind: str = "", within: float = 10.0) -> StrictStream:
        """Request a session from a client that can serve it. Raises GoError."""
        candidates = [
            (address, client)
            for address, client in self.clients.items()
            if (client.handler if self.wire is WireVersion.V0_1 else (target, kind) in client.targets)
        ]
        if not candidates:
            raise GoError("no targets available")
        address, client = candidates[0]
        self._tag += 1
        waiter = self._wait_for(self._tag, address)
        await self._send(
            client,
            RegisterMessage("session", tag=self._tag, accept=True, target=target, kind=self._kind(kind)),
        )
        async with asyncio.timeout(within):
            return await waiter

    def _kind(self, kind: str) -> str:
        return "" if self.wire is WireVersion.V0_1 else kind

    def _wait_for(self, tag: int, address: str) -> asyncio.Future[StrictStream]:
        assert (tag, address) not in self._waiters, "a tag is used once"
        waiter: asyncio.Future[StrictStream] = asyncio.get_running_loop().create_future()
        self._waiters[tag, address] = waiter
        return waiter

    # -- Register --------------------------------------------------------------------------------

    async def _register(self, _: object, context: Context) -> None:
        address = context.peer()
        if address in self.clients:
            await self._fail(
                context, self.complaints.add(f"client exists: second Register stream of {address}")
            )
        client = self.clients[address] = Client(context)
        try:
            if self.wire is WireVersion.V0_1:
                await self._exchange_capabilities(client)
            while (raw := await context.read()) is not grpc.aio.EOF:
                await self._handle_message(client, address, self._read(raw))
            raise GoError("EOF")
        except (GoError, WireError) as error:
            await self._fail(context, str(error))
        finally:
            del self.clients[address]

    def _read(self, raw: object) -> RegisterMessage:
        assert isinstance(raw, bytes)
        try:
            return read(self.wire, raw)
        except WireError as error:
            self.complaints.add(f"what came on Register is no message: {error}")
            raise

    async def _exchange_capabilities(self, client: Client) -> None:
        await self._send(client, RegisterMessage("capabilities", handler=self._handler is not None))
        raw = await client.context.read()
        message = self._read(raw)
        if message.member != "capabilities":
            self.complaints.add("the first message of version 0.1 must be capabilities")
        client.handler = message.handler
        if not (client.handler or self._handler):
            raise GoError("no handlers defined")

    async def _handle_message(self, client: Client, address: str, message: RegisterMessage) -> None:
        if message.member == "capabilities":
            self.complaints.add("capabilities after the first message")
        elif message.member == "target":
            await self._handle_target(client, message)
        elif message.member == "subscription":
            await self._handle_subscription(client, message)
        elif message.member == "session":
            await self._handle_session(client, address, message)

    async def _handle_target(self, client: Client, message: RegisterMessage) -> None:
        if message.accept or message.error or not message.target:
            self.complaints.add(
                f"a client neither accepts nor refuses targets, and each has a name: {message}"
            )
        error = ""
        if message.op == ADD:
            error = "target already registered" if message.pair in self.targets() | self._local else ""
            if not error:
                client.targets.add(message.pair)
        elif message.op == REMOVE:
            error = "" if message.pair in client.targets else "target is not registered"
            client.targets.discard(message.pair)
        else:
            self.complaints.add(f"a target that neither comes nor goes: {message}")
        response = RegisterMessage(
            "target", target=message.target, kind=message.kind, accept=not error, error=error
        )
        await self._send(client, response)
        if not error:
            for subscriber in self.clients.values():
                if subscriber is not client and {"", message.kind} & subscriber.subscriptions:
                    await self._send(
                        subscriber,
                        RegisterMessage("target", op=message.op, target=message.target, kind=message.kind),
                    )

    async def _handle_subscription(self, client: Client, message: RegisterMessage) -> None:
        if message.accept or message.error or message.op not in (ADD, REMOVE):
            self.complaints.add(f"a client asks for subscriptions, and no more: {message}")
        if message.op == ADD:
            client.subscriptions.add(message.kind)
            for target, kind in sorted(self.targets() - client.targets):
                if message.kind in ("", kind):
                    await self._send(client, RegisterMessage("target", op=ADD, target=target, kind=kind))
        await self._send(
            client, RegisterMessage("subscription", op=message.op, kind=message.kind, accept=True)
        )

    async def _handle_session(self, client: Client, address: str, message: RegisterMessage) -> None:
        if message.tag == 0:
            self.complaints.add("tag 0")
        elif message.tag > 0:
            self._handle_refusal(address, message)
        elif message.accept or message.error:
            self.complaints.add(f"a client asks for its sessions, and no more: {message}")
        else:
            if message.tag != client.last_tag - 1:
                self.complaints.add(f"tag {message.tag} after {client.last_tag}: a client counts down by one")
            client.last_tag = message.tag
            await self._serve(client, address, message)

    def _handle_refusal(self, address: str, message: RegisterMessage) -> None:
        if message.accept:
            self.complaints.add("a client accepts by its Tunnel stream, not by a message")
        waiter = self._waiters.pop((message.tag, address), None)
        if not message.error or waiter is None or waiter.done():
            # In Go an unexpected refusal blocks the Register loop for ever.
            self.complaints.add(f"a refusal of a session that is not being set up: {message}")
        else:
            waiter.set_exception(GoError(message.error))

    async def _serve(self, client: Client, address: str, request: RegisterMessage) -> None:
        """Set up a session that a client requested, inside the Register loop as Go does."""
        is_bridged = request.pair in self.targets() - client.targets
        is_served = self._handler is not None and (
            self.wire is WireVersion.V0_1 or request.pair in self._local
        )
        error = self.refuses or (
            ""
            if is_served or is_bridged
            else f'no target "{request.target}" of type "{request.kind}" registered'
        )
        response = RegisterMessage(
            "session",
            tag=request.tag,
            target=request.target,
            kind=request.kind,
            accept=not error,
            error=error,
        )
        if error:
            await self._send(client, response)
            return
        waiter = self._wait_for(request.tag, address)
        await self._send(client, response)
        async with asyncio.timeout(60):
            stream = await waiter
        work = self._handler(stream) if is_served and self._handler else self._bridge(stream, request.pair)
        task = asyncio.create_task(self._run(work, stream), name="strict handler")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bridge(self, caller_stream: StrictStream, pair: Pair) -> None:
        target_stream = await self.new_session(*pair)
        await asyncio.gather(_copy(caller_stream, target_stream), _copy(target_stream, caller_stream))

    async def _run(self, work: Awaitable[None], stream: StrictStream) -> None:
        with contextlib.suppress(GoError):
            await work
        await stream.close()

    async def _send(self, client: Client, message: RegisterMessage) -> None:
        async with client.write_lock:
            await client.context.write(write(self.wire, message))

    # -- Tunnel ----------------------------------------------------------------------------------

    async def _tunnel(self, _: object, context: Context) -> None:
        raw = await context.read()
        if not isinstance(raw, bytes):
            await self._fail(context, self.complaints.add("EOF before the tag of a Tunnel stream"))
        try:
            tag, payload, closes = read_data(raw)
        except WireError as error:
            await self._fail(context, self.complaints.add(f"the first message is no Data: {error}"))
        if payload or closes:
            await self._fail(context, self.complaints.add("the first message of a Tunnel stream has data"))
        waiter = self._waiters.pop((tag, context.peer()), None)
        if waiter is None or waiter.done():
            await self._fail(context, self.complaints.add(f"no connection associated with tag: {tag}"))
        stream = StrictStream(tag, context.read, context.write, self.complaints)
        stream.close_loses = self.close_loses
        waiter.set_result(stream)
        await stream.closed.wait()

    async def _fail(self, context: Context, reason: str) -> NoReturn:
        await context.abort(grpc.StatusCode.UNKNOWN, reason)


async def _copy(source: StrictStream, sink: StrictStream) -> None:
    """Copy until the source ends, then close the sink, like Go's bidi.Copy."""
    with contextlib.suppress(GoError):
        while data := await source.read():
            await sink.write(data)
    await sink.close()
