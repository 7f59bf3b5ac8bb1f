"""TCP connections over sessions: bytes, ends and resets are TCP's own, whichever end they come from."""

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
    dialling,
    echo_tcp,
    ended_badly,
    no_sessions,
    taking,
)
from tests.fakes.waiting import eventually


async def way(ground: Ground, service: int, policy: SessionPolicy | None = None) -> tuple[int, TunnelServer]:
    """A TCP port that leads through a tunnel to a service."""
    tunnel = TunnelServer()
    await ground.client(await ground.server(tunnel), SSH, handler=dialling(service, policy))
    return await ground.listen(lambda: tunnel.open_session(SSH), policy), tunnel


@pytest.mark.parametrize("size", [1, 65_537, 8 * 1024 * 1024])
async def test_bytes_arrive_whole_both_ways_at_once(ground: Ground, size: int) -> None:
    """What an echo is sent comes back while more is sent."""
    port, _ = await way(ground, await ground.service(echo_tcp))
    reader, writer = await ground.connect(port)
    data = (hashlib.sha256(b"seed").digest() * (size // 32 + 1))[:size]

    async def send() -> None:
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    sending = asyncio.create_task(send())
    async with asyncio.timeout(60):
        assert await reader.read() == data
        await sending


async def test_request_that_ends_with_the_end_of_stream_is_answered(ground: Ground) -> None:
    """Between peers of ours a half-close is one: the answer after it arrives."""
    port, tunnel = await way(ground, await ground.service(answer_at_the_end))
    reader, writer = await ground.connect(port)
    writer.write(b"all of it")
    writer.write_eof()
    async with asyncio.timeout(60):
        assert await reader.read() == hashlib.sha256(b"all of it").hexdigest().encode()
    await eventually(lambda: no_sessions(tunnel))


async def test_server_that_speaks_first_is_heard(ground: Ground) -> None:
    """What a service says before it is asked is not lost."""

    async def banner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-x\r\n")
        await writer.drain()
        await reader.read()

    port, _ = await way(ground, await ground.service(banner))
    reader, writer = await ground.connect(port)
    async with asyncio.timeout(60):
        assert await reader.readline() == b"SSH-2.0-x\r\n"
    writer.close()


async def test_service_that_resets_resets_the_user(ground: Ground) -> None:
    """A broken connection is never made a clean end."""

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        taken = writer.get_extra_info("socket")
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    port, tunnel = await way(ground, await ground.service(reset))
    reader, writer = await ground.connect(port)
    writer.write(b"x")
    assert await ended_badly(reader)
    await eventually(lambda: no_sessions(tunnel))


async def test_user_that_resets_resets_the_service(ground: Ground) -> None:
    """And the other way round."""
    ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"y" * 100_000)
        await reader.read(1)
        ended.set_result(await ended_badly(reader))

    port, tunnel = await way(ground, await ground.service(serve))
    reader, writer = await ground.connect(port)
    await reader.read(1)
    writer.write(b"z")
    await writer.drain()
    await asyncio.sleep(0)
    writer.transport.abort()
    async with asyncio.timeout(60):
        await ended
    await eventually(lambda: no_sessions(tunnel))


async def test_target_that_is_gone_resets_the_user(ground: Ground) -> None:
    """A refused session is a reset."""
    ground.expected.append("")
    tunnel = TunnelServer()
    await ground.server(tunnel)
    reader, _ = await ground.connect(await ground.listen(lambda: tunnel.open_session(SSH)))
    assert await ended_badly(reader)


async def test_idle_session_is_closed_in_an_orderly_way(ground: Ground) -> None:
    """The seed's idle close: both TCP ends see an end of stream, not a reset."""
    port, tunnel = await way(ground, await ground.service(echo_tcp), SessionPolicy(idle=1.0))
    reader, writer = await ground.connect(port)
    writer.write(b"once")
    async with asyncio.timeout(60):
        assert await reader.readexactly(4) == b"once"
        assert await reader.read() == b""
    writer.close()
    await eventually(lambda: no_sessions(tunnel))


async def test_reader_that_never_reads_stops_its_sender_and_nobody_else(ground: Ground) -> None:
    """What is in flight stays bounded, and an echo beside it goes on."""

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    tunnel = TunnelServer()
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=dialling(await ground.service(deaf)))
    _, writer = await ground.connect(await ground.listen(lambda: tunnel.open_session(SSH)))
    # The user is there when its session is: what is written before would wait for that, too.
    await eventually(lambda: any(one.streams for one in tunnel._clients.values()))
    writer.write(bytes(256 * 1024 * 1024))
    size, before = writer.transport.get_write_buffer_size(), -1
    while size != before:
        before = size
        await asyncio.sleep(0.2)
        size = writer.transport.get_write_buffer_size()
    assert size > 128 * 1024 * 1024
    port, _ = await way(ground, await ground.service(echo_tcp))
    other, to_other = await ground.connect(port)
    to_other.write(b"go on")
    async with asyncio.timeout(60):
        assert await other.readexactly(5) == b"go on"
    writer.transport.abort()
    to_other.close()


