"""One tunnel of an agent to a real proxy."""

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
from tests.fakes.tcp import serve_echo
from tests.fakes.waiting import eventually

MakeTunnel = Callable[..., Tunnel]


@pytest.fixture
async def make_tunnel() -> AsyncIterator[MakeTunnel]:
    """Yield a function that makes tunnels of one agent, which end with the test."""
    opened_tunnels: list[Tunnel] = []

    def make_one(
        address: str,
        *services: tuple[str, str],
        channel: grpc.aio.Channel | None = None,
        keep_alive: KeepAlive | None = None,
    ) -> Tunnel:
        identity = Identity("id-1", "agent-1")
        opened_tunnels.append(
            Tunnel(
                channel or channel_to(address),
                identity,
                keep_alive or KeepAlive(),
                AgentServices(identity, services, lambda: {"known": True}),
            )
        )
        return opened_tunnels[-1]

    yield make_one
    for opened_tunnel in opened_tunnels:
        await opened_tunnel.close()


async def start_tunnel(tunnel: Tunnel) -> asyncio.Task[None]:
    """Open and register a tunnel, and read its frames in a task as an agent does."""
    await tunnel.exchange_hellos()
    await tunnel.register()

    async def read() -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            while await tunnel.read() is not None:
                pass

    return asyncio.create_task(read())


async def open_session(proxy: Proxy, service: str) -> TunnelStream:
    """Open a user's session to the agent, as the proxy does."""
    tunnel = proxy.table.find_current("id-1")
    assert tunnel is not None
    return await proxy.tunnels.open_session(tunnel, service)


async def test_tunnel_counts_after_registration(plane: Plane, make_tunnel: MakeTunnel) -> None:
    """The hello response names the proxy; the proxy lists the tunnel once it is registered."""
    proxy = await plane.proxy(ttl=600.0)
    tunnel = make_tunnel(proxy.instance.grpc_address)
    assert await tunnel.exchange_hellos() == tunnel.proxy_id == proxy.instance.flags.id
    assert len(proxy.table) == 0
    await tunnel.register()
    await eventually(lambda: len(proxy.table) == 1)


async def test_proxy_that_shuts_down_is_no_refusal(plane: Plane, make_tunnel: MakeTunnel) -> None:
    """The error says "shutting down" and needs no action of an operator."""
    proxy = await plane.proxy(ttl=600.0)
    proxy.tunnels.is_shutting_down = True
    with pytest.raises(TunnelDialError, match="shutting down") as refusal:
        await make_tunnel(proxy.instance.grpc_address).exchange_hellos()
    assert not refusal.value.is_refused


async def test_second_tunnel_on_one_connection_is_refused(plane: Plane, make_tunnel: MakeTunnel) -> None:
    """The dial error is marked as a refusal."""
    proxy = await plane.proxy(ttl=600.0)
    channel = channel_to(proxy.instance.grpc_address)
    read_task = await start_tunnel(make_tunnel("", channel=channel))
    with pytest.raises(TunnelDialError, match="already has a tunnel") as refusal:
        await make_tunnel("", channel=channel).exchange_hellos()
    assert refusal.value.is_refused
    read_task.cancel()


