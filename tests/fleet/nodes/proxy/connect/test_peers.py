"""Two proxies, and an agent that has a tunnel to one of them."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.proxy.connect.access import ConnectFlags
from fleet.nodes.proxy.connect.peers import Peers
from fleet.nodes.proxy.server import Proxy
from fleet.nodes.shared import addresses, connect_client
from fleet.nodes.shared.connect_client import ConnectError, ConnectPlan
from fleet.protocol.instance_labels import CONNECT_LABEL
from fleet.transport.tls import TLSFiles
from fleet.transport.tunnel.pump import TcpConnection
from fleet.wire import fleet_pb2, types_pb2
from tests.fakes.certificates import Certificates
from tests.fakes.plane import Plane, get
from tests.fakes.tcp import echoing, serving
from tests.fakes.waiting import eventually

HERE = ConnectFlags(("127.0.0.1", 0))
TOKEN = "a-token-of-somebody"


async def through(proxy: Proxy, target: str, **plan: str) -> TcpConnection:
    """Connect by one proxy's port."""
    assert proxy.connect is not None
    at = (addresses.parse(proxy.connect.address),)
    tls = proxy.instance.flags.tls
    return await connect_client.dial(
        ConnectPlan(target, at, tls=tls, **plan), connect_client.client_context(tls)
    )


async def refused(proxy: Proxy, target: str, **plan: str) -> str:
    with pytest.raises(ConnectError) as error:
        await through(proxy, target, **plan)
    return str(error.value)


async def two(
    plane: Plane,
    port: int,
    connect: ConnectFlags = HERE,
    backend: str = "",
    agent_tls: TLSFiles | None = None,
    auth_tls: TLSFiles | None = None,
    **more: TLSFiles,
) -> tuple[Proxy, Proxy]:
    """A proxy that has agent-1, whose service listens on a port, and one that has not."""
    near = await plane.proxy("proxy-1", ttl=600.0, connect=connect, **more)
    reached = backend or plane.backend_url
    far = await plane.proxy("proxy-2", ttl=600.0, connect=connect, backend=reached, **more)
    auth = await plane.auth(ttl=600.0, **({"tls": auth_tls} if auth_tls else {}))
    await plane.agents(
        auth.instance.grpc_address,
        [near.instance.grpc_address],
        services=(("web", f"127.0.0.1:{port}"),),
        **({} if agent_tls is None else {"tls": agent_tls}),
    )
    (agent,) = plane._nodes[-1].agents

    async def told() -> bool:
        entry = await near.instance.backend.agent(agent.identity.id)
        return entry is not None and near.instance.flags.id in entry.agent.tracker.claimed

    await eventually(told)
    return near, far


async def test_either_proxy_leads_there(plane: Plane) -> None:
    """By name in any case or by id, with a half-close, and it is counted where the user came in."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(hashlib.sha256(await reader.read()).digest())
        await writer.drain()

    async with serving(answer) as port:
        near, far = await two(plane, port)
        (agent,) = plane._nodes[-1].agents
        data = bytes(range(256)) * 8192
        for target in ("web.agent-1", "web.Agent-1", f"web.{agent.identity.id}"):
            wire = await through(far, target)
            await wire.write(memoryview(data))
            wire.write_eof()
            message = await wire.read()
            assert message is not None
            assert message.endswith(hashlib.sha256(data).digest())
            assert await wire.read() is None
            wire.close()
        await eventually(lambda: near.table.sessions == 0)
    _, metrics = await get(far.instance, "/metrics")
    assert "refloat_connect_peered_total 3.0" in metrics
    assert "refloat_connect_aborted_total 0.0" in metrics
    _, metrics = await get(near.instance, "/metrics")
    assert "refloat_connect_peered_total 0.0" in metrics


async def test_proxy_without_tunnels_ends_with_its_last_user(plane: Plane) -> None:
    """Who came in by it for an agent elsewhere is as long on it as a user of its own tunnels would be."""
    async with echoing() as port:
        _, far = await two(plane, port)
        wire = await through(far, "web.agent-1")
        far.flags = replace(far.flags, drain=60.0)
        stopping = asyncio.create_task(plane.stop(far))
        await eventually(lambda: far.tunnels.is_shutting_down and not len(far.table))
        await wire.write(memoryview(b"still there"))
        message = await wire.read()
        assert message is not None
        assert message.endswith(b"still there")
        assert not stopping.done()
        wire.write_eof()
        assert await wire.read() is None
        wire.close()
        await stopping


async def test_what_the_other_proxy_says(plane: Plane) -> None:
    """Its sentence is the user's; an agent that nobody has is nowhere."""
    _, far = await two(plane, 1)
    assert "cannot connect to 127.0.0.1:1" in await refused(far, "web.agent-1")
    assert "exposes no service 'x'" in await refused(far, "x.agent-1")
    assert (
        await refused(far, "web.agent-9") == "agent 'agent-9' has no tunnel to this proxy or to another proxy"
    )


