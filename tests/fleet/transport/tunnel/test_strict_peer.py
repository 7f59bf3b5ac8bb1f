"""Our server and our client with a peer as strict as the Go code, on raw bytes, in both versions. It needs no
Go toolchain, and for version 0.1 it is the only foreign peer. After each test it must have no complaints.
Real Go programs: tests/flow/test_tunnel_interop.py.
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
from tests.fakes.strict_messages import GoError
from tests.fakes.strict_server import Handler, StrictServer
from tests.fakes.strict_stream import StrictStream
from tests.fakes.tunnel import (
    Ground,
    dial_sessions,
    echo,
    echo_tcp,
    no_sessions,
    open_session,
    refusing,
    taking,
)
from tests.fakes.waiting import eventually

PAIR = ("router-7", "SSH")
#: Some MiB in which the position of every byte is visible.
LARGE_DATA = b"".join(hashlib.sha256(bytes([number % 251])).digest() for number in range(100_000))


def target_of(wire: WireVersion) -> Target:
    """Return the target of a session; version 0.1 has no types."""
    return Target(PAIR[0], "" if wire is WireVersion.V0_1 else PAIR[1])


@dataclass
class StrictPeers:
    """Starts strict peers, and collects their complaints."""

    ground: Ground
    stack: contextlib.AsyncExitStack
    complaints: list[list[str]] = field(default_factory=list)

    async def server(self, wire: WireVersion, *, handler: Handler | None = None) -> tuple[StrictServer, str]:
        """Start a server; with a handler it serves PAIR itself."""
        local = frozenset({PAIR}) if handler else frozenset[tuple[str, str]]()
        server = StrictServer(wire, handler=handler, local=local)
        self.complaints.append(server.complaints.texts)
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
        """Start a client, and return it once registered; its channel has gRPC's own limits."""
        channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.stack.push_async_callback(channel.close)
        client = StrictClient(channel, wire, handler=handler, refuses=refuses)
        self.complaints.append(client.complaints.texts)
        registered_pairs = pairs if wire is WireVersion.V0_2 else ()
        task = asyncio.create_task(client.run(registered_pairs, subscribe), name="strict client")
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
async def peers(ground: Ground) -> AsyncIterator[StrictPeers]:
    """Strict peers of one test, none of which may have complaints."""
    async with contextlib.AsyncExitStack() as stack:
        peers = StrictPeers(ground, stack)
        yield peers
    assert not any(peers.complaints), peers.complaints


async def read_all(stream: TunnelStream) -> bytes:
    data = bytearray()
    async with asyncio.timeout(60):
        while part := await stream.read():
            data += part
    return bytes(data)


# -- our server --------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WireVersion)
async def test_our_server_opens_sessions_of_their_client(peers: StrictPeers, wire: WireVersion) -> None:
    """Bytes in both directions in one session after the other; each call finishes with OK."""
    tunnel = TunnelServer(wire)
    address = await peers.ground.server(tunnel)
    client, _ = await peers.client(address, wire, PAIR, handler=strict_stream.echo)
    for turn in range(3):
        stream = await open_session(tunnel, target_of(wire))
        assert not stream.can_half_close
        write_task = asyncio.create_task(stream.write(LARGE_DATA))
        data = bytearray()
        async with asyncio.timeout(60):
            while len(data) < len(LARGE_DATA):
                data += await stream.read()
            await write_task
            assert bytes(data) == LARGE_DATA
            await stream.close()
            await client.wait_for_calls()
        assert client.codes == [grpc.StatusCode.OK] * (turn + 1)
    await eventually(lambda: no_sessions(tunnel))


@pytest.mark.parametrize("wire", WireVersion)
async def test_their_client_closes_a_session(peers: StrictPeers, wire: WireVersion) -> None:
    """Its close ends both directions: earlier bytes arrive, and our server finishes the call."""

    async def send_large_data(stream: StrictStream) -> None:
        await stream.write(LARGE_DATA)
        await stream.close()

    tunnel = TunnelServer(wire)
    client, _ = await peers.client(await peers.ground.server(tunnel), wire, PAIR, handler=send_large_data)
    stream = await open_session(tunnel, target_of(wire))
    assert await read_all(stream) == LARGE_DATA
    await stream.close()
    async with asyncio.timeout(60):
        await client.wait_for_calls()
    assert client.codes == [grpc.StatusCode.OK]


