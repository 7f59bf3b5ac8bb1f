"""Tunnels that an agent lets go: users on them finish, and nobody new comes."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from fleet.nodes.agent import tunnel as agent_tunnel
from fleet.nodes.agent.program import Agent
from fleet.nodes.proxy.server import Proxy
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery.graceful_closing import ClosingPolicy
from fleet.protocol.recovery.tunnel_settings import TunnelSettings
from fleet.transport.tunnel.stream import TunnelStream
from tests.fakes.plane import Plane
from tests.fakes.waiting import eventually
from tests.fleet.nodes.agent.test_tunnel import echoing

FAST = KeepAlive(interval=0.5, count_max=100)


def follow(agent: Agent, connections: int) -> None:
    """As if the networking config said so."""
    closing = ClosingPolicy(graceful=True, wait=(0.2, 0.4))
    agent._apply_settings(TunnelSettings(connections, FAST, closing))


async def session(proxy: Proxy, agent: Agent) -> TunnelStream:
    tunnel = proxy.table.find_current(agent.identity.id)
    assert tunnel is not None
    return await proxy.tunnels.open_session(tunnel, "echo")


async def echoes(stream: TunnelStream) -> bool:
    await stream.write(b"still here")
    return await stream.read() == b"still here"


async def test_users_finish_on_a_tunnel_in_excess(plane: Plane) -> None:
    """Two tunnels where one is wanted: one takes nobody new, is offered to nobody, and ends with its user."""
    auth = await plane.auth(ttl=600.0)
    proxies = [await plane.proxy(f"proxy-{number}", ttl=60.0) for number in range(2)]
    where = [proxy.instance.grpc_address for proxy in proxies]
    async with echoing() as port:
        group = await plane.agents(
            auth.instance.grpc_address, where, connections=2, services=(("echo", f"127.0.0.1:{port}"),)
        )
        (agent,) = group.agents
        await eventually(lambda: all(len(proxy.table) == 1 for proxy in proxies))
        streams = {proxy: await session(proxy, agent) for proxy in proxies}
        follow(agent, 1)
        await eventually(lambda: sum(len(proxy.table) for proxy in proxies) == 1)
        (left,) = [proxy for proxy in proxies if not len(proxy.table)]
        assert left.table.find(agent.identity.name) == []
        assert sorted(tunnel.retire_reason for tunnel in agent.tunnels.tunnels) == ["", "excess"]
        for stream in streams.values():
            assert await echoes(stream)
        assert len(agent.tunnels.tunnels) == 2
        await streams[left].close()
        await eventually(lambda: len(agent.tunnels.tunnels) == 1)
        (kept,) = [proxy for proxy in proxies if proxy is not left]
        assert await echoes(streams[kept])
        await streams[kept].close()


async def test_reconnect_leaves_users_where_they_are(plane: Plane) -> None:
    """Advised, the agent has a tunnel elsewhere, and the old one stays for its user."""
    auth = await plane.auth(ttl=600.0)
    proxies = [await plane.proxy(f"proxy-{number}", ttl=60.0) for number in range(2)]
    where = [proxy.instance.grpc_address for proxy in proxies]
    async with echoing() as port:
        group = await plane.agents(
            auth.instance.grpc_address, where, services=(("echo", f"127.0.0.1:{port}"),)
        )
        (agent,) = group.agents
        await eventually(lambda: sum(len(proxy.table) for proxy in proxies) == 1)
        old, new = sorted(proxies, key=lambda proxy: -len(proxy.table))
        stream = await session(old, agent)
        await eventually(lambda: len(agent.snapshot().tracked_proxies) == 2)
        assert old.tunnels.reconnects.advise_agents("x", "", (), 0).advised == 1
        await eventually(lambda: len(new.table) == 1 and len(old.table) == 0)
        assert await echoes(stream)
        await stream.close()
        await eventually(lambda: agent.tunnels.proxies == (new.instance.flags.id,))


async def test_last_bytes_on_a_tunnel_that_was_let_go(
    plane: Plane, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy ends the tunnel after its last session: what is still on its way arrives, and nobody is called cut."""
    monkeypatch.setattr(agent_tunnel, "_FINISH_WITHIN", 60.0)
    auth, proxy = await plane.auth(ttl=600.0), await plane.proxy(ttl=60.0)
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.set_result(await reader.read())
        writer.close()

    async with await asyncio.start_server(keep, "127.0.0.1", 0) as service:
        port = service.sockets[0].getsockname()[1]
        group = await plane.agents(
            auth.instance.grpc_address,
            [proxy.instance.grpc_address],
            services=(("echo", f"127.0.0.1:{port}"),),
        )
        (agent,) = group.agents
        await eventually(lambda: len(proxy.table) == 1)
        tunnel = proxy.table.find_current(agent.identity.id)
        assert tunnel is not None
        stream = await session(proxy, agent)
        proxy.table.begin_session(tunnel, stream)
        (held,) = agent.tunnels.tunnels
        held.retire("excess")
        await eventually(lambda: tunnel.is_displaced)

        with caplog.at_level(logging.WARNING):
            proxy.table.end_session(tunnel, stream, time.monotonic())
            await eventually(lambda: held not in agent.tunnels.tunnels)
            await stream.write(b"last words")
            await stream.close()
            async with asyncio.timeout(60):
                assert await received == b"last words"
            await eventually(lambda: not agent.tunnels._closing_tasks)
        assert "tunnel.broken" not in caplog.text