async def test_hello_to_silent_port_times_out(
    make_tunnel: MakeTunnel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port that accepts connections and never responds is given up."""
    monkeypatch.setattr(agent_tunnel, "_RESPONSE_TIMEOUT", 0.2)
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as silent:  # the kernel accepts the connection; no program reads
        tunnel = make_tunnel(f"127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(TunnelDialError, match="no proxy responded in time"):
            await tunnel.exchange_hellos()


async def test_tunnel_ends_with_the_reason_of_the_proxy(plane: Plane, make_tunnel: MakeTunnel) -> None:
    """The end of the Register call ends the Control call as well."""
    proxy = await plane.proxy(ttl=600.0)
    tunnel = make_tunnel(proxy.instance.grpc_address)
    read_task = await start_tunnel(tunnel)
    proxy_tunnel = proxy.table.find_current("id-1")
    assert proxy_tunnel is not None
    assert proxy_tunnel.register_client is not None
    proxy.tunnels._servers[WireVersion.V0_2].end_client(proxy_tunnel.register_client, "go away")
    await eventually(read_task.done)
    # The ends of the two calls arrive in any order.
    await eventually(lambda: "go away" in tunnel.end_reason)


async def test_only_user_sessions_are_counted(plane: Plane, make_tunnel: MakeTunnel) -> None:
    """A user's session counts until it ends; a refused session and the status do not count."""
    proxy = await plane.proxy(ttl=600.0)
    async with serve_echo() as port:
        tunnel = make_tunnel(
            proxy.instance.grpc_address, ("echo", f"127.0.0.1:{port}"), ("down", "127.0.0.1:1")
        )
        read_task = await start_tunnel(tunnel)
        stream = await open_session(proxy, "echo")
        assert tunnel.session_count == 1
        with pytest.raises(TunnelError, match="cannot connect to"):
            await open_session(proxy, "down")
        status = await open_session(proxy, agent_services.STATUS_SERVICE)
        assert await status.read() == b'{"known": true}'
        await status.close()
        assert tunnel.session_count == 1
        await stream.close()
        await eventually(lambda: tunnel.session_count == 0)
        assert not read_task.done()
    read_task.cancel()


async def test_retired_tunnel_without_sessions_ends_at_once(plane: Plane, make_tunnel: MakeTunnel) -> None:
    """Agent and proxy both end the tunnel."""
    proxy = await plane.proxy(ttl=600.0)
    tunnel = make_tunnel(proxy.instance.grpc_address)
    read_task = await start_tunnel(tunnel)
    tunnel.retire("test")
    await eventually(read_task.done)
    await eventually(lambda: len(proxy.table) == 0)


async def test_retired_tunnel_serves_its_session_to_the_end(plane: Plane, make_tunnel: MakeTunnel) -> None:
    """The tunnel accepts no new session and ends after the last byte of the old one."""
    proxy = await plane.proxy(ttl=600.0)
    async with serve_echo() as port:
        tunnel = make_tunnel(proxy.instance.grpc_address, ("echo", f"127.0.0.1:{port}"))
        read_task = await start_tunnel(tunnel)
        stream = await open_session(proxy, "echo")
        tunnel.retire("test")
        with pytest.raises(TunnelError, match="has moved to another proxy"):
            await open_session(proxy, "echo")
        await stream.write(b"still here")
        assert await stream.read() == b"still here"
        assert not read_task.done()
        await stream.write_eof()
        assert await stream.read() == b""
        await stream.close()
        await eventually(read_task.done)


async def test_closed_tunnel_aborts_its_session(
    plane: Plane, make_tunnel: MakeTunnel, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the number of sessions, and the user's stream ends with an error."""
    proxy = await plane.proxy(ttl=600.0)
    async with serve_echo() as port:
        tunnel = make_tunnel(proxy.instance.grpc_address, ("echo", f"127.0.0.1:{port}"))
        read_task = await start_tunnel(tunnel)
        stream = await open_session(proxy, "echo")
        with caplog.at_level(logging.WARNING):
            await tunnel.close()
        assert "1 sessions" in caplog.text
        with pytest.raises(TunnelError):
            await stream.read()
        await eventually(read_task.done)


async def test_ping_is_due_every_interval_and_silence_makes_tunnel_dead(
    plane: Plane, make_tunnel: MakeTunnel
) -> None:
    """The first ping is due within the first interval; three intervals of silence make the tunnel dead."""
    proxy = await plane.proxy(ttl=600.0)
    tunnel = make_tunnel(proxy.instance.grpc_address, keep_alive=KeepAlive(interval=10.0, count_max=3))
    await tunnel.exchange_hellos()
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
def test_generations_grow_after_a_clock_jump(monkeypatch: pytest.MonkeyPatch, jump: int) -> None:
    """A proxy that still has the agent's dead tunnel must accept the new tunnel as newer."""
    generations, now = agent_tunnel.Generations(), time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now)
    generations_before = [generations.next(), generations.next()]
    monkeypatch.setattr(time, "time_ns", lambda: now + jump * 10**9)
    generations_after = [generations.next(), generations.next()]
    assert sorted({*generations_before, *generations_after}) == [*generations_before, *generations_after]
