"""TCP connections over sessions: bytes, ends and resets arrive as in TCP, from either end."""

from __future__ import annotations

import asyncio
import hashlib
import select
import socket
import ssl
import struct
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.transport import certificate_authority
from fleet.transport.tunnel import pump as pump_module
from fleet.transport.tunnel.handlers import dial
from fleet.transport.tunnel.pump import HalfClosePolicy, SessionPolicy, TcpConnection, connect, pump
from fleet.transport.tunnel.server import TunnelServer
from fleet.transport.tunnel.stream import TunnelStream
from tests.fakes.tunnel import (
    SSH,
    Ground,
    answer_at_the_end,
    dial_sessions,
    echo_tcp,
    ended_badly,
    no_sessions,
    taking,
)
from tests.fakes.waiting import eventually


async def forwarded_port(
    ground: Ground, service: int, policy: SessionPolicy | None = None
) -> tuple[int, TunnelServer]:
    """Return a TCP port that leads through a tunnel to a service, and the tunnel's server."""
    tunnel = TunnelServer()
    await ground.client(await ground.server(tunnel), SSH, handler=dial_sessions(service, policy))
    return await ground.listen(lambda: tunnel.open_session(SSH), policy), tunnel


@pytest.mark.parametrize("size", [1, 65_537, 8 * 1024 * 1024])
async def test_bytes_arrive_in_both_directions_at_once(ground: Ground, size: int) -> None:
    """An echo responds while more is sent."""
    port, _ = await forwarded_port(ground, await ground.service(echo_tcp))
    reader, writer = await ground.connect(port)
    data = (hashlib.sha256(b"seed").digest() * (size // 32 + 1))[:size]

    async def send() -> None:
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    send_task = asyncio.create_task(send())
    async with asyncio.timeout(60):
        assert await reader.read() == data
        await send_task


async def test_request_that_ends_with_the_end_of_stream_is_answered(ground: Ground) -> None:
    """Between our own peers a half-close arrives as such, and so does the response after it."""
    port, tunnel = await forwarded_port(ground, await ground.service(answer_at_the_end))
    reader, writer = await ground.connect(port)
    writer.write(b"all of it")
    writer.write_eof()
    async with asyncio.timeout(60):
        assert await reader.read() == hashlib.sha256(b"all of it").hexdigest().encode()
    await eventually(lambda: no_sessions(tunnel))


async def test_service_that_sends_first_is_received(ground: Ground) -> None:
    """Bytes before any request are not lost."""

    async def send_banner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-x\r\n")
        await writer.drain()
        await reader.read()

    port, _ = await forwarded_port(ground, await ground.service(send_banner))
    reader, writer = await ground.connect(port)
    async with asyncio.timeout(60):
        assert await reader.readline() == b"SSH-2.0-x\r\n"
    writer.close()


async def test_service_that_resets_resets_the_user(ground: Ground) -> None:
    """A broken connection never becomes an orderly end."""

    async def reset_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    port, tunnel = await forwarded_port(ground, await ground.service(reset_connection))
    reader, writer = await ground.connect(port)
    writer.write(b"x")
    assert await ended_badly(reader)
    await eventually(lambda: no_sessions(tunnel))


async def test_user_that_resets_resets_the_service(ground: Ground) -> None:
    was_reset: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"y" * 100_000)
        await reader.read(1)
        was_reset.set_result(await ended_badly(reader))

    port, tunnel = await forwarded_port(ground, await ground.service(serve))
    reader, writer = await ground.connect(port)
    await reader.read(1)
    writer.write(b"z")
    await writer.drain()
    await asyncio.sleep(0)
    writer.transport.abort()
    async with asyncio.timeout(60):
        await was_reset
    await eventually(lambda: no_sessions(tunnel))


async def test_target_that_is_gone_resets_the_user(ground: Ground) -> None:
    """A refused session is a reset."""
    ground.expected.append("")
    tunnel = TunnelServer()
    await ground.server(tunnel)
    reader, _ = await ground.connect(await ground.listen(lambda: tunnel.open_session(SSH)))
    assert await ended_badly(reader)


async def test_idle_session_is_closed_in_an_orderly_way(ground: Ground) -> None:
    """Both TCP ends get an end of stream, not a reset."""
    port, tunnel = await forwarded_port(
        ground, await ground.service(echo_tcp), SessionPolicy(idle_timeout=1.0)
    )
    reader, writer = await ground.connect(port)
    writer.write(b"once")
    async with asyncio.timeout(60):
        assert await reader.readexactly(4) == b"once"
        assert await reader.read() == b""
    writer.close()
    await eventually(lambda: no_sessions(tunnel))


async def test_reader_that_never_reads_stops_only_its_sender(ground: Ground) -> None:
    """The bytes in transit are bounded, and another session continues."""

    async def serve_without_reading(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    tunnel = TunnelServer()
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=dial_sessions(await ground.service(serve_without_reading)))
    _, writer = await ground.connect(await ground.listen(lambda: tunnel.open_session(SSH)))
    # Bytes written before the session exists would wait for that, too.
    await eventually(lambda: any(client.streams for client in tunnel._clients.values()))
    writer.write(bytes(256 * 1024 * 1024))
    size, before = writer.transport.get_write_buffer_size(), -1
    while size != before:
        before = size
        await asyncio.sleep(0.2)
        size = writer.transport.get_write_buffer_size()
    assert size > 128 * 1024 * 1024
    port, _ = await forwarded_port(ground, await ground.service(echo_tcp))
    other_reader, other_writer = await ground.connect(port)
    other_writer.write(b"go on")
    async with asyncio.timeout(60):
        assert await other_reader.readexactly(5) == b"go on"
    writer.transport.abort()
    other_writer.close()


@pytest.mark.parametrize("half_close_policy", HalfClosePolicy)
async def test_end_of_sending_with_a_peer_that_cannot_half_close(
    ground: Ground, half_close_policy: HalfClosePolicy
) -> None:
    """`close` ends both directions and loses the response; `defer` delays the end, so the response arrives."""
    is_received = asyncio.Event()

    async def respond_later(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)
        is_received.set()
        if half_close_policy is HalfClosePolicy.CLOSE:
            await reader.read()
        writer.write(b"answer")
        await writer.drain()

    tunnel = TunnelServer()
    tunnel_client = await ground.client(
        await ground.server(tunnel), SSH, handler=dial_sessions(await ground.service(respond_later))
    )
    for registered_client in tunnel._clients.values():
        registered_client.can_half_close = False
    assert tunnel_client.client._register_stream is not None
    tunnel_client.client._register_stream.can_half_close = False
    port = await ground.listen(lambda: tunnel.open_session(SSH), SessionPolicy(half_close_policy))
    reader, writer = await ground.connect(port)
    writer.write(b"hello")
    writer.write_eof()
    async with asyncio.timeout(60):
        await is_received.wait()
        response = await reader.read()
    assert response == (b"answer" if half_close_policy is HalfClosePolicy.DEFER else b"")


def _linger_option(connection: TcpConnection) -> bytes:
    assert connection.transport is not None
    sock = connection.transport.get_extra_info("socket")
    option: bytes = sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
    return option


async def test_connection_is_reset_unless_it_is_closed(ground: Ground) -> None:
    """Before its orderly end the kernel resets it if the process is killed; bytes are counted."""
    port = await ground.service(echo_tcp)
    connection = await connect("127.0.0.1", port, 5)
    assert _linger_option(connection) == struct.pack("ii", 1, 0)
    await connection.write(memoryview(b"seven b"))
    await connection.read()
    assert (connection.sent_bytes, connection.received_bytes) == (7, 7)
    sock = connection.transport.get_extra_info("socket").dup()  # type: ignore[union-attr]
    connection.close()
    with sock:
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == struct.pack("ii", 0, 0)
    await connection.closed_future


@pytest.mark.parametrize("ending_side", ["user", "service"])
async def test_tls_ends_both_directions(ground: Ground, tmp_path: Path, ending_side: str) -> None:
    """Whichever side ends first, bytes sent before arrive, and the session ends in an orderly way."""
    received_data: list[bytes] = []

    async def service(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await writer.drain()
        if ending_side == "service":
            writer.write_eof()
        received_data.append(await reader.read())

    tunnel = TunnelServer()
    await ground.client(
        await ground.server(tunnel), SSH, handler=dial_sessions(await ground.service(service))
    )
    stream = await tunnel.open_session(SSH)
    pump_tasks: list[asyncio.Task[None]] = []

    def start_pump(connection: TcpConnection) -> None:
        pump_tasks.append(asyncio.create_task(pump(connection, stream)))

    ca = certificate_authority.ensure_authority(tmp_path, now=datetime.now(UTC))
    keys = certificate_authority.issue(ca, "proxy-1", role="proxy", now=datetime.now(UTC))
    tls_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls_context.load_cert_chain(keys.certificate, keys.key)
    loop = asyncio.get_running_loop()
    async with await loop.create_server(
        lambda: TcpConnection(start_pump), "127.0.0.1", 0, ssl=tls_context
    ) as server:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.sockets[0].getsockname()[1], ssl=ssl.create_default_context(cafile=str(ca.ca))
        )
        async with asyncio.timeout(60):
            assert await reader.readexactly(5) == b"hello"
            if ending_side == "service":
                assert await reader.read() == b""
            else:
                writer.write(b"good bye")
                await writer.drain()
            writer.close()
            await writer.wait_closed()
            await pump_tasks[0]
    await eventually(lambda: received_data == [b"good bye" if ending_side == "user" else b""])
    await eventually(lambda: no_sessions(tunnel))


async def finish_and_stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve a protocol whose server finishes sending at once, and continues to read."""
    writer.write_eof()
    await reader.read()


def is_hung_up(writer: asyncio.StreamWriter) -> bool:
    """Return whether a TCP connection is over, even after its end was read."""
    poll = select.poll()
    poll.register(writer.get_extra_info("socket").fileno(), 0)
    return bool(poll.poll(0))


async def test_half_closed_session_whose_client_dies_ends_its_user(ground: Ground) -> None:
    """The service had finished sending, so nobody reads the session: its user still gets a reset."""
    tunnel = TunnelServer()
    service = await ground.service(finish_and_stay)
    tunnel_client = await ground.client(await ground.server(tunnel), SSH, handler=dial_sessions(service))
    reader, writer = await ground.connect(await ground.listen(lambda: tunnel.open_session(SSH)))
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    assert not is_hung_up(writer)
    await tunnel_client.client.close()
    await eventually(lambda: is_hung_up(writer))
    await eventually(lambda: no_sessions(tunnel))


async def test_half_closed_session_whose_server_dies_ends_its_service(ground: Ground) -> None:
    """The user had finished sending: the service gets a reset when the tunnel server stops."""
    was_reset = asyncio.Event()
    is_half_closed = asyncio.Event()

    async def wait_for_hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b""
        is_half_closed.set()
        await eventually(lambda: is_hung_up(writer))
        was_reset.set()

    tunnel = TunnelServer()
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=dial_sessions(await ground.service(wait_for_hang_up)))
    _, writer = await ground.connect(await ground.listen(lambda: tunnel.open_session(SSH)))
    writer.write_eof()
    async with asyncio.timeout(60):
        await is_half_closed.wait()
        await ground.grpc[address].stop(0)
        await was_reset.wait()


async def test_session_that_its_handler_closes_early_ends_its_user_in_an_orderly_way(ground: Ground) -> None:
    """The user gets an end of stream although it is still sending, and no reset when it ends."""

    async def greet(stream: TunnelStream) -> None:
        assert await stream.read() == b"hello"
        await stream.write(b"good bye")

    tunnel = TunnelServer(handler=taking(greet))
    tunnel_client = await ground.client(await ground.server(tunnel))
    reader, writer = await ground.connect(await ground.listen(lambda: tunnel_client.client.open_session(SSH)))
    writer.write(b"hello")
    async with asyncio.timeout(60):
        assert await reader.read() == b"good bye"
        writer.write_eof()
        await eventually(lambda: not tunnel_client.client.streams)
        assert await ended_badly(reader) is False


async def test_idle_session_with_bytes_on_their_way_is_an_abort(ground: Ground) -> None:
    """The other end reads nothing, so an orderly end would lose bytes: the connection is reset."""

    async def serve_without_reading(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    policy = SessionPolicy(idle_timeout=0.3)
    tunnel = TunnelServer()
    await ground.client(
        await ground.server(tunnel),
        SSH,
        handler=dial_sessions(await ground.service(serve_without_reading), SessionPolicy()),
    )
    reader, writer = await ground.connect(await ground.listen(lambda: tunnel.open_session(SSH), policy))
    writer.write(bytes(64 * 1024 * 1024))
    assert await ended_badly(reader)
    await eventually(lambda: no_sessions(tunnel))


async def test_pump_forwards_bytes_of_an_earlier_read(ground: Ground) -> None:
    """A handler reads a line, and pumps the rest: no byte is lost, even if a read was cancelled."""
    echo = await ground.service(echo_tcp)
    ready = asyncio.Event()

    async def serve(stream: TunnelStream) -> None:
        line = await stream.read(3)
        assert line == b"abc"
        if not stream._rest:
            read_task = asyncio.create_task(stream.read())
            await eventually(lambda: stream._read_task is not None)
            read_task.cancel()
            await asyncio.wait((read_task,))
        ready.set()
        session = await dial("127.0.0.1", echo, SessionPolicy())
        await session.serve(stream)

    tunnel = TunnelServer()
    await ground.client(await ground.server(tunnel), SSH, handler=taking(serve))
    for ending_side, second in ((b"abcdef", b""), (b"abc", b"def")):
        stream = await tunnel.open_session(SSH)
        await stream.write(ending_side)
        await ready.wait()
        ready.clear()
        await stream.write(second)
        await stream.write_eof()
        received_data = b""
        async with asyncio.timeout(60):
            while part := await stream.read():
                received_data += part
        assert received_data == b"def"
        await stream.close()


async def test_connection_that_takes_nothing_more_is_cut_when_it_is_closed(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unsent bytes wait for a slow peer, but not for one that reads nothing; keep-alive detects a lost one."""
    monkeypatch.setattr(pump_module, "_STALL_TIMEOUT", 0.05)

    async def serve_without_reading(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    connection = await connect("127.0.0.1", await ground.service(serve_without_reading), 5)
    assert connection.transport is not None
    sock = connection.transport.get_extra_info("socket")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    write_task = asyncio.create_task(connection.write(memoryview(bytes(32 * 1024 * 1024))))
    await eventually(
        lambda: connection.transport is not None and connection.transport.get_write_buffer_size() > 0
    )
    connection.close()
    await asyncio.wait((connection.closed_future, write_task), timeout=60)
    assert connection.error is not None