@pytest.mark.parametrize("wire", WireVersion)
async def test_their_client_opens_sessions_of_our_server(peers: StrictPeers, wire: WireVersion) -> None:
    """Our handler serves the session; an unknown target is refused."""

    async def accept_known_target(requested_target: Target) -> object:
        if requested_target != target_of(wire):
            raise TunnelError(f"no target {requested_target} is registered")
        return await taking(echo)(requested_target)

    tunnel = TunnelServer(wire, handler=accept_known_target)  # type: ignore[arg-type]
    client, task = await peers.client(await peers.ground.server(tunnel), wire, handler=strict_stream.echo)
    with pytest.raises(GoError, match="no target nobody"):
        await client.new_session("nobody")
    stream = await client.new_session(*PAIR)
    await stream.write(b"hello")
    assert await stream.read() == b"hello"
    await stream.close()
    async with asyncio.timeout(60):
        await client.wait_for_calls()
    assert not task.done()


@pytest.mark.parametrize("wire", WireVersion)
async def test_their_client_refuses_a_session_and_ends(peers: StrictPeers, wire: WireVersion) -> None:
    """Go's client ends then: our caller gets its error, and another client continues."""
    tunnel = TunnelServer(wire)
    address = await peers.ground.server(tunnel)
    _, task = await peers.client(address, wire, PAIR, handler=strict_stream.echo, refuses="closed on Sundays")
    with pytest.raises(TunnelError, match="closed on Sundays"):
        await open_session(tunnel, target_of(wire))
    await asyncio.wait((task,))
    await eventually(lambda: not tunnel._clients)
    await peers.client(address, wire, PAIR, handler=strict_stream.echo)
    stream = await open_session(tunnel, target_of(wire))
    await stream.write(b"x")
    assert await stream.read() == b"x"
    await stream.close()


@pytest.mark.parametrize("wire", WireVersion)
async def test_abort_of_our_server_is_an_error_at_their_client(peers: StrictPeers, wire: WireVersion) -> None:
    """An abort is an error of the transport, never an orderly end."""
    outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def record_outcome(stream: StrictStream) -> None:
        try:
            outcome.set_result(f"ended well after {len(await stream.read_all())}")
        except GoError as error:
            outcome.set_result(str(error))

    tunnel = TunnelServer(wire)
    await peers.client(await peers.ground.server(tunnel), wire, PAIR, handler=record_outcome)
    stream = await open_session(tunnel, target_of(wire))
    stream.abort("out of patience")
    async with asyncio.timeout(60):
        assert await outcome == "rpc error: code = ABORTED desc = out of patience"


@pytest.mark.parametrize("wire", WireVersion)
async def test_their_client_disconnects_during_a_session(peers: StrictPeers, wire: WireVersion) -> None:
    """Our stream is aborted, and nothing remains."""
    tunnel = TunnelServer(wire)
    _, task = await peers.client(await peers.ground.server(tunnel), wire, PAIR, handler=strict_stream.echo)
    stream = await open_session(tunnel, target_of(wire))
    await stream.write(b"x")
    assert await stream.read() == b"x"
    task.cancel()
    with pytest.raises(TunnelAbortedError, match="the client disconnected"):
        await stream.read()
    await eventually(lambda: no_sessions(tunnel) and not tunnel.targets())


@pytest.mark.parametrize("wire", WireVersion)
@pytest.mark.parametrize("policy", HalfClosePolicy)
async def test_tcp_through_our_server_to_their_client(
    peers: StrictPeers, wire: WireVersion, policy: HalfClosePolicy
) -> None:
    """A local port leads to their handler: bytes in both directions; one end is the end of both."""

    async def respond(stream: StrictStream) -> None:
        data = b""
        while len(data) < len(LARGE_DATA):
            data += await stream.read()
        await stream.write(hashlib.sha256(data).digest())
        if policy is HalfClosePolicy.CLOSE:
            assert await stream.read() == b""
        await stream.close()

    tunnel = TunnelServer(wire)
    client, _ = await peers.client(await peers.ground.server(tunnel), wire, PAIR, handler=respond)
    port = await peers.ground.listen(lambda: open_session(tunnel, target_of(wire)), SessionPolicy(policy))
    reader, writer = await peers.ground.connect(port)
    async with asyncio.timeout(60):
        writer.write(LARGE_DATA)
        if policy is HalfClosePolicy.DEFER:
            writer.write_eof()
        assert await reader.readexactly(32) == hashlib.sha256(LARGE_DATA).digest()
        if policy is HalfClosePolicy.CLOSE:
            writer.write_eof()
        assert await reader.read() == b""
        await client.wait_for_calls()
    assert client.codes == [grpc.StatusCode.OK]


