"""Our server and our client with a peer that is as strict as the Go code, and raw bytes only, in both versions.

It needs no Go toolchain, and for version 0.1 it is the only foreign peer. After each test it must have had nothing to
complain of. Real Go programs: tests/flow/test_tunnel_interop.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import grpc
import grpc.aio
import pytest

from fleet.protocol.tunnel.messages import Target, TunnelError, WireVersion
from fleet.transport.tunnel.client import TunnelClient
from fleet.transport.tunnel.pump import HalfClosePolicy, SessionPolicy
from fleet.transport.tunnel.server import TunnelServer
from fleet.transport.tunnel.stream import TunnelAbortedError, TunnelStream
from tests.fakes import strict_stream
from tests.fakes.strict_client import StrictClient
from tests.fakes.strict_server import Handler, StrictServer
from tests.fakes.strict_stream import StrictStream
from tests.fakes.strict_words import GoError
from tests.fakes.tunnel import Ground, dialling, echo, echo_tcp, no_sessions, refusing, taking
from tests.fakes.waiting import eventually

PAIR = ("router-7", "SSH")
#: Some mebibytes, in which every byte's place shows.
MUCH = b"".join(hashlib.sha256(bytes([number % 251])).digest() for number in range(100_000))


def target(wire: WireVersion) -> Target:
    """What a session is asked for to; version 0.1 has no types."""
    return Target(PAIR[0], "" if wire is WireVersion.V0_1 else PAIR[1])


@dataclass
class Strict:
    """Starts strict peers, and hears their complaints at the end."""

    ground: Ground
    stack: contextlib.AsyncExitStack
    complaints: list[list[str]] = field(default_factory=list)

    async def server(self, wire: WireVersion, *, handler: Handler | None = None) -> tuple[StrictServer, str]:
        """A server; with a handler it serves PAIR itself."""
        local = frozenset({PAIR}) if handler else frozenset[tuple[str, str]]()
        server = StrictServer(wire, handler=handler, local=local)
        self.complaints.append(server.complaints.heard)
        address = await server.start()
        self.stack.push_async_callback(server.stop)
        return server, address

    async def client(
        self,
        address: str,
        wire: WireVersion,
        *pairs: tuple[str, str],
        subscribe: tuple[str, ...] = (),
        handler: Handler | None = None,
        refuses: str = "",
    ) -> tuple[StrictClient, asyncio.Task[None]]:
        """A client that is registered, on a plain channel with gRPC's own limits."""
        channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.stack.push_async_callback(channel.close)
        client = StrictClient(channel, wire, handler=handler, refuses=refuses)
        self.complaints.append(client.complaints.heard)
        registered = pairs if wire is WireVersion.V0_2 else ()
        task = asyncio.create_task(client.run(registered, subscribe), name="strict client")
        self.stack.push_async_callback(_end, task)
        async with asyncio.timeout(60):
            await client.up.wait()
        return client, task


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()


@pytest.fixture
async def strict(ground: Ground) -> AsyncIterator[Strict]:
    """Strict peers of one test, none of whom may have complained."""
    async with contextlib.AsyncExitStack() as stack:
        made = Strict(ground, stack)
        yield made
    assert not any(made.complaints), made.complaints


async def read_all(stream: TunnelStream) -> bytes:
    got = bytearray()
    async with asyncio.timeout(60):
        while part := await stream.read():
            got += part
    return bytes(got)


