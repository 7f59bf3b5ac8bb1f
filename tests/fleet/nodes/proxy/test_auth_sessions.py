"""Agents that reach auths through real proxies."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from fleet.nodes.agent.program import AgentFlags, AgentGroup
from fleet.nodes.auth.server import Auth
from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.proxy import auth_sessions
from fleet.nodes.proxy.auth_sessions import AuthSessionHandler
from fleet.nodes.proxy.server import Proxy
from fleet.nodes.shared import addresses
from fleet.nodes.shared.instance import Instance
from fleet.protocol.instance_labels import DIAG_LABEL
from fleet.protocol.recovery import auth_path
from fleet.protocol.tunnel.messages import Target, TunnelError
from fleet.transport import channels
from fleet.transport.tls import TLSFiles
from fleet.transport.tunnel.client import TunnelClient
from fleet.wire import fleet_pb2, types_pb2
from tests.fakes.certificates import Certificates
from tests.fakes.plane import Plane
from tests.fakes.waiting import eventually


async def through(plane: Plane, *proxies: Proxy, tls: TLSFiles | None = None) -> AgentGroup:
    """One agent that knows proxies only."""
    group = AgentGroup(
        AgentFlags(
            auth=(),
            auth_via_proxy=True,
            proxy=tuple(addresses.parse(proxy.instance.grpc_address) for proxy in proxies),
            announce_ttl=2.0,
            redial_step=0.05,
            tls=tls or TLSFiles(),
        )
    )
    group.start()
    plane.adopt(group)
    return group


def door_of(plane: Plane, **more: str) -> AuthSessionHandler:
    """A door by itself."""
    instance = Instance("proxy", plane.instance_flags("proxy", "door", **more))
    plane.adopt(instance)
    return AuthSessionHandler(instance)


async def entry(auth: Auth) -> fleet_pb2.AgentEntry | None:
    page = await auth.instance.backend.agents("", 0, 0)
    return page.agents[0] if page.agents else None


async def test_heartbeats_come_through_a_proxy(plane: Plane) -> None:
    """And say through which: the console then knows on what the agent depends."""
    auth, proxy = await plane.auth(ttl=600.0), await plane.proxy(ttl=600.0)
    await through(plane, proxy)

    async def told() -> bool:
        found = await entry(auth)
        return found is not None and found.agent.via_proxy_id == proxy.instance.flags.id

    await eventually(told)
    # The way to auths is no tunnel of the agent.
    await eventually(lambda: len(proxy.table) == 1)
    value = proxy.instance.registry.get_sample_value(
        "refloat_proxy_auth_connections_total", {"outcome": "connected"}
    )
    assert value is not None
    assert value >= 1


async def test_proxy_that_dies_takes_the_connection_with_it(plane: Plane) -> None:
    """The agent reaches auths through another one."""
    auth = await plane.auth(ttl=600.0)
    first, second = await plane.proxy("p1", ttl=600.0), await plane.proxy("p2", ttl=600.0)
    group = await through(plane, first, second)
    (agent,) = group.agents
    await eventually(lambda: bool(agent.auth_id))
    used = first if agent.heartbeats.channel.via == first.instance.flags.id else second
    await plane.stop(used)
    other = second if used is first else first

    async def told() -> bool:
        found = await entry(auth)
        return found is not None and found.agent.via_proxy_id == other.instance.flags.id

    await eventually(told)


async def test_ready_auths_come_first(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that says 503 is only taken when there is no other; one that does not even listen is passed over."""
    monkeypatch.setattr(auth_sessions, "_READY_WITHIN", 30.0)
    sick, well = await plane.auth("sick", ttl=600.0), await plane.auth("well", ttl=600.0)
    door = door_of(plane)
    sick.instance.process.record_failure("auth")
    ports = []
    for _ in range(8):
        door._refreshed_at = -1e9
        first, *_ = await door._shuffle_auths()
        ports.append(first.address)
    assert set(ports) == {addresses.parse(well.instance.grpc_address)}
    await plane.stop(well)
    door._refreshed_at = -1e9
    taken = await door.accept_session(auth_path.AUTH)
    taken.discard()