@pytest.mark.parametrize("closing", HalfClosePolicy)
async def test_end_of_sending_with_a_peer_that_cannot_half_close(
    ground: Ground, closing: HalfClosePolicy
) -> None:
    """`close` says it and loses the answer; `defer` keeps it back, so that what is still sent arrives."""
    said = asyncio.Event()

    async def greet_later(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)
        said.set()
        if closing is HalfClosePolicy.CLOSE:
            await reader.read()
        writer.write(b"answer")
        await writer.drain()

    tunnel = TunnelServer()
    running = await ground.client(
        await ground.server(tunnel), SSH, handler=dialling(await ground.service(greet_later))
    )
    for registered in tunnel._clients.values():
        registered.half_close = False
    assert running.client._register_stream is not None
    running.client._register_stream.half_close = False
    port = await ground.listen(lambda: tunnel.open_session(SSH), SessionPolicy(closing))
    reader, writer = await ground.connect(port)
    writer.write(b"hello")
    writer.write_eof()
    async with asyncio.timeout(60):
        await said.wait()
        answer = await reader.read()
    assert answer == (b"answer" if closing is HalfClosePolicy.DEFER else b"")


def _linger(wire: TcpConnection) -> bytes:
    assert wire.transport is not None
    sock = wire.transport.get_extra_info("socket")
    lingering: bytes = sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
    return lingering


async def test_connection_is_reset_unless_it_is_closed(ground: Ground) -> None:
    """Until its orderly end the kernel would reset it, if this process were killed; bytes are counted."""
    port = await ground.service(echo_tcp)
    wire = await connect("127.0.0.1", port, 5)
    assert _linger(wire) == struct.pack("ii", 1, 0)
    await wire.write(memoryview(b"seven b"))
    await wire.read()
    assert (wire.sent_bytes, wire.received_bytes) == (7, 7)
    sock = wire.transport.get_extra_info("socket").dup()  # type: ignore[union-attr]
    wire.close()
    with sock:
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == struct.pack("ii", 0, 0)
    await wire.closed_future


@pytest.mark.parametrize("first", ["user", "service"])
async def test_tls_ends_both_directions(ground: Ground, tmp_path: Path, first: str) -> None:
    """Whoever ends first, what was said before arrives, and the session ends in an orderly way at both ends."""
    heard: list[bytes] = []

    async def service(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await writer.drain()
        if first == "service":
            writer.write_eof()
        heard.append(await reader.read())

    tunnel = TunnelServer()
    await ground.client(await ground.server(tunnel), SSH, handler=dialling(await ground.service(service)))
    stream = await tunnel.open_session(SSH)
    pumping: list[asyncio.Task[None]] = []

    def made(wire: TcpConnection) -> None:
        pumping.append(asyncio.create_task(pump(wire, stream)))

    ca = certificate_authority.ensure_authority(tmp_path, now=datetime.now(UTC))
    keys = certificate_authority.issue(ca, "proxy-1", role="proxy", now=datetime.now(UTC))
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(keys.certificate, keys.key)
    loop = asyncio.get_running_loop()
    async with await loop.create_server(lambda: TcpConnection(made), "127.0.0.1", 0, ssl=served) as server:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.sockets[0].getsockname()[1], ssl=ssl.create_default_context(cafile=str(ca.ca))
        )
        async with asyncio.timeout(60):
            assert await reader.readexactly(5) == b"hello"
            if first == "service":
                assert await reader.read() == b""
            else:
                writer.write(b"good bye")
                await writer.drain()
            writer.close()
            await writer.wait_closed()
            await pumping[0]
    await eventually(lambda: heard == [b"good bye" if first == "user" else b""])
    await eventually(lambda: no_sessions(tunnel))