async def asked(our: TunnelServer, wire: WireVersion) -> TunnelStream:
    """A session of our server to a strict client, once that is ready for one."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await our.open_session(target(wire))
            except TunnelError as error:
                if "no client with a handler" not in str(error):
                    raise
                await asyncio.sleep(0.01)


# -- our server --------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WireVersion)
async def test_our_server_asks_their_client(strict: Strict, wire: WireVersion) -> None:
    """Bytes both ways in one session after the other; ours closes, and each call is finished with OK."""
    our = TunnelServer(wire)
    address = await strict.ground.server(our)
    client, _ = await strict.client(address, wire, PAIR, handler=strict_stream.echo)
    for turn in range(3):
        stream = await asked(our, wire)
        assert not stream.half_close
        sending = asyncio.create_task(stream.write(MUCH))
        got = bytearray()
        async with asyncio.timeout(60):
            while len(got) < len(MUCH):
                got += await stream.read()
            await sending
            assert bytes(got) == MUCH
            await stream.close()
            await client.finished()
        assert client.codes == [grpc.StatusCode.OK] * (turn + 1)
    await eventually(lambda: no_sessions(our))


@pytest.mark.parametrize("wire", WireVersion)
async def test_their_client_closes_a_session_of_our_server(strict: Strict, wire: WireVersion) -> None:
    """Its close is the end of both directions: all before it arrives, and our server finishes the call."""

    async def say_much(stream: StrictStream) -> None:
        await stream.write(MUCH)
        await stream.close()

    our = TunnelServer(wire)
    client, _ = await strict.client(await strict.ground.server(our), wire, PAIR, handler=say_much)
    stream = await asked(our, wire)
    assert await read_all(stream) == MUCH
    await stream.close()
    async with asyncio.timeout(60):
        await client.finished()
    assert client.codes == [grpc.StatusCode.OK]


@pytest.mark.parametrize("wire", WireVersion)
async def test_their_client_asks_our_server(strict: Strict, wire: WireVersion) -> None:
    """A session they want, served by our handler; what is unknown is refused to its caller alone."""

    async def take(wanted: Target) -> object:
        if wanted != target(wire):
            raise TunnelError(f"no target {wanted} is registered")
        return await taking(echo)(wanted)

    our = TunnelServer(wire, handler=take)  # type: ignore[arg-type]
    client, task = await strict.client(await strict.ground.server(our), wire, handler=strict_stream.echo)
    with pytest.raises(GoError, match="no target nobody"):
        await client.new_session("nobody")
    stream = await client.new_session(*PAIR)
    await stream.write(b"hello")
    assert await stream.read() == b"hello"
    await stream.close()
    async with asyncio.timeout(60):
        await client.finished()
    assert not task.done()


@pytest.mark.parametrize("wire", WireVersion)
async def test_their_client_refuses_a_session_and_dies_of_it(strict: Strict, wire: WireVersion) -> None:
    """As Go's does: our caller hears its words, and another client goes on."""
    our = TunnelServer(wire)
    address = await strict.ground.server(our)
    _, task = await strict.client(
        address, wire, PAIR, handler=strict_stream.echo, refuses="closed on Sundays"
    )
    with pytest.raises(TunnelError, match="closed on Sundays"):
        await asked(our, wire)
    await asyncio.wait((task,))
    await eventually(lambda: not our._clients)
    await strict.client(address, wire, PAIR, handler=strict_stream.echo)
    stream = await asked(our, wire)
    await stream.write(b"x")
    assert await stream.read() == b"x"
    await stream.close()


@pytest.mark.parametrize("wire", WireVersion)
async def test_our_server_aborts_and_their_client_hears_it(strict: Strict, wire: WireVersion) -> None:
    """An abort is an error of their transport, never an end."""
    heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def hear(stream: StrictStream) -> None:
        try:
            heard.set_result(f"ended well after {len(await stream.read_all())}")
        except GoError as error:
            heard.set_result(str(error))

    our = TunnelServer(wire)
    await strict.client(await strict.ground.server(our), wire, PAIR, handler=hear)
    stream = await asked(our, wire)
    stream.abort("out of patience")
    async with asyncio.timeout(60):
        assert await heard == "rpc error: code = ABORTED desc = out of patience"


@pytest.mark.parametrize("wire", WireVersion)
async def test_their_client_vanishes_in_a_session(strict: Strict, wire: WireVersion) -> None:
    """Its connection is cut: our stream is aborted and nothing of it is left."""
    our = TunnelServer(wire)
    _, task = await strict.client(await strict.ground.server(our), wire, PAIR, handler=strict_stream.echo)
    stream = await asked(our, wire)
    await stream.write(b"x")
    assert await stream.read() == b"x"
    task.cancel()
    with pytest.raises(TunnelAbortedError, match="the client disconnected"):
        await stream.read()
    await eventually(lambda: no_sessions(our) and not our.targets())


@pytest.mark.parametrize("wire", WireVersion)
@pytest.mark.parametrize("closing", HalfClosePolicy)
async def test_tcp_to_their_client(strict: Strict, wire: WireVersion, closing: HalfClosePolicy) -> None:
    """A local port of ours leads to a handler of theirs: bytes both ways, and the end of one is the end of both."""

    async def answer(stream: StrictStream) -> None:
        got = b""
        while len(got) < len(MUCH):
            got += await stream.read()
        await stream.write(hashlib.sha256(got).digest())
        if closing is HalfClosePolicy.CLOSE:
            assert await stream.read() == b""
        await stream.close()

    our = TunnelServer(wire)
    client, _ = await strict.client(await strict.ground.server(our), wire, PAIR, handler=answer)
    port = await strict.ground.listen(lambda: asked(our, wire), SessionPolicy(closing))
    reader, writer = await strict.ground.connect(port)
    async with asyncio.timeout(60):
        writer.write(MUCH)
        if closing is HalfClosePolicy.DEFER:
            writer.write_eof()
        assert await reader.readexactly(32) == hashlib.sha256(MUCH).digest()
        if closing is HalfClosePolicy.CLOSE:
            writer.write_eof()
        assert await reader.read() == b""
        await client.finished()
    assert client.codes == [grpc.StatusCode.OK]


