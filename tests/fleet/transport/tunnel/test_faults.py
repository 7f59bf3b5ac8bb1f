"""Whole sessions with failures over real TCP: what each end is told, and that nothing remains. test_cases.py
lists these with all other cases of the protocol, and their tests.
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
    dial_sessions,
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


def reset_connection(writer: asyncio.StreamWriter) -> None:
    """End a TCP connection with a reset."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


# -- ends of sessions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("requester", ["server", "client"])
@pytest.mark.parametrize("ending_side", ["user", "service"])
@pytest.mark.parametrize("end_kind", ["close", "reset"])
async def test_close_and_reset_reach_the_other_end(
    ground: Ground, requester: str, ending_side: str, end_kind: str
) -> None:
    """An end of stream and a reset arrive as such, whichever end requested the session or ends it."""
    was_reset_future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    # A reset may overtake bytes sent before it, in TCP as in HTTP/2.
    has_arrived = asyncio.Event()

    def end_connection(writer: asyncio.StreamWriter) -> None:
        writer.close() if end_kind == "close" else reset_connection(writer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(5))
        await writer.drain()
        if ending_side == "service":
            await has_arrived.wait()
            end_connection(writer)
        else:
            was_reset_future.set_result(await ended_badly(reader))

    handler = dial_sessions(await ground.service(serve))
    tunnel = TunnelServer(handler=handler) if requester == "client" else TunnelServer()
    address = await ground.server(tunnel)
    tunnel_client = await ground.client(address, Target("own"), handler=handler)
    open_session: Callable[[], Any] = (
        (lambda: tunnel.open_session(Target("own")))
        if requester == "server"
        else (lambda: tunnel_client.client.open_session(SSH))
    )
    reader, writer = await ground.connect(await ground.listen(open_session))
    writer.write(b"hello")
    async with asyncio.timeout(60):
        assert await reader.readexactly(5) == b"hello"
        has_arrived.set()
        if ending_side == "user":
            end_connection(writer)
            was_reset = await was_reset_future
        else:
            was_reset = await ended_badly(reader)
    assert was_reset is (end_kind == "reset")
    writer.close()
    await eventually(lambda: no_sessions(tunnel) and not tunnel_client.client.streams)


async def test_session_that_both_ends_abort_at_once_is_over(ground: Ground) -> None:
    """Neither end waits for the other."""
    pair = await ground.pair()
    pair.server.abort("enough here")
    pair.client.abort("enough there")
    for stream in (pair.server, pair.client):
        with pytest.raises(TunnelAbortedError, match="enough"):
            await stream.read()
    await eventually(lambda: no_sessions(pair.tunnel) and not pair.of.streams)


# -- streams that cannot be opened ----------------------------------------------------------------------


class BrokenCall:
    """A call that ended before its first message."""

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


@pytest.mark.parametrize("requester", ["server", "client"])
async def test_unsent_first_message_is_reported_to_the_requester(ground: Ground, requester: str) -> None:
    """The server gets an error for the tag, a local caller an exception; the tunnel continues."""
    tunnel = TunnelServer(handler=taking(echo), local=[SSH])
    own_target = Target("mine")
    tunnel_client = await ground.client(await ground.server(tunnel), own_target, handler=taking(echo))
    client = tunnel_client.client
    open_tunnel = client._open_tunnel
    client._open_tunnel = lambda metadata: BrokenCall()  # type: ignore[assignment,misc]
    session_task = tunnel.open_session(own_target) if requester == "server" else client.open_session(SSH)
    with pytest.raises(TunnelError, match="the line is cut"):
        await asyncio.wait_for(session_task, 60)
    client._open_tunnel = open_tunnel
    client.streams.clear()
    stream = await tunnel.open_session(own_target)
    await still_works(stream)
    await stream.close()


@pytest.mark.parametrize("requester", ["server", "client"])
async def test_refused_tunnel_method_is_reported_to_the_requester(ground: Ground, requester: str) -> None:
    """A proxy in between allows only Register: no session opens, and none hangs."""
    tunnel = TunnelServer(handler=taking(echo), local=[SSH], limits=Limits(set_up_timeout=1.0))
    address = await ground.server(tunnel)
    own_target = Target("mine")
    tunnel_client = await ground.client(address, own_target, handler=taking(echo))
    other_method: Any = ground.channel(address).stream_stream("/grpctunnel.Tunnel/Other")
    tunnel_client.client._open_tunnel = other_method
    if requester == "server":
        with pytest.raises(TunnelError):
            await tunnel.open_session(own_target)
    else:
        # grpc.aio has no status for a write on an ended call, and the call may end before our first message.
        with pytest.raises(TunnelError, match=r"Method not found|the other end has closed the session"):
            await _read_once(await tunnel_client.client.open_session(SSH))
    await eventually(lambda: no_sessions(tunnel) and not tunnel_client.client.streams)


