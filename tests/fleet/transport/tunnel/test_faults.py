"""Whole sessions when something goes wrong: which end is told what, over real TCP, and that nothing is left behind.

test_cases.py lists these with all other cases of the protocol, and where each is tested.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest

from fleet.protocol.tunnel.messages import Op, Registration, Session, Target, TunnelError, WireVersion
from fleet.protocol.tunnel.server_state import Limits
from fleet.transport.tunnel import codec
from fleet.transport.tunnel.client import RegisterEndedError, TunnelClient
from fleet.transport.tunnel.server import TunnelServer
from fleet.transport.tunnel.stream import TunnelAbortedError, TunnelStream
from fleet.wire import tunnel_pb2
from tests.fakes.tunnel import (
    REGISTER,
    SSH,
    TUNNEL,
    Ground,
    dialling,
    echo,
    echo_tcp,
    ended_badly,
    failure_of,
    no_sessions,
    still_works,
    taking,
)
from tests.fakes.waiting import eventually

ROOT = Path(__file__).parents[4]
MIB = 1024 * 1024


def reset(writer: asyncio.StreamWriter) -> None:
    """End a TCP connection with a reset."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


# -- how an end is told --------------------------------------------------------------------------------


@pytest.mark.parametrize("asker", ["server", "client"])
@pytest.mark.parametrize("ender", ["user", "service"])
@pytest.mark.parametrize("how", ["well", "badly"])
async def test_each_kind_of_end_is_the_same_at_the_other_end(
    ground: Ground, asker: str, ender: str, how: str
) -> None:
    """An end of stream stays one and a reset stays one, whoever asked for the session and whoever ends it."""
    told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    # A reset may overtake what was sent before it, in TCP as in HTTP/2.
    has_arrived = asyncio.Event()

    def end(writer: asyncio.StreamWriter) -> None:
        writer.close() if how == "well" else reset(writer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(5))
        await writer.drain()
        if ender == "service":
            await has_arrived.wait()
            end(writer)
        else:
            told.set_result(await ended_badly(reader))

    handler = dialling(await ground.service(serve))
    tunnel = TunnelServer(handler=handler) if asker == "client" else TunnelServer()
    address = await ground.server(tunnel)
    running = await ground.client(address, Target("own"), handler=handler)
    opener: Callable[[], Any] = (
        (lambda: tunnel.open_session(Target("own")))
        if asker == "server"
        else (lambda: running.client.open_session(SSH))
    )
    reader, writer = await ground.connect(await ground.listen(opener))
    writer.write(b"hello")
    async with asyncio.timeout(60):
        assert await reader.readexactly(5) == b"hello"
        has_arrived.set()
        if ender == "user":
            end(writer)
            bad = await told
        else:
            bad = await ended_badly(reader)
    assert bad is (how == "badly")
    writer.close()
    await eventually(lambda: no_sessions(tunnel) and not running.client.streams)


async def test_session_that_both_ends_abort_at_once_is_over(ground: Ground) -> None:
    """Neither waits for the other."""
    pair = await ground.pair()
    pair.server.abort("enough here")
    pair.client.abort("enough there")
    for stream in (pair.server, pair.client):
        with pytest.raises(TunnelAbortedError, match="enough"):
            await stream.read()
    await eventually(lambda: no_sessions(pair.tunnel) and not pair.of.streams)


# -- a stream that cannot be opened ----------------------------------------------------------------------


class BrokenCall:
    """A call that is over before its first message."""

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        del callback

    async def write(self, message: bytes) -> None:
        raise asyncio.InvalidStateError(message)

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    async def details(self) -> str:
        return "the line is cut"

    def cancel(self) -> None:
        pass