async def test_their_clients_are_bridged_by_our_server(strict: Strict) -> None:
    """One hears of the other's target, before and after it is there, and reaches it; an unknown one is refused."""
    our = TunnelServer(bridge=True)
    address = await strict.ground.server(our)
    caller, task = await strict.client(address, WireVersion.V0_2, subscribe=("",))
    await eventually(lambda: caller.subscribed == [""])
    owner, _ = await strict.client(address, WireVersion.V0_2, PAIR, handler=strict_stream.echo)
    await eventually(lambda: caller.news == [(1, *PAIR)])
    with pytest.raises(GoError, match="target nobody is not registered"):
        await caller.new_session("nobody")
    stream = await caller.new_session(*PAIR)
    await stream.write(b"across")
    assert await stream.read() == b"across"
    await stream.close()
    async with asyncio.timeout(60):
        await caller.finished()
        await owner.finished()
    assert not task.done()
    await eventually(lambda: no_sessions(our))


async def test_their_duplicate_target_is_refused_by_our_server(strict: Strict) -> None:
    """The second one is told, and dies of it as Go's does; the first one is served on."""
    our = TunnelServer()
    address = await strict.ground.server(our)
    await strict.client(address, WireVersion.V0_2, PAIR, handler=strict_stream.echo)
    with pytest.raises(GoError, match="already registered by another client"):
        await _second(strict, address)
    stream = await our.open_session(Target(*PAIR))
    await stream.write(b"x")
    assert await stream.read() == b"x"
    await stream.close()


async def _second(strict: Strict, address: str) -> None:
    channel = strict.ground.channel(address)
    second = StrictClient(channel, WireVersion.V0_2, handler=strict_stream.echo)
    strict.complaints.append(second.complaints.heard)
    await second.run([PAIR])


# -- our client --------------------------------------------------------------------------------------


async def registered(strict: Strict, address: str, wire: WireVersion, handler: object = None) -> TunnelClient:
    """A client of ours with PAIR."""
    pairs = (Target(*PAIR),) if wire is WireVersion.V0_2 and handler else ()
    running = await strict.ground.client(address, *pairs, wire=wire, handler=handler)
    assert not running.client.rejected_targets
    return running.client


@pytest.mark.parametrize("close_loses", [False, True])
@pytest.mark.parametrize("wire", WireVersion)
async def test_their_server_asks_our_client(strict: Strict, wire: WireVersion, close_loses: bool) -> None:
    """Bytes both ways in one session after the other; theirs closes or just ends the call; nothing is left."""
    server, address = await strict.server(wire)
    server.close_loses = close_loses
    client = await registered(strict, address, wire, taking(echo))
    for _ in range(3):
        stream = await server.new_session(*PAIR)
        sending = asyncio.create_task(stream.write(MUCH))
        got = b""
        async with asyncio.timeout(60):
            while len(got) < len(MUCH):
                got += await stream.read()
            await sending
        assert got == MUCH
        await stream.close()
        await eventually(lambda: not client.streams)


@pytest.mark.parametrize("wire", WireVersion)
async def test_our_client_closes_a_session_of_their_server(strict: Strict, wire: WireVersion) -> None:
    """All we said arrives before the end, in one message or in many."""

    async def say_much(stream: TunnelStream) -> None:
        await stream.write(MUCH)

    server, address = await strict.server(wire)
    client = await registered(strict, address, wire, taking(say_much))
    stream = await server.new_session(*PAIR)
    async with asyncio.timeout(60):
        assert await stream.read_all() == MUCH
    await stream.close()
    await eventually(lambda: not client.streams)


@pytest.mark.parametrize("wire", WireVersion)
async def test_our_client_asks_their_server(strict: Strict, wire: WireVersion) -> None:
    """Served by their handler; one after the other and, where it sets up one at a time, many at once."""
    _, address = await strict.server(wire, handler=strict_stream.echo)
    client = await registered(strict, address, wire)

    async def one(number: int) -> None:
        stream = await client.open_session(target(wire))
        said = f"I am {number}".encode() * 1000
        await stream.write(said)
        got = b""
        while len(got) < len(said):
            got += await stream.read()
        assert got == said
        await stream.close()

    async with asyncio.timeout(60):
        await asyncio.gather(*(one(number) for number in range(8)))
    await eventually(lambda: not client.streams)


@pytest.mark.parametrize("wire", WireVersion)
async def test_their_server_refuses_our_client_and_it_goes_on(strict: Strict, wire: WireVersion) -> None:
    """Its words are our caller's error; where Go's client would die, ours asks again."""
    server, address = await strict.server(wire, handler=strict_stream.echo)
    client = await registered(strict, address, wire)
    server.refuses = "not today"
    with pytest.raises(TunnelError, match=r"^not today$"):
        await client.open_session(target(wire))
    server.refuses = ""
    stream = await client.open_session(target(wire))
    await stream.write(b"x")
    assert await stream.read() == b"x"
    await stream.close()