async def finish_and_stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve a protocol whose server ends its sending at once, and goes on reading."""
    writer.write_eof()
    await reader.read()


def hung_up(writer: asyncio.StreamWriter) -> bool:
    """Whether a TCP connection is over, even for who has read its end."""
    poll = select.poll()
    poll.register(writer.get_extra_info("socket").fileno(), 0)
    return bool(poll.poll(0))


async def test_half_closed_session_whose_client_dies_ends_its_user(ground: Ground) -> None:
    """The service had ended its sending, so nobody reads the session: its user is reset all the same."""
    tunnel = TunnelServer()
    service = await ground.service(finish_and_stay)
    running = await ground.client(await ground.server(tunnel), SSH, handler=dialling(service))
    reader, writer = await ground.connect(await ground.listen(lambda: tunnel.open_session(SSH)))
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    assert not hung_up(writer)
    await running.client.close()
    await eventually(lambda: hung_up(writer))
    await eventually(lambda: no_sessions(tunnel))


async def test_half_closed_session_whose_server_dies_ends_its_service(ground: Ground) -> None:
    """The user had ended its sending: the service at the other end is reset when the tunnel's server goes."""
    ended = asyncio.Event()
    began = asyncio.Event()

    async def wait_for_hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b""
        began.set()
        await eventually(lambda: hung_up(writer))
        ended.set()

    tunnel = TunnelServer()
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=dialling(await ground.service(wait_for_hang_up)))
    _, writer = await ground.connect(await ground.listen(lambda: tunnel.open_session(SSH)))
    writer.write_eof()
    async with asyncio.timeout(60):
        await began.wait()
        await ground.grpc[address].stop(0)
        await ended.wait()


async def test_session_that_its_handler_closes_early_ends_its_user_in_an_orderly_way(ground: Ground) -> None:
    """All was taken: the user sees an end of stream though it has not ended its own sending, and ends it then."""

    async def greet(stream: TunnelStream) -> None:
        assert await stream.read() == b"hello"
        await stream.write(b"good bye")

    tunnel = TunnelServer(handler=taking(greet))
    running = await ground.client(await ground.server(tunnel))
    reader, writer = await ground.connect(await ground.listen(lambda: running.client.open_session(SSH)))
    writer.write(b"hello")
    async with asyncio.timeout(60):
        assert await reader.read() == b"good bye"
        writer.write_eof()
        await eventually(lambda: not running.client.streams)
        assert await ended_badly(reader) is False


async def test_idle_session_with_bytes_on_their_way_is_an_abort(ground: Ground) -> None:
    """Its other end takes nothing, so an orderly end would lose what was sent: it is reset, and nothing breaks."""

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    policy = SessionPolicy(idle=0.3)
    tunnel = TunnelServer()
    await ground.client(
        await ground.server(tunnel), SSH, handler=dialling(await ground.service(deaf), SessionPolicy())
    )
    reader, writer = await ground.connect(await ground.listen(lambda: tunnel.open_session(SSH), policy))
    writer.write(bytes(64 * 1024 * 1024))
    assert await ended_badly(reader)
    await eventually(lambda: no_sessions(tunnel))


async def test_pump_carries_what_a_read_before_it_left(ground: Ground) -> None:
    """A handler reads a line of its own, and pumps the rest: no byte is lost, nor what a cancelled read waits for."""
    echo = await ground.service(echo_tcp)
    ready = asyncio.Event()

    async def serve(stream: TunnelStream) -> None:
        line = await stream.read(3)
        assert line == b"abc"
        if not stream._rest:
            reading = asyncio.create_task(stream.read())
            await eventually(lambda: stream._read_task is not None)
            reading.cancel()
            await asyncio.wait((reading,))
        ready.set()
        taken = await dial("127.0.0.1", echo, SessionPolicy())
        await taken.serve(stream)

    tunnel = TunnelServer()
    await ground.client(await ground.server(tunnel), SSH, handler=taking(serve))
    for first, then in ((b"abcdef", b""), (b"abc", b"def")):
        stream = await tunnel.open_session(SSH)
        await stream.write(first)
        await ready.wait()
        ready.clear()
        await stream.write(then)
        await stream.write_eof()
        got = b""
        async with asyncio.timeout(60):
            while part := await stream.read():
                got += part
        assert got == b"def"
        await stream.close()


async def test_connection_that_takes_nothing_more_is_cut_when_it_is_closed(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is unsent waits for who is slow, not for who is deaf; a machine that vanished is asked for, too."""
    monkeypatch.setattr(pump_module, "_TAKEN_WITHIN", 0.05)

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    wire = await connect("127.0.0.1", await ground.service(deaf), 5)
    assert wire.transport is not None
    sock = wire.transport.get_extra_info("socket")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    writing = asyncio.create_task(wire.write(memoryview(bytes(32 * 1024 * 1024))))
    await eventually(lambda: wire.transport is not None and wire.transport.get_write_buffer_size() > 0)
    wire.close()
    await asyncio.wait((wire.closed_future, writing), timeout=60)
    assert wire.error is not None
