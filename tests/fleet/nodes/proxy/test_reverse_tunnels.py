"""Two streams, one tunnel: real agents and bare ones against a real proxy."""

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


async def one_agent(plane: Plane, proxy: Proxy, **more: Any) -> Agent:
    auth = await plane.auth(ttl=600.0)
    group = await plane.agents(auth.instance.grpc_address, [proxy.instance.grpc_address], **more)
    (agent,) = group.agents
    await eventually(lambda: len(proxy.table) == len(agent.tunnels.tunnels) == 1)
    return agent


async def status(proxy: Proxy, agent: Agent) -> dict[str, Any]:
    """What the agent tells of itself through its tunnel."""
    tunnel = proxy.table.find_current(agent.identity.id)
    assert tunnel is not None
    stream = await proxy.tunnels.open_session(tunnel, agent_services.STATUS)
    told = b""
    while part := await stream.read():
        told += part
    await stream.close()
    document: dict[str, Any] = json.loads(told)
    return document


async def test_status_through_the_tunnel(plane: Plane) -> None:
    """The proxy asks, the agent tells one JSON document and ends."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await one_agent(plane, proxy, services=(("web", "127.0.0.1:1"),))
    await eventually(lambda: agent.heartbeats.policy is not None)
    await eventually(lambda: bool(agent.snapshot().tracked_proxies))
    document = await status(proxy, agent)
    assert document["name"] == "agent-1"
    assert document["services"] == ["web"]
    assert document["tracker"]["claimed"] == [proxy.instance.flags.id]
    assert [known["proxy_id"] for known in document["tracker"]["proxies"]] == [proxy.instance.flags.id]
    assert document["policy"]["mode"] == "pick_first"
    assert [tunnel["sessions"] for tunnel in document["tunnels"]] == [0]


async def test_service_that_is_not_exposed(plane: Plane) -> None:
    """The agent's own sentence comes back, and the tunnel stands."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await one_agent(plane, proxy)
    tunnel = proxy.table.find_current(agent.identity.id)
    assert tunnel is not None
    with pytest.raises(TunnelError, match=r"exposes no service 'web'; exposed services: none"):
        await proxy.tunnels.open_session(tunnel, "web")
    assert len(proxy.table) == 1


async def test_hello_alone_is_no_tunnel(plane: Plane, agents: Agents) -> None:
    """It counts from Register on, and not before."""
    proxy = await plane.proxy(ttl=600.0)
    agent = FakeAgent(proxy, "a")
    agents.made.append(agent)
    await agent.hello()
    assert len(proxy.table) == 0
    await agent.join()
    assert len(proxy.table) == 1


async def test_register_without_hello(plane: Plane, agents: Agents) -> None:
    """Whoever did not say hello on that connection may not register, and neither may another than who did."""
    proxy = await plane.proxy(ttl=600.0)
    stranger, liar = FakeAgent(proxy, "a"), FakeAgent(proxy, "b")
    agents.made += [stranger, liar]
    with pytest.raises(TunnelError):
        await stranger.join()
    assert _refused(await stranger.register_ended())
    await liar.send(hello=fleet_pb2.AgentHello(agent_id="c", name="c"))
    await liar.read()
    with pytest.raises(TunnelError):
        await liar.join()
    assert _refused(await liar.register_ended())
    assert len(proxy.table) == 0


def _refused(why: str) -> bool:
    # grpc.aio loses what a server says with a status that overtakes the call's initial metadata.
    return "send a hello" in why or why == "Internal error from Core"


async def test_targets_of_others(plane: Plane, agents: Agents) -> None:
    """An agent claims its own services and nobody else's."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await agents.connect(proxy, "a")
    await agent.register.add_target(Target("web.a"))
    for name in ("web.b", "_status.b", "_other.a", "web"):
        with pytest.raises(TunnelError, match="may not be registered"):
            await agent.register.add_target(Target(name))
    assert len(proxy.table) == 1


async def test_control_lost_takes_register(plane: Plane, agents: Agents) -> None:
    """The proxy ends the Register stream of an agent whose Control stream is over."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await agents.connect(proxy, "a")
    agent.end_control()
    assert "Control" in await agent.register_ended()
    assert len(proxy.table) == 0


async def test_register_lost_takes_control(plane: Plane, agents: Agents) -> None:
    """The proxy ends the Control stream of an agent whose Register stream is over."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await agents.connect(proxy, "a")
    agent.register.stop()
    assert await agent.code() is grpc.StatusCode.ABORTED
    assert len(proxy.table) == 0


async def test_status_target_let_go(plane: Plane, agents: Agents) -> None:
    """An agent that takes its status back has no tunnel any more."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await agents.connect(proxy, "a")
    await agent.register.remove_target(agent_services.target_of(agent_services.STATUS, "a"))
    assert await agent.code() is grpc.StatusCode.ABORTED
    assert len(proxy.table) == 0


async def test_second_tunnel_on_one_connection(plane: Plane, agents: Agents) -> None:
    """One connection is one tunnel."""
    proxy = await plane.proxy(ttl=600.0)
    first = await agents.connect(proxy, "a")
    second = FakeAgent(proxy, "b", channel=first.channel)
    await second.send(hello=fleet_pb2.AgentHello(agent_id="b", name="b"))
    assert await second.code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("lost", ["control", "register"])
