"""A Register stream that a client leaves, or whose connection its server lets go: whoever waits is answered at once."""

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
from tests.fakes.strict_server import StrictServer
from tests.fakes.strict_words import GoError
from tests.fakes.tunnel import SSH, Ground, Running, echo, taking
from tests.fakes.waiting import eventually

#: The server lets go of a connection soon, and the streams on it live on.
_AGED = (("grpc.max_connection_age_ms", 500), ("grpc.max_connection_age_grace_ms", 60_000))
_WITHIN = 60.0


@contextlib.asynccontextmanager
async def strict_server(
    wire: WireVersion, *options: tuple[str, int]
) -> AsyncIterator[tuple[StrictServer, str]]:
    """A server of other make, which knows a tag on its own connection only."""
    server = StrictServer(wire, options=options)
    try:
        yield server, await server.start()
    finally:
        await server.stop()


async def registered(ground: Ground, address: str, wire: WireVersion) -> tuple[Running, grpc.aio.Channel]:
    """A client of ours that serves sessions to SSH."""
    channel = ground.channel(address)
    targets = () if wire is WireVersion.V0_1 else (SSH,)
    return await ground.client(address, *targets, wire=wire, channel=channel, handler=taking(echo)), channel


@pytest.mark.parametrize("wire", WireVersion)
async def test_session_on_a_connection_that_the_server_let_go(ground: Ground, wire: WireVersion) -> None:
    """Its stream would ride a new connection, where its tag names nothing: the session is refused at once."""
    async with strict_server(wire, *_AGED) as (server, address):
        _, channel = await registered(ground, address, wire)
        await eventually(lambda: channel.get_state() is not grpc.ChannelConnectivity.READY)
        with pytest.raises(GoError, match="the client is leaving this connection"):
            await server.new_session(SSH.name, SSH.type, within=_WITHIN)
        assert len(server.clients) == 1
        assert not server.complaints.heard


@pytest.mark.parametrize("wire", WireVersion)
async def test_stream_that_the_server_does_not_know_is_a_refusal(ground: Ground, wire: WireVersion) -> None:
    """The stream came by another connection and is ended: who asked for the session hears of it at once."""
    async with strict_server(wire, *_AGED) as (server, address):
        _, channel = await registered(ground, address, wire)
        await eventually(lambda: channel.get_state() is not grpc.ChannelConnectivity.READY)
        check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/any.Service/Method")

        async def is_refused_by_the_server() -> bool:
            await check(
                b"", timeout=_WITHIN
            ).code()  # any call makes a new connection; soon that is let go as well
            with pytest.raises(GoError) as refusal:
                await server.new_session(SSH.name, SSH.type, within=_WITHIN)
            return "no connection associated with tag" in str(refusal.value)

        await eventually(is_refused_by_the_server)
        assert len(server.clients) == 1


@pytest.mark.parametrize("wire", WireVersion)
async def test_register_that_is_left_answers_first(ground: Ground, wire: WireVersion) -> None:
    """A session is being set up when the client leaves: its caller is answered, not left to wait for ever."""
    asked, let_go = asyncio.Event(), asyncio.Event()

    async def take(target: Target) -> AcceptedSession:
        del target
        asked.set()
        await let_go.wait()
        return FunctionSession(echo)

    async with strict_server(wire) as (server, address):
        targets = () if wire is WireVersion.V0_1 else (SSH,)
        ours = await ground.client(address, *targets, wire=wire, handler=take)
        session = asyncio.create_task(server.new_session(SSH.name, SSH.type, within=_WITHIN))
        await asked.wait()
        finishing = asyncio.create_task(ours.client.finish())
        await asyncio.sleep(0)
        let_go.set()
        with pytest.raises(GoError, match="the client is leaving this connection"):
            await session
        await finishing
        await eventually(ours.task.done)
        assert not server.complaints.heard


async def test_register_that_is_left_keeps_its_sessions(ground: Ground) -> None:
    """A session that is open goes on after its Register stream has ended in an orderly way."""
    tunnel = TunnelServer()
    ours = await ground.client(await ground.server(tunnel), SSH, handler=taking(echo))
    stream = await tunnel.open_session(SSH)
    await ours.client.finish()
    await eventually(ours.task.done)
    assert not tunnel.targets()
    await stream.write(b"still here")
    assert await stream.read() == b"still here"
    await stream.close()
