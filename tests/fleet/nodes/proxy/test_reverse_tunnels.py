"""Tunnels of two streams: real agents and fake agents with a real proxy."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from fleet.nodes.agent.program import Agent
from fleet.nodes.proxy.reverse_tunnels import TunnelControlServicer
from fleet.nodes.proxy.server import Proxy
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.retry.grpc_http2 import Status
from fleet.protocol.tunnel import agent_services
from fleet.protocol.tunnel.messages import Target, TunnelError
from fleet.wire import fleet_pb2
from tests.fakes.agents import Agents, FakeAgent
from tests.fakes.plane import Plane
from tests.fakes.raw_calls import call, deaf_connection
from tests.fakes.waiting import eventually


async def start_agent(plane: Plane, proxy: Proxy, **agent_flags: Any) -> Agent:
    auth = await plane.auth(ttl=600.0)
    group = await plane.agents(auth.instance.grpc_address, [proxy.instance.grpc_address], **agent_flags)
    (agent,) = group.agents
    await eventually(lambda: len(proxy.table) == len(agent.tunnels.tunnels) == 1)
    return agent


async def read_status(proxy: Proxy, agent: Agent) -> dict[str, Any]:
    """Return the status document that the agent sends through its tunnel."""
    tunnel = proxy.table.find_current(agent.identity.id)
    assert tunnel is not None
    stream = await proxy.tunnels.open_session(tunnel, agent_services.STATUS_SERVICE)
    content = b""
    while part := await stream.read():
        content += part
    await stream.close()
    document: dict[str, Any] = json.loads(content)
    return document


async def test_status_is_read_through_the_tunnel(plane: Plane) -> None:
    """The agent sends one JSON document and ends the session."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await start_agent(plane, proxy, services=(("web", "127.0.0.1:1"),))
    await eventually(lambda: agent.heartbeats.policy is not None)
    await eventually(lambda: bool(agent.snapshot().tracked_proxies))
    document = await read_status(proxy, agent)
    assert document["name"] == "agent-1"
    assert document["services"] == ["web"]
    assert document["tracker"]["claimed_proxies"] == [proxy.instance.flags.id]
    assert [entry["proxy_id"] for entry in document["tracker"]["proxies"]] == [proxy.instance.flags.id]
    assert document["policy"]["mode"] == "pick_first"
    assert [tunnel["sessions"] for tunnel in document["tunnels"]] == [0]


async def test_session_to_unknown_service_is_refused_by_the_agent(plane: Plane) -> None:
    """The agent's error reaches the caller, and the tunnel stays open."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await start_agent(plane, proxy)
    tunnel = proxy.table.find_current(agent.identity.id)
    assert tunnel is not None
    with pytest.raises(TunnelError, match=r"exposes no service 'web'; exposed services: none"):
        await proxy.tunnels.open_session(tunnel, "web")
    assert len(proxy.table) == 1


async def test_tunnel_counts_from_registration(plane: Plane, agents: Agents) -> None:
    """A hello without Register does not count."""
    proxy = await plane.proxy(ttl=600.0)
    agent = FakeAgent(proxy, "a")
    agents.fake_agents.append(agent)
    await agent.hello()
    assert len(proxy.table) == 0
    await agent.join()
    assert len(proxy.table) == 1


async def test_register_needs_the_hello_of_the_same_agent(plane: Plane, agents: Agents) -> None:
    """A client without a hello, or with the hello of another agent, may not register."""
    proxy = await plane.proxy(ttl=600.0)
    silent_agent, other_agent = FakeAgent(proxy, "a"), FakeAgent(proxy, "b")
    agents.fake_agents += [silent_agent, other_agent]
    with pytest.raises(TunnelError):
        await silent_agent.join()
    assert "send a hello" in await silent_agent.await_register_end()
    await other_agent.send(hello=fleet_pb2.AgentHello(agent_id="c", name="c"))
    await other_agent.read()
    with pytest.raises(TunnelError):
        await other_agent.join()
    assert "send a hello" in await other_agent.await_register_end()
    assert len(proxy.table) == 0


async def test_agent_registers_its_own_services_only(plane: Plane, agents: Agents) -> None:
    """Targets of other agents are refused."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await agents.connect(proxy, "a")
    await agent.register.add_target(Target("web.a"))
    for name in ("web.b", "_status.b", "_other.a", "web"):
        with pytest.raises(TunnelError, match="may not be registered"):
            await agent.register.add_target(Target(name))
    assert len(proxy.table) == 1


