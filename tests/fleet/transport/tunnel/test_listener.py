"""TCP listener whose connections become sessions."""

from __future__ import annotations

import asyncio

from fleet.transport.tunnel.listener import TunnelListener
from fleet.transport.tunnel.server import TunnelServer
from fleet.transport.tunnel.stream import TunnelStream
from tests.fakes.tunnel import SSH, Ground, dial_sessions, echo_tcp, ended_badly, no_sessions
from tests.fakes.waiting import eventually


async def test_concurrent_connections_get_their_own_bytes(ground: Ground) -> None:
    tunnel = TunnelServer()
    handler = dial_sessions(await ground.service(echo_tcp))
    await ground.client(await ground.server(tunnel), SSH, handler=handler)
    port = await ground.listen(lambda: tunnel.open_session(SSH))

    async def run_connection(number: int) -> None:
        reader, writer = await ground.connect(port)
        message = f"I am {number}".encode() * 1000
        writer.write(message)
        writer.write_eof()
        assert await reader.read() == message

    async with asyncio.timeout(60):
        await asyncio.gather(*(run_connection(number) for number in range(50)))
    await eventually(lambda: no_sessions(tunnel))


async def test_stop_resets_open_connections(ground: Ground) -> None:
    """They do not end in an orderly way, as data may be missing."""
    tunnel = TunnelServer()
    handler = dial_sessions(await ground.service(echo_tcp))
    await ground.client(await ground.server(tunnel), SSH, handler=handler)
    listener = await TunnelListener(lambda: tunnel.open_session(SSH)).start("127.0.0.1", 0)
    reader, writer = await ground.connect(listener.port)
    writer.write(b"x")
    assert await reader.readexactly(1) == b"x"
    await listener.stop()
    assert await ended_badly(reader)
    await eventually(lambda: no_sessions(tunnel))


async def test_failure_to_open_a_session_resets_its_connection(ground: Ground) -> None:
    """The error is logged, and the listener continues."""
    ground.expected.append("a connection was reset, because no session could be opened")

    async def fail() -> TunnelStream:
        raise ZeroDivisionError

    port = await ground.listen(fail)
    for _ in range(2):
        reader, _ = await ground.connect(port)
        assert await ended_badly(reader)