async def test_their_clients_are_bridged_by_our_server(peers: StrictPeers) -> None:
    """A client gets the other's target changes, and reaches the target; an unknown one is refused."""
    tunnel = TunnelServer(bridge=True)
    address = await peers.ground.server(tunnel)
    caller, task = await peers.client(address, WireVersion.V0_2, subscribe=("",))
    await eventually(lambda: caller.accepted_subscriptions == [""])
    owner, _ = await peers.client(address, WireVersion.V0_2, PAIR, handler=strict_stream.echo)
    await eventually(lambda: caller.news == [(1, *PAIR)])
    with pytest.raises(GoError, match="target nobody is not registered"):
        await caller.new_session("nobody")
    stream = await caller.new_session(*PAIR)
    await stream.write(b"across")
    assert await stream.read() == b"across"
    await stream.close()
    async with asyncio.timeout(60):
        await caller.wait_for_calls()
        await owner.wait_for_calls()
    assert not task.done()
    await eventually(lambda: no_sessions(tunnel))


async def test_their_duplicate_target_is_refused_by_our_server(peers: StrictPeers) -> None:
    """The second client gets the error and ends, as Go's does; the first one is still served."""
    tunnel = TunnelServer()
    address = await peers.ground.server(tunnel)
    await peers.client(address, WireVersion.V0_2, PAIR, handler=strict_stream.echo)
    with pytest.raises(GoError, match="already registered by another client"):
        await _run_second_client(peers, address)
    stream = await tunnel.open_session(Target(*PAIR))
    await stream.write(b"x")
    assert await stream.read() == b"x"
    await stream.close()


async def _run_second_client(peers: StrictPeers, address: str) -> None:
    channel = peers.ground.channel(address)
    second = StrictClient(channel, WireVersion.V0_2, handler=strict_stream.echo)
    peers.complaints.append(second.complaints.texts)
    await second.run([PAIR])


# -- our client --------------------------------------------------------------------------------------


async def start_our_client(
    peers: StrictPeers, address: str, wire: WireVersion, handler: object = None
) -> TunnelClient:
    """Start a client of ours with PAIR."""
    pairs = (Target(*PAIR),) if wire is WireVersion.V0_2 and handler else ()
    tunnel_client = await peers.ground.client(address, *pairs, wire=wire, handler=handler)
    assert not tunnel_client.client.rejected_targets
    return tunnel_client.client


@pytest.mark.parametrize("close_loses", [False, True])
@pytest.mark.parametrize("wire", WireVersion)
async def test_their_server_opens_sessions_of_our_client(
    peers: StrictPeers, wire: WireVersion, close_loses: bool
) -> None:
    """Bytes in both directions; their server closes, or only ends the call; nothing remains."""
    server, address = await peers.server(wire)
    server.close_loses = close_loses
    client = await start_our_client(peers, address, wire, taking(echo))
    for _ in range(3):
        stream = await server.new_session(*PAIR)
        write_task = asyncio.create_task(stream.write(LARGE_DATA))
        data = b""
        async with asyncio.timeout(60):
            while len(data) < len(LARGE_DATA):
                data += await stream.read()
            await write_task
        assert data == LARGE_DATA
        await stream.close()
        await eventually(lambda: not client.streams)


@pytest.mark.parametrize("wire", WireVersion)
async def test_our_client_closes_a_session(peers: StrictPeers, wire: WireVersion) -> None:
    async def send_large_data(stream: TunnelStream) -> None:
        await stream.write(LARGE_DATA)

    server, address = await peers.server(wire)
    client = await start_our_client(peers, address, wire, taking(send_large_data))
    stream = await server.new_session(*PAIR)
    async with asyncio.timeout(60):
        assert await stream.read_all() == LARGE_DATA
    await stream.close()
    await eventually(lambda: not client.streams)


@pytest.mark.parametrize("wire", WireVersion)
async def test_our_client_opens_sessions_of_their_server(peers: StrictPeers, wire: WireVersion) -> None:
    """Several sessions are requested at once; their server sets up one at a time."""
    _, address = await peers.server(wire, handler=strict_stream.echo)
    client = await start_our_client(peers, address, wire)

    async def run_session(number: int) -> None:
        stream = await client.open_session(target_of(wire))
        message = f"I am {number}".encode() * 1000
        await stream.write(message)
        data = b""
        while len(data) < len(message):
            data += await stream.read()
        assert data == message
        await stream.close()

    async with asyncio.timeout(60):
        await asyncio.gather(*(run_session(number) for number in range(8)))
    await eventually(lambda: not client.streams)


@pytest.mark.parametrize("wire", WireVersion)
async def test_their_server_refuses_a_session(peers: StrictPeers, wire: WireVersion) -> None:
    """Our caller gets the error; our client continues, where Go's client would end."""
    server, address = await peers.server(wire, handler=strict_stream.echo)
    client = await start_our_client(peers, address, wire)
    server.refuses = "not today"
    with pytest.raises(TunnelError, match=r"^not today$"):
        await client.open_session(target_of(wire))
    server.refuses = ""
    stream = await client.open_session(target_of(wire))
    await stream.write(b"x")
    assert await stream.read() == b"x"
    await stream.close()


