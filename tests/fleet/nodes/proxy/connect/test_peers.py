"""Two proxies and an agent with a tunnel to one of them."""

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
from fleet.transport.tls import TLSFiles, client_context
from fleet.transport.tunnel.pump import TcpConnection
from fleet.wire import fleet_pb2, types_pb2
from tests.fakes.certificates import Certificates
from tests.fakes.plane import Plane, get_diag
from tests.fakes.tcp import serve_echo, serve_tcp
from tests.fakes.waiting import eventually

LOOPBACK = ConnectFlags(("127.0.0.1", 0))
TOKEN = "a-token-of-somebody"


async def dial_through(proxy: Proxy, target: str, **options: str) -> TcpConnection:
    """Connect to a target through the CONNECT port of a proxy."""
    assert proxy.connect_port is not None
    proxy_addresses = (addresses.parse(proxy.connect_port.address),)
    tls = proxy.instance.flags.tls
    return await connect_client.dial(
        ConnectPlan(target, proxy_addresses, tls=tls, **options), client_context(tls)
    )


async def expect_refusal(proxy: Proxy, target: str, **options: str) -> str:
    with pytest.raises(ConnectError) as error:
        await dial_through(proxy, target, **options)
    return str(error.value)


async def start_two_proxies(
    plane: Plane,
    port: int,
    connect: ConnectFlags = LOOPBACK,
    backend: str = "",
    agent_tls: TLSFiles | None = None,
    auth_tls: TLSFiles | None = None,
    **instance_flags: TLSFiles,
) -> tuple[Proxy, Proxy]:
    """Return a proxy with a tunnel of agent-1, whose service listens on `port`, and a proxy without one."""
    holder = await plane.proxy("proxy-1", ttl=600.0, connect=connect, **instance_flags)
    backend_url = backend or plane.backend_url
    other_proxy = await plane.proxy(
        "proxy-2", ttl=600.0, connect=connect, backend=backend_url, **instance_flags
    )
    auth = await plane.auth(ttl=600.0, **({"tls": auth_tls} if auth_tls else {}))
    await plane.agents(
        auth.instance.grpc_address,
        [holder.instance.grpc_address],
        services=(("web", f"127.0.0.1:{port}"),),
        **({} if agent_tls is None else {"tls": agent_tls}),
    )
    (agent,) = plane._nodes[-1].agents

    async def has_claim() -> bool:
        entry = await holder.instance.backend.get_agent(agent.identity.id)
        return entry is not None and holder.instance.flags.id in entry.agent.tracker.claimed

    await eventually(has_claim)
    return holder, other_proxy