async def test_peers_do_not_send_on(plane: Plane) -> None:
    """What a peer asks for is served from own tunnels or not at all: nothing goes in circles."""
    async with echoing() as port:
        near, far = await two(plane, port)
        assert await refused(far, "web.agent-1", peer="p") == "agent 'agent-1' has no tunnel to this proxy"
        (await through(near, "web.agent-1", peer="p")).close()


async def test_agent_that_has_just_gone(plane: Plane) -> None:
    """The backend still says where it was; that proxy says that it is not."""
    async with echoing() as port:
        near, far = await two(plane, port)
        near.table.find = lambda agent: []  # type: ignore[method-assign]
        assert "and proxy proxy-1 responded: agent 'agent-1' has no tunnel" in await refused(
            far, "web.agent-1"
        )


async def test_peer_that_is_dead(plane: Plane) -> None:
    """It cannot be reached, which is said."""
    async with echoing() as port:
        near, far = await two(plane, port)
        assert near.connect is not None
        await near.connect.stop()
        assert "cannot connect to proxy" in await refused(far, "web.agent-1")


async def test_backend_that_is_down(plane: Plane) -> None:
    """Without it own agents are reached still, and where others are cannot be told."""
    async with echoing() as port:
        forward, url = await plane.backend_forward()
        near, far = await two(plane, port, backend=url)
        await forward.change(mode=ForwardMode.CUT)
        assert "the backend cannot be read" in await refused(far, "web.agent-1")
        (await through(near, "web.agent-1")).close()


async def test_token_is_shown_to_peers(plane: Plane) -> None:
    """Proxies with one file of tokens let each other in."""
    flags = ConnectFlags(("127.0.0.1", 0), tokens=(TOKEN, "another-token-that-is"))
    async with echoing() as port:
        near, far = await two(plane, port, flags)
        (await through(far, "web.agent-1", token="another-token-that-is")).close()
        assert near.connect is not None
        near.connect._access._tokens = (b"a-token-nobody-has",)
        told = await refused(far, "web.agent-1", token=TOKEN)
        assert told == (
            "proxy proxy-1 does not admit this proxy: unknown token: send a token in the Proxy-Authorization header"
        )


async def test_certificates_between_proxies(plane: Plane, tmp_path: Path) -> None:
    """With mutual TLS a proxy shows its own, and bytes pass to the end."""
    certificates = Certificates(tmp_path)
    async with echoing() as port:
        near, far = await two(
            plane,
            port,
            tls=certificates.of("proxy-1", "proxy"),
            agent_tls=certificates.of("agent-1", "agent"),
            auth_tls=certificates.of("auth-1", "auth"),
        )
        wire = await through(far, "web.agent-1")
        await wire.write(memoryview(b"hello"))
        message = await wire.read()
        assert message is not None
        assert message.endswith(b"hello")
        wire.close()
        await wire.closed_future
        await eventually(lambda: near.table.sessions == 0)


async def test_tunnel_that_breaks_far_away(plane: Plane) -> None:
    """The abort arrives as one, over both proxies."""
    async with echoing() as port:
        _, far = await two(plane, port)
        (agent,) = plane._nodes[-1].agents
        wire = await through(far, "web.agent-1")
        agent.tunnels.tunnels[0].cancel()
        with pytest.raises(ConnectionResetError):
            await wire.read()
        wire.close()


async def test_proxy_whose_connect_address_is_none_is_passed_over(plane: Plane) -> None:
    """It is counted, and the user is led to another that has the agent."""
    near, far = await plane.proxy("near", ttl=600.0, connect=HERE), await plane.proxy("far", ttl=600.0)
    backend = far.instance.backend
    labels = {CONNECT_LABEL: "not an address"}
    metadata = types_pb2.Metadata(name="bad", labels=labels)
    await backend.put_instance("proxy", types_pb2.ServerV2(kind="proxy", metadata=metadata), 60.0)
    tracker = fleet_pb2.TrackerSummary(claimed=["bad", near.instance.flags.id])
    await backend.put_agent(fleet_pb2.AgentResource(agent_id="a", ttl_ms=60_000, tracker=tracker), "auth-1")
    assert near.connect is not None
    (peer,) = await Peers(far.instance, "")._find_holders("a")
    assert peer.address == addresses.parse(near.connect.address)
    assert 'refloat_refused_total{kind="resource"} 1.0' in (await get(far.instance, "/metrics"))[1]