async def test_backend_that_is_gone(plane: Plane) -> None:
    """Auths that are known stay known; who knew none says so in a sentence."""
    await plane.auth(ttl=600.0)
    link, url = await plane.backend_forward()
    door = door_of(plane, backend=url)
    (await door.accept_session(auth_path.AUTH)).discard()
    await link.change(mode=ForwardMode.CUT)
    door._refreshed_at = -1e9
    (await door.accept_session(auth_path.AUTH)).discard()
    stranger = door_of(plane, backend=url)
    with pytest.raises(TunnelError, match="cannot reach an auth: no auth is known"):
        await stranger.accept_session(auth_path.AUTH)
    await link.change(mode=ForwardMode.PASS)


async def test_auth_whose_address_is_none_is_passed_over(
    plane: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever wrote it, the others are reached; it is counted each time and told once."""
    auth, door = await plane.auth(ttl=600.0), door_of(plane)
    for name, address in (("a-empty", ""), ("b-nonsense", "nowhere"), ("c-label", "10.0.0.1:3025")):
        labels = {DIAG_LABEL: "not an address"}
        server = types_pb2.ServerV2(kind="auth_server", spec=types_pb2.ServerSpecV2(addr=address))
        server.metadata.CopyFrom(types_pb2.Metadata(name=name, labels=labels))
        await auth.instance.backend.put_instance("auth", server, 60.0)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            door._refreshed_at = -1e9
            first, second = await door._shuffle_auths()
            assert first.address == addresses.parse(auth.instance.grpc_address)
            assert (second.address, second.ready) == (("10.0.0.1", 3025), False)
    counted = door._instance.registry.get_sample_value("refloat_refused_total", {"kind": "resource"})
    assert counted == 4
    assert caplog.text.count("resource.refused: auth a-empty: '' is not host:port") == 1
    assert caplog.text.count("resource.refused: ") == 2


async def test_client_without_a_tunnel_gets_nothing_else(plane: Plane) -> None:
    """Who has said no hello may ask for the way to auths; it claims no target and reaches no agent."""
    proxy = await plane.proxy(ttl=600.0)
    async with channels.open_channel(proxy.instance.grpc_address) as channel:
        client = TunnelClient(channel)
        running = asyncio.create_task(client.run())
        await asyncio.sleep(0)
        await client.wait_until_up()
        stream = await client.open_session(auth_path.PROXY)
        assert await stream.read() == proxy.instance.flags.id.encode()
        await stream.close()
        with pytest.raises(TunnelError):
            await client.open_session(Target("ssh.some-agent"))
        with pytest.raises(TunnelError):
            await client.add_target(Target("ssh.some-agent"))
        running.cancel()
        await client.close()
        await asyncio.wait([running])


async def test_mutual_tls_is_with_the_auth(plane: Plane, tmp_path: Path) -> None:
    """The agent's handshake passes the proxy and is with the auth: a certificate of another authority is refused."""
    ours, theirs = Certificates(tmp_path / "ours"), Certificates(tmp_path / "theirs")
    tls = ours.of("agent-1", "agent")
    proxy = await plane.proxy(ttl=600.0, tls=ours.of("proxy-1", "proxy"))
    wrong = await plane.auth("wrong", ttl=600.0, tls=theirs.of("auth-1", "auth"))
    await through(plane, proxy, tls=tls)
    await eventually(lambda: _connected(proxy) >= 1)
    assert await entry(wrong) is None
    await plane.stop(wrong)
    # A stolen certificate of a proxy is good for every server of the fleet but an auth.
    await plane.stop(await _visited(plane, proxy, ours.of("proxy-2", "proxy")))
    right = await plane.auth("right", ttl=600.0, tls=ours.of("auth-2", "auth"))

    async def told() -> bool:
        return await entry(right) is not None

    await eventually(told)


async def _visited(plane: Plane, proxy: Proxy, tls: TLSFiles) -> Auth:
    """Return an auth with these files after the proxy led an agent to it, and nobody heartbeated there."""
    visited = await plane.auth("visited", ttl=600.0, tls=tls)
    before = _connected(proxy)
    await eventually(lambda: _connected(proxy) >= before + 2)
    assert await entry(visited) is None
    return visited


def _connected(proxy: Proxy) -> float:
    value = proxy.instance.registry.get_sample_value(
        "refloat_proxy_auth_connections_total", {"outcome": "connected"}
    )
    return value or 0.0