async def test_end_of_control_ends_register(plane: Plane, agents: Agents) -> None:
    """The proxy ends the Register stream of an agent whose Control stream has ended."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await agents.connect(proxy, "a")
    agent.end_control()
    assert "Control" in await agent.await_register_end()
    assert len(proxy.table) == 0


async def test_end_of_register_ends_control(plane: Plane, agents: Agents) -> None:
    """The proxy ends the Control stream of an agent whose Register stream has ended."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await agents.connect(proxy, "a")
    agent.register.stop()
    assert await agent.code() is grpc.StatusCode.ABORTED
    assert len(proxy.table) == 0


async def test_removed_status_target_ends_the_tunnel(plane: Plane, agents: Agents) -> None:
    """An agent that removes its status target has no tunnel any more."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await agents.connect(proxy, "a")
    await agent.register.remove_target(agent_services.target_of(agent_services.STATUS_SERVICE, "a"))
    assert await agent.code() is grpc.StatusCode.ABORTED
    assert len(proxy.table) == 0


async def test_second_tunnel_on_one_connection_is_refused(plane: Plane, agents: Agents) -> None:
    """A connection has at most one tunnel."""
    proxy = await plane.proxy(ttl=600.0)
    first = await agents.connect(proxy, "a")
    second = FakeAgent(proxy, "b", channel=first.channel)
    await second.send(hello=fleet_pb2.AgentHello(agent_id="b", name="b"))
    assert await second.code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("stream_name", ["control", "register"])
async def test_agent_dials_again_when_it_loses_a_stream(plane: Plane, stream_name: str) -> None:
    """At the agent, too, the end of one stream ends the other."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await start_agent(plane, proxy)
    (tunnel,) = agent.tunnels.tunnels
    if stream_name == "control":
        tunnel.cancel()
    else:
        tunnel._client.stop()
    await eventually(lambda: agent.tunnels.tunnels != () and agent.tunnels.tunnels[0] is not tunnel)
    assert tunnel._register_task is not None
    assert tunnel._register_task.done()
    await eventually(lambda: len(proxy.table) == 1)


async def test_repeated_dial_keeps_the_existing_tunnel(plane: Plane) -> None:
    """If a balancer leads an agent to a proxy that it is connected to, the existing tunnel stays."""
    proxy, other_proxy = await plane.proxy("proxy-1", ttl=60.0), await plane.proxy("proxy-2", ttl=60.0)
    auth = await plane.auth(ttl=600.0)
    # The agent wants two tunnels and reaches one proxy only, so it dials that proxy again and again.
    group = await plane.agents(auth.instance.grpc_address, [proxy.instance.grpc_address], connections=2)
    (agent,) = group.agents
    await eventually(lambda: len(proxy.table) == len(agent.tunnels.tunnels) == 1)
    (tunnel,) = agent.tunnels.tunnels
    dial_count = 0
    open_tunnel = proxy.table.open

    def count_dial(*arguments: Any) -> Any:
        nonlocal dial_count
        dial_count += 1
        return open_tunnel(*arguments)

    proxy.table.open = count_dial  # type: ignore[method-assign]
    await eventually(lambda: dial_count > 3)
    assert agent.tunnels.tunnels == (tunnel,)
    assert len(proxy.table) == 1
    assert len(other_proxy.table) == 0


