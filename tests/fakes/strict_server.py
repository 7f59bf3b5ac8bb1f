"""A tunnel server as strict as openconfig's Go code, in both versions. Its peer: tests/fakes/strict_client.py.

It does what the Go code does where that is known (v0.1: commit 7a84e1a, v0.2: d148cb5): sends headers with its first
message only, ends its calls with UNKNOWN and Go's words, sets up a client's session inside the Register loop, takes a
tag on its own connection only, and receives 4 MiB at most. What our client may not do to it is a complaint.
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
from tests.fakes.strict_stream import StrictStream
from tests.fakes.strict_wire import ADD, REMOVE, WireError
from tests.fakes.strict_words import Complaints, GoError, Said, read, read_data, write

Context = grpc.aio.ServicerContext[Any, Any]
Handler = Callable[[StrictStream], Awaitable[None]]
Pair = tuple[str, str]


@dataclass(eq=False)
class Client:
    """One Register stream."""

    context: Context
    handler: bool = True
    targets: set[Pair] = field(default_factory=set)
    subscriptions: set[str] = field(default_factory=set)
    #: Tags must go -1, -2, …
    last_tag: int = 0
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


class StrictServer:
    """Serves `local` (target, type) pairs itself by `handler`; version 0.1 asks the handler for any."""

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
        #: Our ends of sessions are seen by the end of their calls alone.
        self.close_loses = False
        self._handler = handler
        self._local = local
        self._tag = 0
        #: Of the connection map: who waits for the stream of (tag, address), or for its refusal.
        self._map: dict[tuple[int, str], asyncio.Future[StrictStream]] = {}
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
        """Listen; where."""
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return f"127.0.0.1:{port}"

    async def stop(self) -> None:
        """End everything."""
        for task in list(self._tasks):
            task.cancel()
        await self._server.stop(0)

    def targets(self) -> set[Pair]:
        """What clients registered."""
        return {pair for client in self.clients.values() for pair in client.targets}

    async def new_session(self, target: str, kind: str = "", within: float = 10.0) -> StrictStream:
        """Ask the clients that may serve it. Raises GoError."""
        asked = [
            (address, client)
            for address, client in self.clients.items()
            if (client.handler if self.wire is WireVersion.V0_1 else (target, kind) in client.targets)
        ]
        if not asked:
            raise GoError("no targets available")
        address, client = asked[0]
        self._tag += 1
        waiter = self._wait_for(self._tag, address)
        await self._say(
            client, Said("session", tag=self._tag, accept=True, target=target, kind=self._kind(kind))
        )
        async with asyncio.timeout(within):
            return await waiter

    def _kind(self, kind: str) -> str:
        return "" if self.wire is WireVersion.V0_1 else kind

    def _wait_for(self, tag: int, address: str) -> asyncio.Future[StrictStream]:
        assert (tag, address) not in self._map, "a tag is used once"
        waiter: asyncio.Future[StrictStream] = asyncio.get_running_loop().create_future()
        self._map[tag, address] = waiter
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
                await self._hear(client, address, self._read(raw))
            raise GoError("EOF")
        except (GoError, WireError) as error:
            await self._fail(context, str(error))
        finally:
            del self.clients[address]

    def _read(self, raw: object) -> Said:
        assert isinstance(raw, bytes)
        try:
            return read(self.wire, raw)
        except WireError as error:
            self.complaints.add(f"what came on Register is no message: {error}")
            raise

    async def _exchange_capabilities(self, client: Client) -> None:
        await self._say(client, Said("capabilities", handler=self._handler is not None))
        raw = await client.context.read()
        said = self._read(raw)
        if said.what != "capabilities":
            self.complaints.add("the first message of version 0.1 must be capabilities")
        client.handler = said.handler
        if not (client.handler or self._handler):
            raise GoError("no handlers defined")

    async def _hear(self, client: Client, address: str, said: Said) -> None:
        if said.what == "capabilities":
            self.complaints.add("capabilities after the first message")
        elif said.what == "target":
            await self._hear_target(client, said)
        elif said.what == "subscription":
            await self._hear_subscription(client, said)
        elif said.what == "session":
            await self._hear_session(client, address, said)

    async def _hear_target(self, client: Client, said: Said) -> None:
        if said.accept or said.error or not said.target:
            self.complaints.add(f"a client neither accepts nor refuses targets, and each has a name: {said}")
        error = ""
        if said.op == ADD:
            error = "target already registered" if said.pair in self.targets() | self._local else ""
            if not error:
                client.targets.add(said.pair)
        elif said.op == REMOVE:
            error = "" if said.pair in client.targets else "target is not registered"
            client.targets.discard(said.pair)
        else:
            self.complaints.add(f"a target that neither comes nor goes: {said}")
        answer = Said("target", target=said.target, kind=said.kind, accept=not error, error=error)
        await self._say(client, answer)
        if not error:
            for other in self.clients.values():
                if other is not client and {"", said.kind} & other.subscriptions:
                    await self._say(other, Said("target", op=said.op, target=said.target, kind=said.kind))

    async def _hear_subscription(self, client: Client, said: Said) -> None:
        if said.accept or said.error or said.op not in (ADD, REMOVE):
            self.complaints.add(f"a client asks for subscriptions, and no more: {said}")
        if said.op == ADD:
            client.subscriptions.add(said.kind)
            for target, kind in sorted(self.targets() - client.targets):
                if said.kind in ("", kind):
                    await self._say(client, Said("target", op=ADD, target=target, kind=kind))
        await self._say(client, Said("subscription", op=said.op, kind=said.kind, accept=True))

    async def _hear_session(self, client: Client, address: str, said: Said) -> None:
        if said.tag == 0:
            self.complaints.add("tag 0")
        elif said.tag > 0:
            self._hear_refusal(address, said)
        elif said.accept or said.error:
            self.complaints.add(f"a client asks for its sessions, and no more: {said}")
        else:
            if said.tag != client.last_tag - 1:
                self.complaints.add(f"tag {said.tag} after {client.last_tag}: a client counts down by one")
            client.last_tag = said.tag
            await self._serve(client, address, said)

    def _hear_refusal(self, address: str, said: Said) -> None:
        if said.accept:
            self.complaints.add("a client accepts by its Tunnel stream, not by a message")
        waiter = self._map.pop((said.tag, address), None)
        if not said.error or waiter is None or waiter.done():
            # In Go a refusal that nobody waits for blocks the Register loop for ever.
            self.complaints.add(f"a refusal of a session that is not being set up: {said}")
        else:
            waiter.set_exception(GoError(said.error))

    async def _serve(self, client: Client, address: str, said: Said) -> None:
        """Set up a session that a client asks for, inside the Register loop as Go does."""
        bridged = said.pair in self.targets() - client.targets
        serves = self._handler is not None and (self.wire is WireVersion.V0_1 or said.pair in self._local)
        error = self.refuses or (
            "" if serves or bridged else f'no target "{said.target}" of type "{said.kind}" registered'
        )
        answer = Said(
            "session", tag=said.tag, target=said.target, kind=said.kind, accept=not error, error=error
        )
        if error:
            await self._say(client, answer)
            return
        waiter = self._wait_for(said.tag, address)
        await self._say(client, answer)
        async with asyncio.timeout(60):
            stream = await waiter
        work = self._handler(stream) if serves and self._handler else self._bridge(stream, said.pair)
        task = asyncio.create_task(self._run(work, stream), name="strict handler")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bridge(self, near: StrictStream, pair: Pair) -> None:
        far = await self.new_session(*pair)
        await asyncio.gather(_copy(near, far), _copy(far, near))

    async def _run(self, work: Awaitable[None], stream: StrictStream) -> None:
        with contextlib.suppress(GoError):
            await work
        await stream.close()

    async def _say(self, client: Client, said: Said) -> None:
        async with client.writing:
            await client.context.write(write(self.wire, said))

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
        waiter = self._map.pop((tag, context.peer()), None)
        if waiter is None or waiter.done():
            await self._fail(context, self.complaints.add(f"no connection associated with tag: {tag}"))
        stream = StrictStream(tag, context.read, context.write, self.complaints)
        stream.close_loses = self.close_loses
        waiter.set_result(stream)
        await stream.closed.wait()

    async def _fail(self, context: Context, why: str) -> NoReturn:
        await context.abort(grpc.StatusCode.UNKNOWN, why)


async def _copy(source: StrictStream, sink: StrictStream) -> None:
    """As bidi.Copy: the end of the source closes the sink."""
    with contextlib.suppress(GoError):
        while data := await source.read():
            await sink.write(data)
    await sink.close()
