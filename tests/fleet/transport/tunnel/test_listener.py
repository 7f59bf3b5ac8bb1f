"""A TCP port whose connections become sessions."""

from __future__ import annotations

import asyncio

from fleet.transport.tunnel.listener import TunnelListener
from fleet.transport.tunnel.server import TunnelServer
from fleet.transport.tunnel.stream import TunnelStream
from tests.fakes.tunnel import SSH, Ground, dialling, echo_tcp, ended_badly, no_sessions
from tests.fakes.waiting import eventually


async def test_fifty_connections_at_once_each_get_their_own_bytes(ground: Ground) -> None:
    """Sessions do not mix."""
    tunnel = TunnelServer()
    handler = dialling(await ground.service(echo_tcp))
    await ground.client(await ground.server(tunnel), SSH, handler=handler)
    port = await ground.listen(lambda: tunnel.open_session(SSH))

    async def one(number: int) -> None:
        reader, writer = await ground.connect(port)
        said = f"I am {number}".encode() * 1000
        writer.write(said)
        writer.write_eof()
        assert await reader.read() == said

    async with asyncio.timeout(60):
        await asyncio.gather(*(one(number) for number in range(50)))
    await eventually(lambda: no_sessions(tunnel))


async def test_stop_resets_what_is_open_and_refuses_what_comes(ground: Ground) -> None:
    """A listener that ends does not pretend that all was said."""
    tunnel = TunnelServer()
    handler = dialling(await ground.service(echo_tcp))
    await ground.client(await ground.server(tunnel), SSH, handler=handler)
    listener = await TunnelListener(lambda: tunnel.open_session(SSH)).start("127.0.0.1", 0)
    reader, writer = await ground.connect(listener.port)
    writer.write(b"x")
    assert await reader.readexactly(1) == b"x"
    await listener.stop()
    assert await ended_badly(reader)
    await eventually(lambda: no_sessions(tunnel))


async def test_fault_of_who_opens_sessions_resets_its_connection_alone(ground: Ground) -> None:
    """It is logged, and the listener goes on."""
    ground.expected.append("a connection was reset, because no session could be opened")

    async def fail() -> TunnelStream:
        raise ZeroDivisionError

    port = await ground.listen(fail)
    for _ in range(2):
        reader, _ = await ground.connect(port)
        assert await ended_badly(reader)