async def test_hello_without_registration_times_out(plane: Plane, agents: Agents) -> None:
    """The proxy ends the Control stream after the keep-alive time."""
    proxy = await plane.proxy(ttl=600.0, keep_alive=KeepAlive(interval=0.2, count_max=3))
    agent = FakeAgent(proxy, "a")
    agents.fake_agents.append(agent)
    await agent.hello()
    async with asyncio.timeout(60):
        assert await agent.code() is grpc.StatusCode.ABORTED


async def test_meaningless_frames_are_counted_and_logged_once(
    plane: Plane, agents: Agents, caplog: pytest.LogCaptureFixture
) -> None:
    """A second hello and an empty frame close nothing; one host is logged once, whichever agent sends them."""
    proxy = await plane.proxy(ttl=600.0)
    first, second = await agents.connect(proxy, "a"), await agents.connect(proxy, "b")
    sample = proxy.instance.registry.get_sample_value
    # Frames of two connections have no order, so the second agent sends after the first was counted.
    await _send_meaningless_frames(first)
    await eventually(lambda: sample("refloat_refused_inputs_total", {"kind": "frame"}) == 2)
    await _send_meaningless_frames(second)
    await eventually(lambda: sample("refloat_refused_inputs_total", {"kind": "frame"}) == 4)
    log_text = "frame.refused: agent 'a' at ipv4:127.0.0.1: the frame is empty or a second hello"
    assert caplog.text.count("frame.refused") == caplog.text.count(log_text) == 1
    assert len(proxy.table) == 2


async def _send_meaningless_frames(agent: FakeAgent) -> None:
    await agent.send()
    await agent.send(hello=fleet_pb2.AgentHello(agent_id="a"))


async def test_unread_pongs_stop_the_reading_of_pings(plane: Plane) -> None:
    """Every ping gets a pong; while too many pongs wait, the proxy reads no more pings."""
    proxy = await plane.proxy(ttl=600.0)
    ping_count = 0

    async def send_pings() -> AsyncIterator[fleet_pb2.AgentFrame]:
        nonlocal ping_count
        for sequence in range(100_000):
            ping_count += 1
            yield fleet_pb2.AgentFrame(ping=fleet_pb2.Ping(sequence=sequence))
            await asyncio.sleep(0)

    tunnel = proxy.table.open(fleet_pb2.AgentHello(agent_id="a", name="a"), "a", time.monotonic())
    read_task = asyncio.create_task(TunnelControlServicer("p", proxy.tunnels)._read(tunnel, send_pings()))
    await eventually(lambda: ping_count >= 64)
    for _ in range(200):
        await asyncio.sleep(0)
    assert ping_count == 64
    for _ in range(10):
        assert await tunnel.next_frame(time.monotonic) is not None
    await eventually(lambda: ping_count == 74)
    read_task.cancel()
    proxy.table.close(tunnel)


async def test_hello_with_a_name_of_megabytes_is_refused(plane: Plane, agents: Agents) -> None:
    """The proxy does not keep the name, which every console would read."""
    proxy = await plane.proxy(ttl=600.0)
    agent = FakeAgent(proxy, "a")
    agents.fake_agents.append(agent)
    await agent.send(hello=fleet_pb2.AgentHello(agent_id="a", name="n" * 3_900_000))
    assert await agent.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert len(proxy.table) == 0


async def test_unread_tunnel_lists_are_limited(plane: Plane, agents: Agents) -> None:
    """A few responses wait; further calls are refused."""
    proxy = await plane.proxy(ttl=600.0)
    for count in range(20):
        await agents.connect(proxy, f"{count}{'x' * 120}")
    connection = await deaf_connection(proxy.instance.grpc_address)
    calls = [call(connection, "/fleet.v1.TunnelFeed/ListTunnels", b"") for _ in range(20)]
    await eventually(lambda: sum(stream.end_future.done() for stream in calls) == 12)
    assert {stream.end_future.result()[0] for stream in calls if stream.end_future.done()} == {
        Status.RESOURCE_EXHAUSTED
    }
    connection.close()