@pytest.mark.parametrize("wire", WireVersion)
async def test_our_client_refuses_a_session(peers: StrictPeers, wire: WireVersion) -> None:
    """Their caller gets the error at once, and Register continues."""
    server, address = await peers.server(wire)
    await start_our_client(peers, address, wire, refusing("no room"))
    for _ in range(2):
        with pytest.raises(GoError, match="no room"):
            await server.new_session(*PAIR)
    assert len(server.clients) == 1


@pytest.mark.parametrize("wire", WireVersion)
async def test_failing_handler_of_our_client_ends_its_session(peers: StrictPeers, wire: WireVersion) -> None:
    peers.ground.expected.append("the handler failed in a session to")
    is_first = True

    async def fail_once(stream: TunnelStream) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            raise ZeroDivisionError
        await echo(stream)

    server, address = await peers.server(wire)
    await start_our_client(peers, address, wire, taking(fail_once))
    first = await server.new_session(*PAIR)
    with contextlib.suppress(GoError):
        assert await first.read() == b""
    await first.close()
    second = await server.new_session(*PAIR)
    await second.write(b"x")
    assert await second.read() == b"x"
    await second.close()


@pytest.mark.parametrize("wire", WireVersion)
async def test_tcp_through_their_server_to_our_client(peers: StrictPeers, wire: WireVersion) -> None:
    """Bytes in both directions to a service of ours; their close ends its connection."""
    is_ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await echo_tcp(reader, writer)
        is_ended.set()

    server, address = await peers.server(wire)
    client = await start_our_client(peers, address, wire, dial_sessions(await peers.ground.service(serve)))
    stream = await server.new_session(*PAIR)
    async with asyncio.timeout(60):
        await stream.write(b"through")
        assert await stream.read() == b"through"
        await stream.close()
        await is_ended.wait()
    await eventually(lambda: not client.streams)


async def test_our_clients_are_bridged_by_their_server(peers: StrictPeers) -> None:
    """A subscription, changes, a bridged session, and a removed target."""
    server, address = await peers.server(WireVersion.V0_2)
    changes: list[tuple[Target, bool]] = []
    caller = await peers.ground.client(
        address, subscribe=[""], on_target_change=lambda target, is_added: changes.append((target, is_added))
    )
    owner = await start_our_client(peers, address, WireVersion.V0_2, taking(echo))
    await eventually(lambda: changes == [(Target(*PAIR), True)])
    stream = await caller.client.open_session(Target(*PAIR))
    await stream.write(b"across")
    assert await stream.read() == b"across"
    await stream.close()
    await owner.remove_target(Target(*PAIR))
    await eventually(lambda: changes[1:] == [(Target(*PAIR), False)])
    assert not server.targets()


async def test_their_server_refuses_a_duplicate_target_of_our_client(peers: StrictPeers) -> None:
    """Our client continues, and gets the target once it is free."""
    _, address = await peers.server(WireVersion.V0_2)
    first = await start_our_client(peers, address, WireVersion.V0_2, taking(echo))
    second = await peers.ground.client(address, Target(*PAIR), handler=taking(echo))
    assert "already registered" in second.client.rejected_targets[Target(*PAIR)]
    await first.remove_target(Target(*PAIR))
    await second.client.add_target(Target(*PAIR))
    assert not second.client.rejected_targets


@pytest.mark.parametrize("wire", WireVersion)
async def test_their_server_stops_during_a_session(peers: StrictPeers, wire: WireVersion) -> None:
    """Our stream is aborted, and the client's run ends with an error."""
    server, address = await peers.server(wire, handler=strict_stream.echo)
    tunnel_client = await peers.ground.client(address, wire=wire)
    stream = await tunnel_client.client.open_session(target_of(wire))
    await stream.write(b"x")
    assert await stream.read() == b"x"
    await server.stop()
    with pytest.raises(TunnelAbortedError):
        await stream.read()
    with pytest.raises(TunnelError):
        await tunnel_client.task


@pytest.mark.parametrize("message", [b"\x08\x01\x12\x01x", b"\x08\x63", b"\x18\x01", b"\xff"])
async def test_strict_server_complains_about_invalid_streams(ground: Ground, message: bytes) -> None:
    """A payload with the tag, an unknown tag, a close, and invalid bytes."""
    server = StrictServer(WireVersion.V0_2)
    channel = ground.channel(await server.start())
    call = ground.raw(channel, "/grpctunnel.Tunnel/Tunnel")
    await call.write(message)
    async with asyncio.timeout(60):
        assert await call.code() is grpc.StatusCode.UNKNOWN
    assert len(server.complaints.texts) == 1
    await channel.close()
    await server.stop()