async def _read_once(stream: TunnelStream) -> None:
    await stream.read()


async def test_messages_for_unknown_tags_are_ignored(ground: Ground) -> None:
    """A response for an unknown tag, a late refusal, tag 0: the client continues, and accepts the next
    session.
    """
    is_registered = asyncio.Event()
    received_messages: list[bytes] = []

    async def register(_: object, context: Any) -> None:
        await context.read()
        await context.write(codec.encode(WireVersion.V0_2, Registration(Op.UNKNOWN, SSH, accept=True)))
        is_registered.set()
        for message in (
            Session(-7, SSH, accept=True),
            Session(-7, SSH, error="too late"),
            Session(0, SSH, accept=True),
            Session(5, SSH, accept=True),
        ):
            await context.write(codec.encode(WireVersion.V0_2, message))
        while (raw := await context.read()) is not grpc.aio.EOF:
            received_messages.append(raw)

    async def serve(_: object, context: Any) -> None:
        received_messages.append(await context.read())
        await context.read()

    server = grpc.aio.server()
    methods = {
        "Register": grpc.stream_stream_rpc_method_handler(register),
        "Tunnel": grpc.stream_stream_rpc_method_handler(serve),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(codec.SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    tunnel_client = await ground.client(f"127.0.0.1:{port}", SSH, handler=taking(echo))
    refusal = codec.encode(WireVersion.V0_2, Session(0, SSH, error="tags of a server must be positive"))
    await eventually(lambda: {refusal, codec.first_message(5)} <= set(received_messages))
    assert not tunnel_client.task.done()
    await tunnel_client.client.close()
    await server.stop(0)


async def test_duplicate_stream_of_a_pending_session_is_refused(ground: Ground) -> None:
    """Of two streams with one tag one becomes the session."""
    tunnel = TunnelServer()
    channel = ground.channel(await ground.server(tunnel))
    register = ground.raw(channel, REGISTER)
    await register.write(codec.encode(WireVersion.V0_2, Registration(Op.ADD, SSH)))
    await register.read()
    session_task = asyncio.create_task(tunnel.open_session(SSH))
    request = codec.decode(WireVersion.V0_2, await register.read())
    assert isinstance(request, Session)
    calls = [ground.raw(channel, TUNNEL) for _ in range(2)]
    await asyncio.gather(*(call.write(codec.first_message(request.tag)) for call in calls))
    stream = await session_task
    failures = [asyncio.create_task(failure_of(call)) for call in calls]
    await asyncio.wait(failures, return_when=asyncio.FIRST_COMPLETED)
    (refused_call,) = [failure for failure in failures if failure.done()]
    assert refused_call.result()[0] is grpc.StatusCode.NOT_FOUND
    (accepted_call,) = [
        call for call, failure in zip(calls, failures, strict=True) if failure is not refused_call
    ]
    await stream.write(b"one")
    assert codec.read_data(await accepted_call.read())[0] == b"one"
    for call in calls:
        call.cancel()
    await asyncio.gather(*failures)


async def test_data_of_another_session_ends_the_session_at_the_server(ground: Ground) -> None:
    """The stream is aborted with the reason, Register has it as the session's error, and everything else
    continues.
    """
    tunnel = TunnelServer()
    channel = ground.channel(await ground.server(tunnel))
    register = ground.raw(channel, REGISTER)
    await register.write(codec.encode(WireVersion.V0_2, Registration(Op.ADD, SSH)))
    await register.read()
    session_task = asyncio.create_task(tunnel.open_session(SSH))
    request = codec.decode(WireVersion.V0_2, await register.read())
    assert isinstance(request, Session)
    call = ground.raw(channel, TUNNEL)
    await call.write(codec.first_message(request.tag))
    stream = await session_task
    await call.write(tunnel_pb2.Data(tag=request.tag, data=b"mine").SerializeToString())
    assert await stream.read() == b"mine"
    await call.write(tunnel_pb2.Data(tag=77, data=b"another's").SerializeToString())
    reason = f"data with tag 77 arrived on the stream of tag {request.tag}"
    with pytest.raises(TunnelAbortedError, match=reason):
        await stream.read()
    assert await failure_of(call) == (grpc.StatusCode.ABORTED, reason)
    assert codec.decode(WireVersion.V0_2, await register.read()) == Session(request.tag, SSH, error=reason)
    assert SSH in tunnel.targets()


async def test_data_of_another_session_ends_the_session_at_the_client(ground: Ground) -> None:
    """The server gets an error on Register, and the service's connection is reset."""
    register_messages: asyncio.Queue[bytes] = asyncio.Queue()

    async def register(_: object, context: Any) -> None:
        await context.read()
        await context.write(codec.encode(WireVersion.V0_2, Registration(Op.UNKNOWN, SSH, accept=True)))
        await context.write(codec.encode(WireVersion.V0_2, Session(5, SSH, accept=True)))
        while isinstance(raw := await context.read(), bytes):
            register_messages.put_nowait(raw)

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
    tunnel_client = await ground.client(f"127.0.0.1:{port}", SSH, handler=taking(echo))
    async with asyncio.timeout(60):
        message = codec.decode(WireVersion.V0_2, await register_messages.get())
    assert message == Session(5, SSH, error="data with tag 6 arrived on the stream of tag 5")
    assert not tunnel_client.task.done()
    await tunnel_client.client.close()
    await server.stop(0)


# -- killed processes ------------------------------------------------------------------------------------


async def test_server_killed_by_sigkill_is_an_abort_at_its_clients(ground: Ground) -> None:
    """The service's TCP connection is reset, and the client's run ends with an error."""
    was_reset: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        assert await reader.readexactly(4) == b"here"
        ready.set()
        was_reset.set_result(await ended_badly(reader))

    ready = asyncio.Event()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SERVER, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().strip()
        tunnel_client = await ground.client(address, SSH, handler=dial_sessions(await ground.service(serve)))
        async with asyncio.timeout(60):
            await ready.wait()
            process.send_signal(signal.SIGKILL)
            assert await was_reset
            with pytest.raises(RegisterEndedError):
                await tunnel_client.task
        await eventually(lambda: not tunnel_client.client.streams)
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


# -- leftovers -------------------------------------------------------------------------------------------


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_hundred_sessions_leave_no_descriptor_open(ground: Ground) -> None:
    """A quarter of them is reset; afterwards the process has as many open files as before."""
    tunnel = TunnelServer()
    tunnel_client = await ground.client(
        await ground.server(tunnel), SSH, handler=dial_sessions(await ground.service(echo_tcp))
    )
    port = await ground.listen(lambda: tunnel.open_session(SSH))

    async def run_session(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"once")
        assert await reader.readexactly(4) == b"once"
        if number % 4 == 0:
            reset_connection(writer)
        else:
            writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async with asyncio.timeout(60):
        await run_session(1)  # gRPC opens its permanent files
        await eventually(lambda: no_sessions(tunnel) and not tunnel_client.client.streams)
        before = _descriptors()
        for _ in range(5):
            await asyncio.gather(*(run_session(number) for number in range(20)))
    await eventually(lambda: no_sessions(tunnel) and not tunnel_client.client.streams)
    await eventually(lambda: _descriptors() <= before)


async def test_reader_that_never_reads_costs_bounded_memory(ground: Ground) -> None:
    """Its sender stops after some MiB, and the process grows by no more than these."""

    async def serve_without_reading(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    tunnel = TunnelServer()
    await ground.client(
        await ground.server(tunnel), SSH, handler=dial_sessions(await ground.service(serve_without_reading))
    )
    port = await ground.listen(lambda: tunnel.open_session(SSH))
    loop = asyncio.get_running_loop()
    process = psutil.Process()
    with socket.socket() as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", port))
        before = process.memory_info().rss
        sent_size, block = 0, bytes(MIB)
        # The sender is blocked if nothing is accepted for 1 s; on a loaded machine it may seem so earlier.
        with contextlib.suppress(TimeoutError):
            while sent_size < 512 * MIB:
                async with asyncio.timeout(1):
                    await loop.sock_sendall(sock, block)
                sent_size += MIB
        assert sent_size < 128 * MIB
        assert process.memory_info().rss - before < 128 * MIB


async def test_hundred_clients_leave_nothing_behind(ground: Ground) -> None:
    """Register streams end during sessions: no connection, token, target or task remains."""
    tunnel = TunnelServer()
    address = await ground.server(tunnel)

    async def run_client(number: int) -> None:
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
        await asyncio.gather(*(run_client(start + number) for number in range(20)))
    await eventually(lambda: not (tunnel._clients or tunnel._clients_by_token or tunnel.targets()))
    assert not tunnel._state._connections