@pytest.mark.parametrize("wire", WireVersion)
async def test_our_client_refuses_their_server(strict: Strict, wire: WireVersion) -> None:
    """Their caller has our words at once, and Register lives: the next one is refused as well."""
    server, address = await strict.server(wire)
    await registered(strict, address, wire, refusing("no room"))
    for _ in range(2):
        with pytest.raises(GoError, match="no room"):
            await server.new_session(*PAIR)
    assert len(server.clients) == 1


@pytest.mark.parametrize("wire", WireVersion)
async def test_handler_of_our_client_fails(strict: Strict, wire: WireVersion) -> None:
    """That session breaks at their end; the next one is served."""
    strict.ground.expected.append("the handler failed in a session to")
    failing = True

    async def fail_once(stream: TunnelStream) -> None:
        nonlocal failing
        if failing:
            failing = False
            raise ZeroDivisionError
        await echo(stream)

    server, address = await strict.server(wire)
    await registered(strict, address, wire, taking(fail_once))
    first = await server.new_session(*PAIR)
    with contextlib.suppress(GoError):
        assert await first.read() == b""
    await first.close()
    second = await server.new_session(*PAIR)
    await second.write(b"x")
    assert await second.read() == b"x"
    await second.close()


@pytest.mark.parametrize("wire", WireVersion)
async def test_tcp_through_their_server_to_our_client(strict: Strict, wire: WireVersion) -> None:
    """A service of ours behind their server: bytes both ways, and their close ends its connection."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await echo_tcp(reader, writer)
        ended.set()

    server, address = await strict.server(wire)
    client = await registered(strict, address, wire, dialling(await strict.ground.service(serve)))
    stream = await server.new_session(*PAIR)
    async with asyncio.timeout(60):
        await stream.write(b"through")
        assert await stream.read() == b"through"
        await stream.close()
        await ended.wait()
    await eventually(lambda: not client.streams)


async def test_our_clients_are_bridged_by_their_server(strict: Strict) -> None:
    """Subscription, news, a session across, and a target that is let go."""
    server, address = await strict.server(WireVersion.V0_2)
    news: list[tuple[Target, bool]] = []
    caller = await strict.ground.client(
        address, subscribe=[""], on_news=lambda which, there: news.append((which, there))
    )
    owner = await registered(strict, address, WireVersion.V0_2, taking(echo))
    await eventually(lambda: news == [(Target(*PAIR), True)])
    stream = await caller.client.open_session(Target(*PAIR))
    await stream.write(b"across")
    assert await stream.read() == b"across"
    await stream.close()
    await owner.remove_target(Target(*PAIR))
    await eventually(lambda: news[1:] == [(Target(*PAIR), False)])
    assert not server.targets()


async def test_their_server_refuses_a_duplicate_target_of_our_client(strict: Strict) -> None:
    """It is told, lives on, and may have the target once that is free."""
    _, address = await strict.server(WireVersion.V0_2)
    first = await registered(strict, address, WireVersion.V0_2, taking(echo))
    second = await strict.ground.client(address, Target(*PAIR), handler=taking(echo))
    assert "already registered" in second.client.rejected_targets[Target(*PAIR)]
    await first.remove_target(Target(*PAIR))
    await second.client.add_target(Target(*PAIR))
    assert not second.client.rejected_targets


@pytest.mark.parametrize("wire", WireVersion)
async def test_their_server_is_stopped_in_a_session(strict: Strict, wire: WireVersion) -> None:
    """Our stream is aborted, and whoever runs the client is told."""
    server, address = await strict.server(wire, handler=strict_stream.echo)
    running = await strict.ground.client(address, wire=wire)
    stream = await running.client.open_session(target(wire))
    await stream.write(b"x")
    assert await stream.read() == b"x"
    await server.stop()
    with pytest.raises(TunnelAbortedError):
        await stream.read()
    with pytest.raises(TunnelError):
        await running.task


@pytest.mark.parametrize("said", [b"\x08\x01\x12\x01x", b"\x08\x63", b"\x18\x01", b"\xff"])
async def test_strict_server_complains_of_what_go_would_not_take(ground: Ground, said: bytes) -> None:
    """The double is no better than its complaints: a payload with the tag, an unknown one, a close, garbage."""
    server = StrictServer(WireVersion.V0_2)
    channel = ground.channel(await server.start())
    call = ground.raw(channel, "/grpctunnel.Tunnel/Tunnel")
    await call.write(said)
    async with asyncio.timeout(60):
        assert await call.code() is grpc.StatusCode.UNKNOWN
    assert len(server.complaints.heard) == 1
    await channel.close()
    await server.stop()
