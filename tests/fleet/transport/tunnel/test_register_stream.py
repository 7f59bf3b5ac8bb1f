"""A Register stream that its client leaves, or whose connection its server drops: callers get a response at
once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from fleet.protocol.tunnel.messages import Target, WireVersion
from fleet.transport.tunnel.handlers import AcceptedSession, FunctionSession
from fleet.transport.tunnel.server import TunnelServer
from tests.fakes.strict_messages import GoError
from tests.fakes.strict_server import StrictServer
from tests.fakes.tunnel import SSH, Ground, StartedClient, echo, taking
from tests.fakes.waiting import eventually

#: The server drops connections soon; the streams on them continue.
_SHORT_AGE = (("grpc.max_connection_age_ms", 500), ("grpc.max_connection_age_grace_ms", 60_000))
_TIMEOUT = 60.0


@contextlib.asynccontextmanager
async def strict_server(
    wire: WireVersion, *options: tuple[str, int]
) -> AsyncIterator[tuple[StrictServer, str]]:
    """A server of another implementation, which accepts a tag on its own connection only."""
    server = StrictServer(wire, options=options)
    try:
        yield server, await server.start()
    finally:
        await server.stop()


async def register_client(
    ground: Ground, address: str, wire: WireVersion
) -> tuple[StartedClient, grpc.aio.Channel]:
    """Return a client of ours that serves sessions to SSH, and its channel."""
    channel = ground.channel(address)
    targets = () if wire is WireVersion.V0_1 else (SSH,)
    return await ground.client(address, *targets, wire=wire, channel=channel, handler=taking(echo)), channel


@pytest.mark.parametrize("wire", WireVersion)
async def test_session_on_a_dropped_connection_is_refused(ground: Ground, wire: WireVersion) -> None:
    """Its stream would use a new connection, on which the tag is unknown."""
    async with strict_server(wire, *_SHORT_AGE) as (server, address):
        _, channel = await register_client(ground, address, wire)
        await eventually(lambda: channel.get_state() is not grpc.ChannelConnectivity.READY)
        with pytest.raises(GoError, match="the client is leaving this connection"):
            await server.new_session(SSH.name, SSH.type, within=_TIMEOUT)
        assert len(server.clients) == 1
        assert not server.complaints.texts


@pytest.mark.parametrize("wire", WireVersion)
async def test_stream_that_the_server_refuses_fails_the_session(ground: Ground, wire: WireVersion) -> None:
    """The stream used another connection: the requester gets the error at once."""
    async with strict_server(wire, *_SHORT_AGE) as (server, address):
        _, channel = await register_client(ground, address, wire)
        await eventually(lambda: channel.get_state() is not grpc.ChannelConnectivity.READY)
        check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/any.Service/Method")

        async def is_session_refused() -> bool:
            await check(
                b"", timeout=_TIMEOUT
            ).code()  # any call opens a new connection, which is soon dropped as well
            with pytest.raises(GoError) as refusal:
                await server.new_session(SSH.name, SSH.type, within=_TIMEOUT)
            return "no connection associated with tag" in str(refusal.value)

        await eventually(is_session_refused)
        assert len(server.clients) == 1


@pytest.mark.parametrize("wire", WireVersion)
async def test_leaving_register_responds_first(ground: Ground, wire: WireVersion) -> None:
    """A session is pending when the client leaves: its caller gets a refusal."""
    is_requested, is_released = asyncio.Event(), asyncio.Event()

    async def accept_later(target: Target) -> AcceptedSession:
        del target
        is_requested.set()
        await is_released.wait()
        return FunctionSession(echo)

    async with strict_server(wire) as (server, address):
        targets = () if wire is WireVersion.V0_1 else (SSH,)
        tunnel_client = await ground.client(address, *targets, wire=wire, handler=accept_later)
        session = asyncio.create_task(server.new_session(SSH.name, SSH.type, within=_TIMEOUT))
        await is_requested.wait()
        finish_task = asyncio.create_task(tunnel_client.client.finish())
        await asyncio.sleep(0)
        is_released.set()
        with pytest.raises(GoError, match="the client is leaving this connection"):
            await session
        await finish_task
        await eventually(tunnel_client.task.done)
        assert not server.complaints.texts


async def test_leaving_register_keeps_open_sessions(ground: Ground) -> None:
    tunnel = TunnelServer()
    tunnel_client = await ground.client(await ground.server(tunnel), SSH, handler=taking(echo))
    stream = await tunnel.open_session(SSH)
    await tunnel_client.client.finish()
    await eventually(tunnel_client.task.done)
    assert not tunnel.targets()
    await stream.write(b"still here")
    assert await stream.read() == b"still here"
    await stream.close()