async def test_target_is_reached_through_either_proxy(plane: Plane) -> None:
    """The agent is addressed by name in any case or by id; a half-close passes, and the first proxy counts the user."""

    async def response(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(hashlib.sha256(await reader.read()).digest())
        await writer.drain()

    async with serve_tcp(response) as port:
        holder, other_proxy = await start_two_proxies(plane, port)
        (agent,) = plane._nodes[-1].agents
        data = bytes(range(256)) * 8192
        for target in ("web.agent-1", "web.Agent-1", f"web.{agent.identity.id}"):
            connection = await dial_through(other_proxy, target)
            await connection.write(memoryview(data))
            connection.write_eof()
            message = await connection.read()
            assert message is not None
            assert message.endswith(hashlib.sha256(data).digest())
            assert await connection.read() is None
            connection.close()
        await eventually(lambda: holder.table.session_count == 0)
    _, metrics = await get_diag(other_proxy.instance, "/metrics")
    assert "refloat_connect_peered_connections_total 3.0" in metrics
    assert "refloat_connect_aborted_connections_total 0.0" in metrics
    _, metrics = await get_diag(holder.instance, "/metrics")
    assert "refloat_connect_peered_connections_total 0.0" in metrics


async def test_stopped_proxy_waits_for_its_users_of_other_proxies(plane: Plane) -> None:
    """A user of an agent at another proxy gets the same drain time as a user of an own tunnel."""
    async with serve_echo() as port:
        _, other_proxy = await start_two_proxies(plane, port)
        connection = await dial_through(other_proxy, "web.agent-1")
        other_proxy.flags = replace(other_proxy.flags, drain=60.0)
        stop_task = asyncio.create_task(plane.stop(other_proxy))
        await eventually(lambda: other_proxy.tunnels.is_shutting_down and not len(other_proxy.table))
        await connection.write(memoryview(b"still there"))
        message = await connection.read()
        assert message is not None
        assert message.endswith(b"still there")
        assert not stop_task.done()
        connection.write_eof()
        assert await connection.read() is None
        connection.close()
        await stop_task


async def test_error_of_the_other_proxy_reaches_the_user(plane: Plane) -> None:
    """An unknown agent is reported by the proxy that was asked."""
    _, other_proxy = await start_two_proxies(plane, 1)
    assert "cannot connect to 127.0.0.1:1" in await expect_refusal(other_proxy, "web.agent-1")
    assert "exposes no service 'x'" in await expect_refusal(other_proxy, "x.agent-1")
    assert (
        await expect_refusal(other_proxy, "web.agent-9")
        == "agent 'agent-9' was not found: check its name or id (refloat agents)"
    )


async def test_peer_request_is_not_forwarded_again(plane: Plane) -> None:
    """A proxy serves a request of a peer from its own tunnels only, so that requests do not go in circles."""
    async with serve_echo() as port:
        holder, other_proxy = await start_two_proxies(plane, port)
        assert (
            await expect_refusal(other_proxy, "web.agent-1", peer_id="p")
            == "agent 'agent-1' has no tunnel to this proxy"
        )
        (await dial_through(holder, "web.agent-1", peer_id="p")).close()


async def test_outdated_claim_is_reported_by_the_other_proxy(plane: Plane) -> None:
    """The backend still lists the tunnel; the other proxy responds that it is closed."""
    async with serve_echo() as port:
        holder, other_proxy = await start_two_proxies(plane, port)
        holder.table.find_by_id_or_name = lambda agent: []  # type: ignore[method-assign]
        assert "and proxy proxy-1 responded: agent 'agent-1' has no tunnel" in await expect_refusal(
            other_proxy, "web.agent-1"
        )


async def test_unreachable_peer_is_reported(plane: Plane) -> None:
    """The user's error names the proxy."""
    async with serve_echo() as port:
        holder, other_proxy = await start_two_proxies(plane, port)
        assert holder.connect_port is not None
        await holder.connect_port.stop()
        assert "cannot connect to proxy" in await expect_refusal(other_proxy, "web.agent-1")


async def test_own_agents_are_reachable_without_backend(plane: Plane) -> None:
    """Without the backend only agents of other proxies cannot be found."""
    async with serve_echo() as port:
        forward, url = await plane.backend_forward()
        holder, other_proxy = await start_two_proxies(plane, port, backend=url)
        await forward.change(mode=ForwardMode.CUT)
        assert "the backend cannot be read" in await expect_refusal(other_proxy, "web.agent-1")
        (await dial_through(holder, "web.agent-1")).close()


async def test_proxies_use_the_user_token_between_each_other(plane: Plane) -> None:
    """Proxies with the same token file accept each other."""
    flags = ConnectFlags(("127.0.0.1", 0), tokens=(TOKEN, "another-token-that-is"))
    async with serve_echo() as port:
        holder, other_proxy = await start_two_proxies(plane, port, flags)
        (await dial_through(other_proxy, "web.agent-1", token="another-token-that-is")).close()
        assert holder.connect_port is not None
        holder.connect_port._access._tokens = (b"a-token-nobody-has",)
        message = await expect_refusal(other_proxy, "web.agent-1", token=TOKEN)
        assert message == (
            "proxy proxy-1 does not admit this proxy: unknown token: send a token in the Proxy-Authorization header"
        )


async def test_proxies_use_their_certificates_between_each_other(plane: Plane, tmp_path: Path) -> None:
    """With mutual TLS the bytes pass to the agent."""
    certificates = Certificates(tmp_path)
    async with serve_echo() as port:
        holder, other_proxy = await start_two_proxies(
            plane,
            port,
            tls=certificates.of("proxy-1", "proxy"),
            agent_tls=certificates.of("agent-1", "agent"),
            auth_tls=certificates.of("auth-1", "auth"),
        )
        connection = await dial_through(other_proxy, "web.agent-1")
        await connection.write(memoryview(b"hello"))
        message = await connection.read()
        assert message is not None
        assert message.endswith(b"hello")
        connection.close()
        await connection.closed_future
        await eventually(lambda: holder.table.session_count == 0)


async def test_broken_tunnel_aborts_the_user_of_another_proxy(plane: Plane) -> None:
    """The connection of the user is reset."""
    async with serve_echo() as port:
        _, other_proxy = await start_two_proxies(plane, port)
        (agent,) = plane._nodes[-1].agents
        connection = await dial_through(other_proxy, "web.agent-1")
        agent.tunnels.tunnels[0].cancel()
        with pytest.raises(ConnectionResetError):
            await connection.read()
        connection.close()


async def test_proxy_with_invalid_connect_address_is_skipped(plane: Plane) -> None:
    """The invalid address is counted, and the user reaches another proxy that has the agent."""
    holder, other_proxy = (
        await plane.proxy("near", ttl=600.0, connect=LOOPBACK),
        await plane.proxy("far", ttl=600.0),
    )
    backend = other_proxy.instance.backend
    labels = {CONNECT_LABEL: "not an address"}
    metadata = types_pb2.Metadata(name="bad", labels=labels)
    await backend.put_instance("proxy", types_pb2.ServerV2(kind="proxy", metadata=metadata), 60.0)
    tracker = fleet_pb2.TrackerSummary(claimed=["bad", holder.instance.flags.id])
    await backend.put_agent(fleet_pb2.AgentResource(agent_id="a", ttl_ms=60_000, tracker=tracker), "auth-1")
    assert holder.connect_port is not None
    (peer,) = await Peers(other_proxy.instance, "")._find_peers_with_tunnel("a")
    assert peer.address == addresses.parse(holder.connect_port.address)
    assert (
        'refloat_refused_inputs_total{kind="resource"} 1.0'
        in (await get_diag(other_proxy.instance, "/metrics"))[1]
    )
