"""Retired tunnels of an agent: their sessions finish, and no new session is accepted."""

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
from tests.fakes.tcp import serve_echo
from tests.fakes.waiting import eventually

FAST_KEEP_ALIVE = KeepAlive(interval=0.5, count_max=100)


def apply_settings(agent: Agent, connections: int) -> None:
    """Apply settings as if they came from the networking config."""
    closing = ClosingPolicy(graceful=True, wait_bounds=(0.2, 0.4))
    agent._apply_settings(TunnelSettings(connections, FAST_KEEP_ALIVE, closing))


async def open_session(proxy: Proxy, agent: Agent) -> TunnelStream:
    tunnel = proxy.table.find_current(agent.identity.id)
    assert tunnel is not None
    return await proxy.tunnels.open_session(tunnel, "echo")


async def is_echoing(stream: TunnelStream) -> bool:
    await stream.write(b"still here")
    return await stream.read() == b"still here"


async def test_session_finishes_on_excess_tunnel(plane: Plane) -> None:
    """The excess tunnel accepts no new session, is not offered to users, and ends with its last session."""
    auth = await plane.auth(ttl=600.0)
    proxies = [await plane.proxy(f"proxy-{number}", ttl=60.0) for number in range(2)]
    proxy_addresses = [proxy.instance.grpc_address for proxy in proxies]
    async with serve_echo() as port:
        group = await plane.agents(
            auth.instance.grpc_address,
            proxy_addresses,
            connections=2,
            services=(("echo", f"127.0.0.1:{port}"),),
        )
        (agent,) = group.agents
        await eventually(lambda: all(len(proxy.table) == 1 for proxy in proxies))
        streams = {proxy: await open_session(proxy, agent) for proxy in proxies}
        apply_settings(agent, 1)
        await eventually(lambda: sum(len(proxy.table) for proxy in proxies) == 1)
        (left_proxy,) = [proxy for proxy in proxies if not len(proxy.table)]
        assert left_proxy.table.find_by_id_or_name(agent.identity.name) == []
        assert sorted(tunnel.retire_reason for tunnel in agent.tunnels.tunnels) == ["", "excess"]
        for stream in streams.values():
            assert await is_echoing(stream)
        assert len(agent.tunnels.tunnels) == 2
        await streams[left_proxy].close()
        await eventually(lambda: len(agent.tunnels.tunnels) == 1)
        (kept_proxy,) = [proxy for proxy in proxies if proxy is not left_proxy]
        assert await is_echoing(streams[kept_proxy])
        await streams[kept_proxy].close()


async def test_advised_agent_keeps_old_tunnel_for_its_session(plane: Plane) -> None:
    """The agent connects to the other proxy, and the old tunnel stays open until the session ends."""
    auth = await plane.auth(ttl=600.0)
    proxies = [await plane.proxy(f"proxy-{number}", ttl=60.0) for number in range(2)]
    proxy_addresses = [proxy.instance.grpc_address for proxy in proxies]
    async with serve_echo() as port:
        group = await plane.agents(
            auth.instance.grpc_address, proxy_addresses, services=(("echo", f"127.0.0.1:{port}"),)
        )
        (agent,) = group.agents
        await eventually(lambda: sum(len(proxy.table) for proxy in proxies) == 1)
        old, new = sorted(proxies, key=lambda proxy: -len(proxy.table))
        stream = await open_session(old, agent)
        await eventually(lambda: len(agent.snapshot().tracked_proxies) == 2)
        assert old.tunnels.reconnect_advisor.advise_agents("x", "", (), 0).advised_count == 1
        await eventually(lambda: len(new.table) == 1 and len(old.table) == 0)
        assert await is_echoing(stream)
        await stream.close()
        await eventually(lambda: agent.tunnels.proxy_ids == (new.instance.flags.id,))


async def test_last_bytes_arrive_on_retired_tunnel(
    plane: Plane, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy ends the tunnel after its last session; bytes in transit arrive, and the log has no broken tunnel."""
    monkeypatch.setattr(agent_tunnel, "_FINISH_TIMEOUT", 60.0)
    auth, proxy = await plane.auth(ttl=600.0), await plane.proxy(ttl=60.0)
    received_bytes: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def keep_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received_bytes.set_result(await reader.read())
        writer.close()

    async with await asyncio.start_server(keep_bytes, "127.0.0.1", 0) as service:
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
        stream = await open_session(proxy, agent)
        proxy.table.begin_session(tunnel, stream)
        (agent_tunnel_to_retire,) = agent.tunnels.tunnels
        agent_tunnel_to_retire.retire("excess")
        await eventually(lambda: tunnel.is_displaced)

        with caplog.at_level(logging.WARNING):
            proxy.table.end_session(tunnel, stream, time.monotonic())
            await eventually(lambda: agent_tunnel_to_retire not in agent.tunnels.tunnels)
            await stream.write(b"last words")
            await stream.close()
            async with asyncio.timeout(60):
                assert await received_bytes == b"last words"
            await eventually(lambda: not agent.tunnels._closing_tasks)
        assert "tunnel.broken" not in caplog.text