@pytest.mark.parametrize("asker", ["server", "client"])
async def test_first_message_that_cannot_be_sent_is_told_to_who_asked(ground: Ground, asker: str) -> None:
    """To the server by an error for its tag, to a caller here at once; the tunnel goes on."""
    tunnel = TunnelServer(handler=taking(echo), local=[SSH])
    mine = Target("mine")
    running = await ground.client(await ground.server(tunnel), mine, handler=taking(echo))
    client = running.client
    whole = client._open_tunnel
    client._open_tunnel = lambda metadata: BrokenCall()  # type: ignore[assignment,misc]
    opening = tunnel.open_session(mine) if asker == "server" else client.open_session(SSH)
    with pytest.raises(TunnelError, match="the line is cut"):
        await asyncio.wait_for(opening, 60)
    client._open_tunnel = whole
    client.streams.clear()
    stream = await tunnel.open_session(mine)
    await still_works(stream)
    await stream.close()


@pytest.mark.parametrize("asker", ["server", "client"])
async def test_tunnel_method_that_is_refused_is_told_to_who_asked(ground: Ground, asker: str) -> None:
    """A proxy between lets Register pass and nothing else: no session comes up, and none hangs."""
    tunnel = TunnelServer(handler=taking(echo), local=[SSH], limits=Limits(set_up_within=1.0))
    address = await ground.server(tunnel)
    mine = Target("mine")
    running = await ground.client(address, mine, handler=taking(echo))
    other: Any = ground.channel(address).stream_stream("/grpctunnel.Tunnel/Other")
    running.client._open_tunnel = other
    if asker == "server":
        with pytest.raises(TunnelError):
            await tunnel.open_session(mine)
    else:
        # grpc.aio keeps no status of a call whose end met a write, and the end may come before our first message.
        with pytest.raises(TunnelError, match=r"Method not found|the other end has closed the session"):
            await _use(await running.client.open_session(SSH))
    await eventually(lambda: no_sessions(tunnel) and not running.client.streams)


async def _use(stream: TunnelStream) -> None:
    await stream.read()


