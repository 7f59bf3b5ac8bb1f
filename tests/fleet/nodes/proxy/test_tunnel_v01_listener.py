"""A proxy's listener for tunnels of version 0.1, with agents and a client as strict as the Go code of that version."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fleet.nodes.agent.program import AgentGroup
from fleet.nodes.proxy.reverse_tunnels import key_of
from fleet.nodes.proxy.server import Proxy
from fleet.nodes.shared import lifecycle
from fleet.protocol.recovery import auth_path
from fleet.protocol.tunnel import agent_services
from fleet.protocol.tunnel.messages import TunnelError, WireVersion
from fleet.transport.tunnel.client import RegisterEndedError, TunnelClient
from fleet.transport.tunnel.stream import TunnelStream
from fleet.wire import fleet_pb2, fleet_pb2_grpc
from tests.fakes import strict_stream
from tests.fakes.plane import Plane, channel_to
from tests.fakes.strict_client import StrictClient
from tests.fakes.strict_messages import GoError
from tests.fakes.tcp import serve_echo
from tests.fakes.waiting import eventually

ANY_PORT = ("127.0.0.1", 0)


def listener_of(proxy: Proxy) -> str:
    assert proxy.tunnel_v01 is not None
    return proxy.tunnel_v01.address


async def open_session(proxy: Proxy, agent_id: str, service: str) -> TunnelStream:
    tunnel = proxy.table.find_current(agent_id)
    assert tunnel is not None
    async with asyncio.timeout(60):
        return await proxy.tunnels.open_session(tunnel, service)


@contextlib.asynccontextmanager
async def keep_registered(client: StrictClient) -> AsyncIterator[asyncio.Task[None]]:
    """Keep a strict client registered, and check at the end that it has no complaints."""
    task = asyncio.create_task(client.run(), name="strict client")
    try:
        async with asyncio.timeout(60):
            await client.up.wait()
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, GoError):
            await task
    assert not client.complaints.texts


@pytest.mark.parametrize("wire", WireVersion)
async def test_agent_serves_sessions_over_either_version(plane: Plane, wire: WireVersion) -> None:
    """Discovery arrives, sessions carry bytes, refusals have messages, and the tunnel ends in order."""
    auth = await plane.auth(ttl=600.0)
    proxy = await plane.proxy(ttl=600.0, tunnel_v01_listen=ANY_PORT)
    address = listener_of(proxy) if wire is WireVersion.V0_1 else proxy.instance.grpc_address
    async with serve_echo() as port:
        group = await plane.agents(
            auth.instance.grpc_address, [address], services=(("echo", f"127.0.0.1:{port}"),), tunnel_wire=wire
        )
        (agent,) = group.agents
        await eventually(lambda: len(proxy.table) == 1)
        await eventually(lambda: agent.snapshot().tracked_proxies == (proxy.instance.flags.id,))
        stream = await open_session(proxy, agent.identity.id, "echo")
        await stream.write(b"over this version")
        assert await stream.read() == b"over this version"
        await stream.close()
        status = await open_session(proxy, agent.identity.id, agent_services.STATUS_SERVICE)
        assert json.loads(await status.read())["name"] == "agent-1"
        await status.close()
        with pytest.raises(TunnelError, match="exposes no service 'web'"):
            await open_session(proxy, agent.identity.id, "web")
    await plane.stop(group)
    await eventually(lambda: len(proxy.table) == 0)


async def test_agents_of_both_versions_have_tunnels_to_one_proxy(plane: Plane) -> None:
    """Each uses its own listener; the proxy lists both tunnels, and its shutdown ends both."""
    auth = await plane.auth(ttl=600.0)
    proxy = await plane.proxy(ttl=600.0, tunnel_v01_listen=ANY_PORT)
    groups: list[AgentGroup] = [
        await plane.agents(auth.instance.grpc_address, [proxy.instance.grpc_address], name_prefix="new"),
        await plane.agents(
            auth.instance.grpc_address, [listener_of(proxy)], name_prefix="old", tunnel_wire=WireVersion.V0_1
        ),
    ]
    await eventually(lambda: len(proxy.table) == 2)
    assert {tunnel.agent_name: tunnel.wire for tunnel in proxy.table.offered_tunnels} == {
        "new-1": WireVersion.V0_2,
        "old-1": WireVersion.V0_1,
    }
    await plane.stop(proxy)
    await eventually(lambda: not any(group.agents[0].tunnels.tunnels for group in groups))


async def test_second_tunnel_of_version_0_1_agent_displaces_the_first(plane: Plane) -> None:
    """The first tunnel has no sessions and ends."""
    proxy = await plane.proxy(ttl=600.0, tunnel_v01_listen=ANY_PORT)
    async with stock_agent(proxy) as first:
        (old,) = proxy.table.offered_tunnels
        async with stock_agent(proxy):
            await eventually(lambda: proxy.table.find_current("router-7") not in (None, old))
            await eventually(first.done)
            assert len(proxy.table) == 1


@contextlib.asynccontextmanager
async def stock_agent(proxy: Proxy, *, handles: bool = True) -> AsyncIterator[asyncio.Task[None]]:
    """Yield the task of a strict client whose connection has a Control stream of the agent `router-7`."""
    channel = channel_to(listener_of(proxy))
    control: Any = fleet_pb2_grpc.TunnelControlStub(channel).Control()
    hello = fleet_pb2.AgentHello(agent_id="router-7", name="router-7", version="1")
    await control.write(fleet_pb2.AgentFrame(hello=hello))
    async with asyncio.timeout(60):
        assert (await control.read()).hello.proxy_id == proxy.instance.flags.id
    client = StrictClient(channel, WireVersion.V0_1, handler=strict_stream.echo if handles else None)
    try:
        async with keep_registered(client) as task:
            await eventually(lambda: len(proxy.table) == 1 or task.done())
            yield task
    finally:
        control.cancel()
        await channel.close()


async def test_stock_client_with_control_hello_serves_sessions(plane: Plane) -> None:
    """After the hello on its connection, the client without metadata serves sessions by name."""
    proxy = await plane.proxy(ttl=600.0, tunnel_v01_listen=ANY_PORT)
    async with stock_agent(proxy):
        stream = await open_session(proxy, "router-7", "anything")
        await stream.write(b"to a stock client")
        assert await stream.read() == b"to a stock client"
        await stream.close()
    await eventually(lambda: len(proxy.table) == 0)


async def test_agent_without_a_handler_has_no_tunnel(plane: Plane) -> None:
    """The proxy ends an agent whose capabilities have no session handler."""
    proxy = await plane.proxy(ttl=600.0, tunnel_v01_listen=ANY_PORT)
    async with stock_agent(proxy, handles=False) as task:
        await eventually(task.done)
    assert len(proxy.table) == 0


async def test_stock_client_without_hello_reaches_targets_of_the_proxy(plane: Plane) -> None:
    """Like a client of version 0.2 it may open `_proxy` and `_auth` only."""
    proxy = await plane.proxy(ttl=600.0, tunnel_v01_listen=ANY_PORT)
    channel = channel_to(listener_of(proxy))
    client = StrictClient(channel, WireVersion.V0_1, handler=strict_stream.echo)
    async with keep_registered(client):
        stream = await client.new_session(auth_path.PROXY_ID_TARGET.name)
        async with asyncio.timeout(60):
            assert await stream.read_all() == proxy.instance.flags.id.encode()
        assert len(proxy.table) == 0
    await channel.close()


async def test_session_to_unknown_target_of_the_proxy_is_refused(plane: Plane) -> None:
    """The error names the target."""
    proxy = await plane.proxy(ttl=600.0, tunnel_v01_listen=ANY_PORT)
    channel = channel_to(listener_of(proxy))
    client = StrictClient(channel, WireVersion.V0_1, handler=strict_stream.echo)
    async with keep_registered(client):
        with pytest.raises(GoError, match=r"target _status\.agent-1 is not registered"):
            await client.new_session("_status.agent-1")
    await channel.close()


@pytest.mark.parametrize("wire", WireVersion)
async def test_client_of_the_other_version_is_refused(plane: Plane, wire: WireVersion) -> None:
    """A client whose metadata has a version is ended at the listener of the other version."""
    proxy = await plane.proxy(ttl=600.0, tunnel_v01_listen=ANY_PORT)
    address = proxy.instance.grpc_address if wire is WireVersion.V0_1 else listener_of(proxy)
    channel = channel_to(address)
    async with asyncio.timeout(60):
        with pytest.raises(RegisterEndedError) as caught:
            await TunnelClient(channel, wire).run()
    assert "supports only wire version" in str(caught.value)
    await channel.close()


def count_failed_dials(group: AgentGroup) -> float:
    return group.registry.get_sample_value("refloat_agent_dials_total", {"outcome": "failed"}) or 0.0


async def test_agent_at_the_listener_of_the_other_version_fails(plane: Plane) -> None:
    """Each dial counts as failed, and the proxy has no tunnel."""
    auth = await plane.auth(ttl=600.0)
    proxy = await plane.proxy(ttl=600.0, tunnel_v01_listen=ANY_PORT)
    new = await plane.agents(auth.instance.grpc_address, [listener_of(proxy)], name_prefix="new")
    old = await plane.agents(
        auth.instance.grpc_address,
        [proxy.instance.grpc_address],
        name_prefix="old",
        tunnel_wire=WireVersion.V0_1,
    )
    await eventually(lambda: count_failed_dials(new) >= 2 and count_failed_dials(old) >= 2)
    assert len(proxy.table) == 0


async def test_port_in_use_stops_the_start(plane: Plane) -> None:
    """The error names the port."""
    first = await plane.proxy(ttl=600.0, tunnel_v01_listen=ANY_PORT)
    host, _, port = listener_of(first).rpartition(":")
    with pytest.raises(
        lifecycle.NodeStartError, match=f"cannot listen on {host}:{port} for tunnels of version 0.1"
    ):
        await plane.proxy("proxy-2", ttl=600.0, tunnel_v01_listen=(host, int(port)))


async def test_ready_line_and_restart_name_the_listener(plane: Plane) -> None:
    """The ready line and the flags for a restart have the address if the flag is set."""
    proxy = await plane.proxy(ttl=600.0, tunnel_v01_listen=ANY_PORT)
    assert proxy.ready_fields()["tunnel_v01"] == listener_of(proxy)
    assert proxy.listen_flags()[-2:] == ["--tunnel-v01-listen", listener_of(proxy)]
    plain = await plane.proxy("proxy-2", ttl=600.0)
    assert "tunnel_v01" not in plain.ready_fields()
    assert "--tunnel-v01-listen" not in plain.listen_flags()


def test_connection_keys_of_the_two_listeners_differ() -> None:
    """One host and port may have a connection to each listener."""
    peer = "ipv4:127.0.0.1:5"
    assert key_of(peer, WireVersion.V0_2) == peer
    assert key_of(peer, WireVersion.V0_1) != peer
