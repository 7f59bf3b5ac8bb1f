"""Agents that connect to auths through real proxies."""

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


async def start_agent_group(plane: Plane, *proxies: Proxy, tls: TLSFiles | None = None) -> AgentGroup:
    """Start one agent that has the addresses of proxies only."""
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


def make_handler(plane: Plane, **instance_flags: str) -> AuthSessionHandler:
    """Return an auth session handler with its own instance."""
    instance = Instance("proxy", plane.instance_flags("proxy", "door", **instance_flags))
    plane.adopt(instance)
    return AuthSessionHandler(instance)


async def find_entry(auth: Auth) -> fleet_pb2.AgentEntry | None:
    page = await auth.instance.backend.list_agents("", 0, 0)
    return page.agents[0] if page.agents else None


async def test_heartbeat_through_a_proxy_names_the_proxy(plane: Plane) -> None:
    """The console shows which proxy the agent depends on."""
    auth, proxy = await plane.auth(ttl=600.0), await plane.proxy(ttl=600.0)
    await start_agent_group(plane, proxy)

    async def has_proxy_id() -> bool:
        agent_entry = await find_entry(auth)
        return agent_entry is not None and agent_entry.agent.via_proxy_id == proxy.instance.flags.id

    await eventually(has_proxy_id)
    # The connection to auths is not counted as a tunnel.
    await eventually(lambda: len(proxy.table) == 1)
    connection_count = proxy.instance.registry.get_sample_value(
        "refloat_proxy_auth_connections_total", {"outcome": "connected"}
    )
    assert connection_count is not None
    assert connection_count >= 1


async def test_agent_uses_another_proxy_when_its_proxy_stops(plane: Plane) -> None:
    """The heartbeats arrive through the other proxy."""
    auth = await plane.auth(ttl=600.0)
    first, second = await plane.proxy("p1", ttl=600.0), await plane.proxy("p2", ttl=600.0)
    group = await start_agent_group(plane, first, second)
    (agent,) = group.agents
    await eventually(lambda: bool(agent.auth_id))
    used_proxy = first if agent.heartbeats.channel.proxy_id == first.instance.flags.id else second
    await plane.stop(used_proxy)
    other_proxy = second if used_proxy is first else first

    async def has_proxy_id() -> bool:
        agent_entry = await find_entry(auth)
        return agent_entry is not None and agent_entry.agent.via_proxy_id == other_proxy.instance.flags.id

    await eventually(has_proxy_id)