async def test_agent_loses_a_stream(plane: Plane, lost: str) -> None:
    """At the agent's end, too, one stream takes the other along; the agent dials anew."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await one_agent(plane, proxy)
    (tunnel,) = agent.tunnels.tunnels
    if lost == "control":
        tunnel.cancel()
    else:
        tunnel._client.stop()
    await eventually(lambda: agent.tunnels.tunnels != () and agent.tunnels.tunnels[0] is not tunnel)
    assert tunnel._register_task is not None
    assert tunnel._register_task.done()
    await eventually(lambda: len(proxy.table) == 1)


async def test_dialled_again_while_it_has_a_tunnel(plane: Plane) -> None:
    """A balancer that leads an agent to a proxy it has: the tunnel it has is not displaced by the attempt."""
    proxy, other = await plane.proxy("proxy-1", ttl=60.0), await plane.proxy("proxy-2", ttl=60.0)
    auth = await plane.auth(ttl=600.0)
    # It wants two and reaches one only: it dials that one again and again.
    group = await plane.agents(auth.instance.grpc_address, [proxy.instance.grpc_address], connections=2)
    (agent,) = group.agents
    await eventually(lambda: len(proxy.table) == len(agent.tunnels.tunnels) == 1)
    (tunnel,) = agent.tunnels.tunnels
    dials = 0
    opened = proxy.table.open

    def count(*given: Any) -> Any:
        nonlocal dials
        dials += 1
        return opened(*given)

    proxy.table.open = count  # type: ignore[method-assign]
    await eventually(lambda: dials > 3)
    assert agent.tunnels.tunnels == (tunnel,)
    assert len(proxy.table) == 1
    assert len(other.table) == 0


async def test_agent_that_does_not_register(plane: Plane, agents: Agents) -> None:
    """Its hello is forgotten in time."""
    proxy = await plane.proxy(ttl=600.0, keep_alive=KeepAlive(interval=0.2, count_max=3))
    agent = FakeAgent(proxy, "a")
    agents.made.append(agent)
    await agent.hello()
    async with asyncio.timeout(60):
        assert await agent.code() is grpc.StatusCode.ABORTED


async def test_frames_that_mean_nothing_are_counted_and_told_once(
    plane: Plane, agents: Agents, caplog: pytest.LogCaptureFixture
) -> None:
    """A second hello and an empty frame end nothing; one host is told of once, whoever of its agents sends them."""
    proxy = await plane.proxy(ttl=600.0)
    first, second = await agents.connect(proxy, "a"), await agents.connect(proxy, "b")
    refused = proxy.instance.registry.get_sample_value
    # Two connections have no order between them: the second speaks once the first was heard.
    await _mean_nothing(first)
    await eventually(lambda: refused("refloat_refused_total", {"kind": "frame"}) == 2)
    await _mean_nothing(second)
    await eventually(lambda: refused("refloat_refused_total", {"kind": "frame"}) == 4)
    told = "frame.refused: agent 'a' at ipv4:127.0.0.1: the frame is empty or a second hello"
    assert caplog.text.count("frame.refused") == caplog.text.count(told) == 1
    assert len(proxy.table) == 2


async def _mean_nothing(agent: FakeAgent) -> None:
    await agent.send()
    await agent.send(hello=fleet_pb2.AgentHello(agent_id="a"))


async def test_agent_that_pings_and_reads_nothing(plane: Plane) -> None:
    """Each ping is answered: while too many answers wait, the proxy reads no more pings."""
    proxy = await plane.proxy(ttl=600.0)
    sent = 0

    async def pings() -> AsyncIterator[fleet_pb2.AgentFrame]:
        nonlocal sent
        for sequence in range(100_000):
            sent += 1
            yield fleet_pb2.AgentFrame(ping=fleet_pb2.Ping(sequence=sequence))
            await asyncio.sleep(0)

    tunnel = proxy.table.open(fleet_pb2.AgentHello(agent_id="a", name="a"), "a", time.monotonic())
    reading = asyncio.create_task(TunnelControlServicer("p", proxy.tunnels)._read(tunnel, pings()))
    await eventually(lambda: sent >= 64)
    for _ in range(200):
        await asyncio.sleep(0)
    assert sent == 64
    for _ in range(10):
        assert await tunnel.next_frame(time.monotonic) is not None
    await eventually(lambda: sent == 74)
    reading.cancel()
    proxy.table.close(tunnel)


async def test_hello_with_a_name_of_megabytes(plane: Plane, agents: Agents) -> None:
    """Refused before it is kept: every console would read it."""
    proxy = await plane.proxy(ttl=600.0)
    agent = FakeAgent(proxy, "a")
    agents.made.append(agent)
    await agent.send(hello=fleet_pb2.AgentHello(agent_id="a", name="n" * 3_900_000))
    assert await agent.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert len(proxy.table) == 0


async def test_lists_that_their_caller_does_not_read(plane: Plane, agents: Agents) -> None:
    """A few of them wait; more are refused."""
    proxy = await plane.proxy(ttl=600.0)
    for count in range(20):
        await agents.connect(proxy, f"{count}{'x' * 120}")
    deaf = await deaf_connection(proxy.instance.grpc_address)
    calls = [call(deaf, "/fleet.v1.TunnelFeed/ListTunnels", b"") for _ in range(20)]
    await eventually(lambda: sum(each.ended.done() for each in calls) == 12)
    assert {each.ended.result()[0] for each in calls if each.ended.done()} == {Status.RESOURCE_EXHAUSTED}
    deaf.close()