async def test_server_that_speaks_of_tags_nobody_asked_for_is_borne(ground: Ground) -> None:
    """An answer for an unknown tag, a late refusal, tag 0: the client goes on, and takes the next session."""
    registered = asyncio.Event()
    answers: list[bytes] = []

    async def register(_: object, context: Any) -> None:
        await context.read()
        await context.write(codec.encode(WireVersion.V0_2, Registration(Op.UNKNOWN, SSH, accept=True)))
        registered.set()
        for said in (
            Session(-7, SSH, accept=True),
            Session(-7, SSH, error="too late"),
            Session(0, SSH, accept=True),
            Session(5, SSH, accept=True),
        ):
            await context.write(codec.encode(WireVersion.V0_2, said))
        while (raw := await context.read()) is not grpc.aio.EOF:
            answers.append(raw)

    async def serve(_: object, context: Any) -> None:
        answers.append(await context.read())
        await context.read()

    server = grpc.aio.server()
    methods = {
        "Register": grpc.stream_stream_rpc_method_handler(register),
        "Tunnel": grpc.stream_stream_rpc_method_handler(serve),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(codec.SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    running = await ground.client(f"127.0.0.1:{port}", SSH, handler=taking(echo))
    refusal = codec.encode(WireVersion.V0_2, Session(0, SSH, error="tags of a server must be positive"))
    await eventually(lambda: {refusal, codec.first_message(5)} <= set(answers))
    assert not running.task.done()
    await running.client.close()
    await server.stop(0)


async def test_duplicate_tunnel_for_a_session_being_set_up_gets_one_stream(ground: Ground) -> None:
    """Two streams with one tag at once: one is the session, the other is refused."""
    tunnel = TunnelServer()
    channel = ground.channel(await ground.server(tunnel))
    register = ground.raw(channel, REGISTER)
    await register.write(codec.encode(WireVersion.V0_2, Registration(Op.ADD, SSH)))
    await register.read()
    opening = asyncio.create_task(tunnel.open_session(SSH))
    asked = codec.decode(WireVersion.V0_2, await register.read())
    assert isinstance(asked, Session)
    calls = [ground.raw(channel, TUNNEL) for _ in range(2)]
    await asyncio.gather(*(call.write(codec.first_message(asked.tag)) for call in calls))
    stream = await opening
    failures = [asyncio.create_task(failure_of(call)) for call in calls]
    await asyncio.wait(failures, return_when=asyncio.FIRST_COMPLETED)
    (lost,) = [failure for failure in failures if failure.done()]
    assert lost.result()[0] is grpc.StatusCode.NOT_FOUND
    (won,) = [call for call, failure in zip(calls, failures, strict=True) if failure is not lost]
    await stream.write(b"one")
    assert codec.read_data(await won.read())[0] == b"one"
    for call in calls:
        call.cancel()
    await asyncio.gather(*failures)


async def test_data_of_another_session_ends_the_session_at_the_server(ground: Ground) -> None:
    """The stream is aborted with the reason, Register carries it as a session's error, and all else goes on."""
    tunnel = TunnelServer()
    channel = ground.channel(await ground.server(tunnel))
    register = ground.raw(channel, REGISTER)
    await register.write(codec.encode(WireVersion.V0_2, Registration(Op.ADD, SSH)))
    await register.read()
    opening = asyncio.create_task(tunnel.open_session(SSH))
    asked = codec.decode(WireVersion.V0_2, await register.read())
    assert isinstance(asked, Session)
    call = ground.raw(channel, TUNNEL)
    await call.write(codec.first_message(asked.tag))
    stream = await opening
    await call.write(tunnel_pb2.Data(tag=asked.tag, data=b"mine").SerializeToString())
    assert await stream.read() == b"mine"
    await call.write(tunnel_pb2.Data(tag=77, data=b"another's").SerializeToString())
    why = f"data with tag 77 arrived on the stream of tag {asked.tag}"
    with pytest.raises(TunnelAbortedError, match=why):
        await stream.read()
    assert await failure_of(call) == (grpc.StatusCode.ABORTED, why)
    assert codec.decode(WireVersion.V0_2, await register.read()) == Session(asked.tag, SSH, error=why)
    assert SSH in tunnel.targets()


async def test_data_of_another_session_ends_the_session_at_the_client(ground: Ground) -> None:
    """A server that sends it hears so on Register, and the service's connection is reset."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def register(_: object, context: Any) -> None:
        await context.read()
        await context.write(codec.encode(WireVersion.V0_2, Registration(Op.UNKNOWN, SSH, accept=True)))
        await context.write(codec.encode(WireVersion.V0_2, Session(5, SSH, accept=True)))
        while isinstance(raw := await context.read(), bytes):
            heard.put_nowait(raw)

    async def serve(_: object, context: Any) -> None:
        await context.read()
        await context.write(tunnel_pb2.Data(tag=5, data=b"mine").SerializeToString())
        await context.write(tunnel_pb2.Data(tag=6, data=b"another's").SerializeToString())
        while isinstance(await context.read(), bytes):
            pass

    server = grpc.aio.server()
    methods = {
        "Register": grpc.stream_stream_rpc_method_handler(register),
        "Tunnel": grpc.stream_stream_rpc_method_handler(serve),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(codec.SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    running = await ground.client(f"127.0.0.1:{port}", SSH, handler=taking(echo))
    async with asyncio.timeout(60):
        told = codec.decode(WireVersion.V0_2, await heard.get())
    assert told == Session(5, SSH, error="data with tag 6 arrived on the stream of tag 5")
    assert not running.task.done()
    await running.client.close()
    await server.stop(0)


# -- processes that are killed ---------------------------------------------------------------------------


async def test_server_killed_by_sigkill_is_an_abort_at_its_clients(ground: Ground) -> None:
    """Its process is gone: the service's TCP connection is reset, and whoever runs the client is told."""
    told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        assert await reader.readexactly(4) == b"here"
        ready.set()
        told.set_result(await ended_badly(reader))

    ready = asyncio.Event()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SERVER, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().strip()
        running = await ground.client(address, SSH, handler=dialling(await ground.service(serve)))
        async with asyncio.timeout(60):
            await ready.wait()
            process.send_signal(signal.SIGKILL)
            assert await told
            with pytest.raises(RegisterEndedError):
                await running.task
        await eventually(lambda: not running.client.streams)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


_SERVER = """
import asyncio
import grpc.aio
from fleet.transport.tunnel.server import TunnelServer, serve_tunnels
from tests.fakes.tunnel import SSH

async def main():
    tunnel = TunnelServer()
    server = grpc.aio.server()
    serve_tunnels(server, tunnel)
    print(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", flush=True)
    await server.start()
    while SSH not in tunnel.targets():
        await asyncio.sleep(0.01)
    stream = await tunnel.open_session(SSH)
    await stream.write(b"here")
    await asyncio.Event().wait()

asyncio.run(main())
"""


# -- what is left ----------------------------------------------------------------------------------------


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_hundred_sessions_leave_no_descriptor_open(ground: Ground) -> None:
    """A quarter of them ends badly at either end; afterwards the process has as many files open as before."""
    tunnel = TunnelServer()
    running = await ground.client(
        await ground.server(tunnel), SSH, handler=dialling(await ground.service(echo_tcp))
    )
    port = await ground.listen(lambda: tunnel.open_session(SSH))

    async def one(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"once")
        assert await reader.readexactly(4) == b"once"
        if number % 4 == 0:
            reset(writer)
        else:
            writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async with asyncio.timeout(60):
        await one(1)  # gRPC opens what it keeps
        await eventually(lambda: no_sessions(tunnel) and not running.client.streams)
        before = _descriptors()
        for _ in range(5):
            await asyncio.gather(*(one(number) for number in range(20)))
    await eventually(lambda: no_sessions(tunnel) and not running.client.streams)
    await eventually(lambda: _descriptors() <= before)


async def test_reader_that_never_reads_costs_bounded_memory(ground: Ground) -> None:
    """Its sender is stopped after some mebibytes, wherever they are, and the process grows by no more than these."""

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    tunnel = TunnelServer()
    await ground.client(await ground.server(tunnel), SSH, handler=dialling(await ground.service(deaf)))
    port = await ground.listen(lambda: tunnel.open_session(SSH))
    loop = asyncio.get_running_loop()
    process = psutil.Process()
    with socket.socket() as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", port))
        before = process.memory_info().rss
        sent, block = 0, bytes(MIB)
        # It is stopped when nothing more is taken for a second; a loaded machine may only make it seem to be earlier.
        with contextlib.suppress(TimeoutError):
            while sent < 512 * MIB:
                async with asyncio.timeout(1):
                    await loop.sock_sendall(sock, block)
                sent += MIB
        assert sent < 128 * MIB
        assert process.memory_info().rss - before < 128 * MIB


async def test_client_that_came_and_went_a_hundred_times_leaves_nothing(ground: Ground) -> None:
    """Register streams that end in the middle of everything: no connection, token, target or task of them stays."""
    tunnel = TunnelServer()
    address = await ground.server(tunnel)

    async def once(number: int) -> None:
        target = Target(f"host-{number}")
        channel = ground.channel(address)
        client = TunnelClient(channel, handler=taking(echo))
        task = asyncio.create_task(client.run([target]))
        await eventually(lambda: target in tunnel.targets())
        stream = await tunnel.open_session(target)
        await still_works(stream)
        await channel.close()
        await asyncio.wait((task,))
        assert task.exception()

    for start in range(0, 100, 20):
        await asyncio.gather(*(once(start + number) for number in range(20)))
    await eventually(lambda: not (tunnel._clients or tunnel._tokens or tunnel.targets()))
    assert not tunnel._state._connections