async def test_ready_auths_are_preferred(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """An auth that is not ready is chosen if there is no other; an auth that does not listen is skipped."""
    monkeypatch.setattr(auth_sessions, "_READYZ_TIMEOUT", 30.0)
    unready_auth, ready_auth = await plane.auth("sick", ttl=600.0), await plane.auth("well", ttl=600.0)
    handler = make_handler(plane)
    unready_auth.instance.process.record_failure("auth")
    ports = []
    for _ in range(8):
        handler._refreshed_at = -1e9
        first, *_ = await handler._shuffle_auths()
        ports.append(first.address)
    assert set(ports) == {addresses.parse(ready_auth.instance.grpc_address)}
    await plane.stop(ready_auth)
    handler._refreshed_at = -1e9
    session = await handler.accept_session(auth_path.AUTH_TARGET)
    session.discard()


async def test_known_auths_are_used_without_backend(plane: Plane) -> None:
    """A handler that has never read the backend refuses with a message."""
    await plane.auth(ttl=600.0)
    forward, url = await plane.backend_forward()
    handler = make_handler(plane, backend=url)
    (await handler.accept_session(auth_path.AUTH_TARGET)).discard()
    await forward.change(mode=ForwardMode.CUT)
    handler._refreshed_at = -1e9
    (await handler.accept_session(auth_path.AUTH_TARGET)).discard()
    new_handler = make_handler(plane, backend=url)
    with pytest.raises(TunnelError, match="cannot reach an auth: no auth is known"):
        await new_handler.accept_session(auth_path.AUTH_TARGET)
    await forward.change(mode=ForwardMode.PASS)


async def test_auth_with_invalid_address_is_skipped(plane: Plane, caplog: pytest.LogCaptureFixture) -> None:
    """The other auths are reached; invalid addresses are counted each time and logged once."""
    auth, handler = await plane.auth(ttl=600.0), make_handler(plane)
    for name, address in (("a-empty", ""), ("b-nonsense", "nowhere"), ("c-label", "10.0.0.1:3025")):
        labels = {DIAG_LABEL: "not an address"}
        server = types_pb2.ServerV2(kind="auth_server", spec=types_pb2.ServerSpecV2(addr=address))
        server.metadata.CopyFrom(types_pb2.Metadata(name=name, labels=labels))
        await auth.instance.backend.put_instance("auth", server, 60.0)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            handler._refreshed_at = -1e9
            first, second = await handler._shuffle_auths()
            assert first.address == addresses.parse(auth.instance.grpc_address)
            assert (second.address, second.is_ready) == (("10.0.0.1", 3025), False)
    refused_count = handler._instance.registry.get_sample_value(
        "refloat_refused_inputs_total", {"kind": "resource"}
    )
    assert refused_count == 4
    assert caplog.text.count("resource.refused: auth a-empty: '' is not host:port") == 1
    assert caplog.text.count("resource.refused: ") == 2


async def test_client_without_hello_reaches_auths_only(plane: Plane) -> None:
    """The client cannot register a target or open a session to an agent."""
    proxy = await plane.proxy(ttl=600.0)
    async with channels.open_channel(proxy.instance.grpc_address) as channel:
        client = TunnelClient(channel)
        client_task = asyncio.create_task(client.run())
        await asyncio.sleep(0)
        await client.wait_until_up()
        stream = await client.open_session(auth_path.PROXY_ID_TARGET)
        assert await stream.read() == proxy.instance.flags.id.encode()
        await stream.close()
        with pytest.raises(TunnelError):
            await client.open_session(Target("ssh.some-agent"))
        with pytest.raises(TunnelError):
            await client.add_target(Target("ssh.some-agent"))
        client_task.cancel()
        await client.close()
        await asyncio.wait([client_task])


async def test_tls_of_the_agent_ends_at_the_auth(plane: Plane, tmp_path: Path) -> None:
    """The handshake passes through the proxy, and a certificate of another CA is refused."""
    certificates, other_certificates = Certificates(tmp_path / "ours"), Certificates(tmp_path / "theirs")
    tls = certificates.of("agent-1", "agent")
    proxy = await plane.proxy(ttl=600.0, tls=certificates.of("proxy-1", "proxy"))
    other_ca_auth = await plane.auth("wrong", ttl=600.0, tls=other_certificates.of("auth-1", "auth"))
    await start_agent_group(plane, proxy, tls=tls)
    await eventually(lambda: _count_connections(proxy) >= 1)
    assert await find_entry(other_ca_auth) is None
    await plane.stop(other_ca_auth)
    # A proxy's certificate is valid for every server of the fleet except an auth.
    await plane.stop(await _start_visited_auth(plane, proxy, certificates.of("proxy-2", "proxy")))
    trusted_auth = await plane.auth("right", ttl=600.0, tls=certificates.of("auth-2", "auth"))

    async def has_entry() -> bool:
        return await find_entry(trusted_auth) is not None

    await eventually(has_entry)


async def _start_visited_auth(plane: Plane, proxy: Proxy, tls: TLSFiles) -> Auth:
    """Return an auth with these files after the proxy has connected an agent to it, which sent no heartbeat."""
    auth = await plane.auth("visited", ttl=600.0, tls=tls)
    count_before = _count_connections(proxy)
    await eventually(lambda: _count_connections(proxy) >= count_before + 2)
    assert await find_entry(auth) is None
    return auth


def _count_connections(proxy: Proxy) -> float:
    connection_count = proxy.instance.registry.get_sample_value(
        "refloat_proxy_auth_connections_total", {"outcome": "connected"}
    )
    return connection_count or 0.0
