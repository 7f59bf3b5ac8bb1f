"""One tunnel as the agent has it, against a real proxy."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio
import pytest

from fleet.nodes.agent import tunnel as agent_tunnel
from fleet.nodes.agent.auth_connection import Identity
from fleet.nodes.agent.services import AgentServices
from fleet.nodes.agent.tunnel import Tunnel, TunnelDialError
from fleet.nodes.proxy.server import Proxy
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.tunnel import agent_services
from fleet.protocol.tunnel.messages import TunnelError, WireVersion
from fleet.transport.tunnel.stream import TunnelStream
from tests.fakes.plane import Plane, channel_to
from tests.fakes.tcp import echoing
from tests.fakes.waiting import eventually

Make = Callable[..., Tunnel]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Makes tunnels of one agent, and ends them with the test."""
    made: list[Tunnel] = []

    def tunnel(
        address: str,
        *services: tuple[str, str],
        channel: grpc.aio.Channel | None = None,
        keep_alive: KeepAlive | None = None,
    ) -> Tunnel:
        identity = Identity("id-1", "agent-1")
        made.append(
            Tunnel(
                channel or channel_to(address),
                identity,
                keep_alive or KeepAlive(),
                AgentServices(identity, services, lambda: {"known": True}),
            )
        )
        return made[-1]

    yield tunnel
    for one in made:
        await one.close()


async def up(tunnel: Tunnel) -> asyncio.Task[None]:
    """Bring it up, and read its frames as an agent does."""
    await tunnel.hello()
    await tunnel.register()

    async def read() -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            while await tunnel.read() is not None:
                pass

    return asyncio.create_task(read())


async def session(proxy: Proxy, service: str) -> TunnelStream:
    """A user's session to the agent, as the proxy opens it."""
    tunnel = proxy.table.find_current("id-1")
    assert tunnel is not None
    return await proxy.tunnels.open_session(tunnel, service)


async def test_hello_then_register(plane: Plane, make: Make) -> None:
    """It learns which proxy answers, and counts there once it has registered."""
    proxy = await plane.proxy(ttl=600.0)
    tunnel = make(proxy.instance.grpc_address)
    assert await tunnel.hello() == tunnel.proxy_id == proxy.instance.flags.id
    assert len(proxy.table) == 0
    await tunnel.register()
    await eventually(lambda: len(proxy.table) == 1)


async def test_proxy_that_leaves(plane: Plane, make: Make) -> None:
    """Who is shutting down says so: the operator need not mend that."""
    proxy = await plane.proxy(ttl=600.0)
    proxy.tunnels.is_shutting_down = True
    with pytest.raises(TunnelDialError, match="shutting down") as refusal:
        await make(proxy.instance.grpc_address).hello()
    assert not refusal.value.is_refused


async def test_proxy_that_refuses(plane: Plane, make: Make) -> None:
    """A refusal is told as one: a second tunnel on one connection has no place."""
    proxy = await plane.proxy(ttl=600.0)
    channel = channel_to(proxy.instance.grpc_address)
    reading = await up(make("", channel=channel))
    with pytest.raises(TunnelDialError, match="already has a tunnel") as refusal:
        await make("", channel=channel).hello()
    assert refusal.value.is_refused
    reading.cancel()


async def test_proxy_that_is_frozen(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that accepts and says nothing is given up in time."""
    monkeypatch.setattr(agent_tunnel, "_ANSWER_WITHIN", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts; nobody reads
        tunnel = make(f"127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(TunnelDialError, match="no proxy responded in time"):
            await tunnel.hello()


async def test_register_that_is_ended(plane: Plane, make: Make) -> None:
    """The proxy's reason is the tunnel's, and Control is over too."""
    proxy = await plane.proxy(ttl=600.0)
    tunnel = make(proxy.instance.grpc_address)
    reading = await up(tunnel)
    table = proxy.table.find_current("id-1")
    assert table is not None
    assert table.register is not None
    proxy.tunnels._servers[WireVersion.V0_2].end_client(table.register, "go away")
    await eventually(reading.done)
    assert "go away" in tunnel.end_reason


async def test_sessions_are_counted(plane: Plane, make: Make) -> None:
    """A user's session counts from its asking to its end; one that was refused and the status do not."""
    proxy = await plane.proxy(ttl=600.0)
    async with echoing() as port:
        tunnel = make(proxy.instance.grpc_address, ("echo", f"127.0.0.1:{port}"), ("down", "127.0.0.1:1"))
        reading = await up(tunnel)
        stream = await session(proxy, "echo")
        assert tunnel.sessions == 1
        with pytest.raises(TunnelError, match="cannot connect to"):
            await session(proxy, "down")
        status = await session(proxy, agent_services.STATUS)
        assert await status.read() == b'{"known": true}'
        await status.close()
        assert tunnel.sessions == 1
        await stream.close()
        await eventually(lambda: tunnel.sessions == 0)
        assert not reading.done()
    reading.cancel()


async def test_retired_without_sessions(plane: Plane, make: Make) -> None:
    """Nothing holds it: it ends at once, at both ends."""
    proxy = await plane.proxy(ttl=600.0)
    tunnel = make(proxy.instance.grpc_address)
    reading = await up(tunnel)
    tunnel.retire("test")
    await eventually(reading.done)
    await eventually(lambda: len(proxy.table) == 0)


async def test_retired_with_a_session(plane: Plane, make: Make) -> None:
    """It takes no new session, serves the one it has to its last byte, and ends after it."""
    proxy = await plane.proxy(ttl=600.0)
    async with echoing() as port:
        tunnel = make(proxy.instance.grpc_address, ("echo", f"127.0.0.1:{port}"))
        reading = await up(tunnel)
        stream = await session(proxy, "echo")
        tunnel.retire("test")
        with pytest.raises(TunnelError, match="has moved to another proxy"):
            await session(proxy, "echo")
        await stream.write(b"still here")
        assert await stream.read() == b"still here"
        assert not reading.done()
        await stream.write_eof()
        assert await stream.read() == b""
        await stream.close()
        await eventually(reading.done)


async def test_closed_with_a_session(plane: Plane, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Users who are cut are counted in the log, and their end is an abort."""
    proxy = await plane.proxy(ttl=600.0)
    async with echoing() as port:
        tunnel = make(proxy.instance.grpc_address, ("echo", f"127.0.0.1:{port}"))
        reading = await up(tunnel)
        stream = await session(proxy, "echo")
        with caplog.at_level(logging.WARNING):
            await tunnel.close()
        assert "1 sessions" in caplog.text
        with pytest.raises(TunnelError):
            await stream.read()
        await eventually(reading.done)


async def test_keep_alive(plane: Plane, make: Make) -> None:
    """A ping is due within the first interval and one interval after each; silence makes it dead."""
    proxy = await plane.proxy(ttl=600.0)
    tunnel = make(proxy.instance.grpc_address, keep_alive=KeepAlive(interval=10.0, count_max=3))
    await tunnel.hello()
    now = time.monotonic()
    assert tunnel.is_ping_due(now + 10.0)
    await tunnel.ping(now)
    assert not tunnel.is_ping_due(now + 9.0)
    assert tunnel.is_ping_due(now + 10.0)
    frame: Any = await tunnel.read()
    while not frame.HasField("pong"):
        frame = await tunnel.read()
    assert frame.pong.sequence == 1
    assert not tunnel.is_dead(tunnel.last_seen_at + 29.0)
    assert tunnel.is_dead(tunnel.last_seen_at + 31.0)


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_generations_grow_whatever_the_clock_does(monkeypatch: pytest.MonkeyPatch, jump: int) -> None:
    """A proxy that still holds a dead tunnel of ours must take the new one for newer, an hour back or ahead."""
    generations, now = agent_tunnel.Generations(), time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now)
    before = [generations.next(), generations.next()]
    monkeypatch.setattr(time, "time_ns", lambda: now + jump * 10**9)
    after = [generations.next(), generations.next()]
    assert sorted({*before, *after}) == [*before, *after]
