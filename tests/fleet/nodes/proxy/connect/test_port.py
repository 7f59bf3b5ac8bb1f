"""The CONNECT port of a real proxy with a real agent."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.nodes.agent.program import Agent
from fleet.nodes.proxy.connect import port as connect_port
from fleet.nodes.proxy.connect.access import ConnectFlags
from fleet.nodes.proxy.server import Proxy
from fleet.nodes.shared import addresses
from fleet.nodes.shared.lifecycle import NodeStartError
from fleet.processes.valkey import find_free_port
from fleet.transport import certificate_authority
from fleet.transport.tls import TLSFiles
from tests.fakes.plane import Plane, get_diag
from tests.fakes.tcp import serve_echo, serve_tcp
from tests.fakes.waiting import eventually

LOOPBACK = ConnectFlags(("127.0.0.1", 0))
TOKEN = "a-token-of-somebody"
User = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def open_user(proxy: Proxy, tls: ssl.SSLContext | None = None) -> AsyncIterator[User]:
    """Yield a connection of a user to the port."""
    assert proxy.connect_port is not None
    host, port = addresses.parse(proxy.connect_port.address)
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        async with asyncio.timeout(60):
            yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def request_target(user: User, target: str, *headers: str, method: str = "CONNECT") -> str:
    """Send a request, and return the status line of the response."""
    reader, writer = user
    lines = [f"{method} {target} HTTP/1.1", f"Host: {target}", *headers, "", ""]
    writer.write("\r\n".join(lines).encode())
    return (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[0]


async def request_and_expect_refusal(proxy: Proxy, target: str, *headers: str, **options: str) -> str:
    """Return the status line of a request that is refused."""
    async with open_user(proxy) as user:
        return await request_target(user, target, *headers, **options)


async def start_agent(plane: Plane, proxy: Proxy, *services: tuple[str, str]) -> Agent:
    """Start an agent with a tunnel to the proxy."""
    auth = await plane.auth(ttl=600.0)
    group = await plane.agents(auth.instance.grpc_address, [proxy.instance.grpc_address], services=services)
    (agent,) = group.agents
    await eventually(lambda: len(proxy.table) == len(agent.tunnels.tunnels) == 1)
    return agent


async def test_bytes_pass_in_both_directions_until_both_ends_close(plane: Plane) -> None:
    """A half-close and early data are forwarded, and the bytes are counted."""
    proxy = await plane.proxy(ttl=600.0, connect=LOOPBACK)

    async def response(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(hashlib.sha256(await reader.read()).digest())
        await writer.drain()

    async with serve_tcp(response) as port, open_user(proxy) as (reader, writer):
        agent = await start_agent(plane, proxy, ("sum", f"127.0.0.1:{port}"))
        data = bytes(range(256)) * 4096
        writer.write(b"CONNECT sum.Agent-1:80 HTTP/1.1\r\nHost: x\r\n\r\n" + data[:1000])
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        assert proxy.table.session_count == 1
        writer.write(data[1000:])
        writer.write_eof()
        assert await reader.read() == hashlib.sha256(data).digest()
        await eventually(lambda: proxy.table.session_count == agent.tunnels.tunnels[0].session_count == 0)
    _, metrics = await get_diag(proxy.instance, "/metrics")
    for line in (
        "refloat_connect_connections_total 1.0",
        'refloat_connect_bytes_total{direction="to-agent"} 1.048576e+06',
        'refloat_connect_bytes_total{direction="from-agent"} 32.0',
        "refloat_connect_aborted_connections_total 0.0",
        "refloat_connect_open_connections 0.0",
        'refloat_tunnels{state="live"} 1.0',
    ):
        assert line in metrics


async def test_refusals_have_a_status_and_a_message(plane: Plane) -> None:
    """Refusals are counted by reason, and the tunnel stays open."""
    proxy = await plane.proxy(ttl=600.0, connect=LOOPBACK)
    agent = await start_agent(plane, proxy, ("down", "127.0.0.1:1"))
    assert "404 agent 'agent-9' was not found" in await request_and_expect_refusal(proxy, "down.agent-9:80")
    assert (
        "502 agent agent-1 exposes no service 'web'; exposed services: down"
        in await request_and_expect_refusal(proxy, "web.agent-1:80")
    )
    assert "502 cannot connect to 127.0.0.1:1" in await request_and_expect_refusal(
        proxy, f"down.{agent.identity.id}:80"
    )
    assert "400 '_status' is not a service name" in await request_and_expect_refusal(
        proxy, "_status.agent-1:80"
    )
    assert "400 port 99999999 is out of range" in await request_and_expect_refusal(
        proxy, "down.agent-1:99999999"
    )
    body_headers = ("Content-Length: 5", "Transfer-Encoding: chunked")
    assert "400 a CONNECT request must not have a body" in await request_and_expect_refusal(
        proxy, "down.agent-1:80", *body_headers
    )
    assert "400 10.0.0.1 is an IP address" in await request_and_expect_refusal(proxy, "10.0.0.1:22")
    assert "405 method GET is not allowed: this port serves CONNECT only" in await request_and_expect_refusal(
        proxy, "http://down.agent-1/", method="GET"
    )
    assert len(proxy.table) == 1
    _, metrics = await get_diag(proxy.instance, "/metrics")
    for reason, times in (("no-agent", 1), ("agent", 2), ("name", 3), ("malformed", 1), ("timeout", 0)):
        assert f'refloat_connect_refused_requests_total{{reason="{reason}"}} {float(times)}' in metrics


async def test_name_of_several_agents_is_refused(plane: Plane) -> None:
    """The error proposes the id instead."""
    proxy = await plane.proxy(ttl=600.0, connect=LOOPBACK)
    agent = await start_agent(plane, proxy)
    tunnel = proxy.table.find_current(agent.identity.id)
    assert tunnel is not None
    proxy.table.find_by_id_or_name = lambda agent: [tunnel, tunnel]  # type: ignore[method-assign]
    assert (
        f"409 several agents have the name agent-1; use an id instead: {agent.identity.id}"
        in await request_and_expect_refusal(proxy, "web.agent-1:80")
    )


async def test_unresponsive_agent_times_out(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user gets status 504 after the time limit."""
    monkeypatch.setattr(connect_port, "_RESPONSE_WITHIN", 0.1)
    proxy = await plane.proxy(ttl=600.0, connect=LOOPBACK)
    agent = await start_agent(plane, proxy, ("web", "127.0.0.1:1"))

    async def wait_for_ever(target: object) -> None:
        await asyncio.Event().wait()

    agent._services.accept_session = wait_for_ever  # type: ignore[method-assign, assignment]
    assert "504 agent agent-1 did not respond within 0.1 s" in await request_and_expect_refusal(
        proxy, "web.agent-1:80"
    )


async def test_token_is_required_and_accepted(plane: Plane) -> None:
    """Without a token the response says what to send."""
    proxy = await plane.proxy(ttl=600.0, connect=ConnectFlags(("127.0.0.1", 0), tokens=(TOKEN,)))
    async with serve_echo() as port:
        await start_agent(plane, proxy, ("echo", f"127.0.0.1:{port}"))
        assert "407 authentication required: send a token" in await request_and_expect_refusal(
            proxy, "echo.agent-1:80"
        )
        assert "407 unknown token" in await request_and_expect_refusal(
            proxy, "echo.agent-1:80", "Proxy-Authorization: Bearer wrong"
        )
        async with open_user(proxy) as user:
            assert " 200 " in await request_target(
                user, "echo.agent-1:80", f"Proxy-Authorization: Bearer {TOKEN}"
            )
            user[1].write(b"hello")
            assert await user[0].readexactly(5) == b"hello"


async def test_certificate_of_the_fleet_is_required(plane: Plane, tmp_path: Path) -> None:
    """With a CA the port uses TLS; no certificate or an agent's certificate is refused with a message."""
    now = datetime.now(UTC)
    ca = certificate_authority.ensure_authority(tmp_path, now=now)
    proxy_certificate = certificate_authority.issue(ca, "proxy-1", role="proxy", now=now)
    proxy = await plane.proxy(
        ttl=600.0, connect=LOOPBACK, tls=TLSFiles(proxy_certificate.certificate, proxy_certificate.key, ca.ca)
    )
    for role, status in (("console", "404"), ("agent", "403"), ("", "407")):
        tls_context = ssl.create_default_context(cafile=str(ca.ca))
        if role:
            keys = certificate_authority.issue(ca, f"a-{role}", role=role, now=now)
            tls_context.load_cert_chain(keys.certificate, keys.key)
        async with open_user(proxy, tls_context) as user:
            assert f" {status} " in await request_target(user, "echo.agent-1:80")


async def test_lost_tunnel_resets_the_user(plane: Plane) -> None:
    """The connection is reset instead of closed, and counted as aborted."""
    proxy = await plane.proxy(ttl=600.0, connect=LOOPBACK)
    async with serve_echo() as port, open_user(proxy) as user:
        agent = await start_agent(plane, proxy, ("echo", f"127.0.0.1:{port}"))
        assert " 200 " in await request_target(user, "echo.agent-1:80")
        agent.tunnels.tunnels[0].cancel()
        with pytest.raises(ConnectionResetError):
            await user[0].read()
        await eventually(lambda: proxy.table.session_count == 0)
    _, metrics = await get_diag(proxy.instance, "/metrics")
    assert "refloat_connect_aborted_connections_total 1.0" in metrics


async def test_user_above_the_limit_is_refused(plane: Plane) -> None:
    """When a user leaves, the next one is accepted."""
    proxy = await plane.proxy(ttl=600.0, connect=ConnectFlags(("127.0.0.1", 0), user_limit=1))
    async with serve_echo() as port:
        await start_agent(plane, proxy, ("echo", f"127.0.0.1:{port}"))
        async with open_user(proxy) as user:
            assert " 200 " in await request_target(user, "echo.agent-1:80")
            line = await request_and_expect_refusal(proxy, "echo.agent-1:80")
            assert " 503 this proxy has reached its limit of 1 user connections" in line

        async def has_room() -> bool:
            return " 200 " in await request_and_expect_refusal(proxy, "echo.agent-1:80")

        await eventually(has_room)
    _, metrics = await get_diag(proxy.instance, "/metrics")
    assert 'refloat_connect_refused_requests_total{reason="busy"} 0' not in metrics


async def test_idle_connections_do_not_block_users(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of idle connections the oldest is closed; users connect and stay connected."""
    monkeypatch.setattr(connect_port, "_MAX_PENDING_CONNECTIONS", 2)
    proxy = await plane.proxy(ttl=600.0, connect=LOOPBACK)
    async with serve_echo() as port, open_user(proxy) as user:
        await start_agent(plane, proxy, ("echo", f"127.0.0.1:{port}"))
        assert " 200 " in await request_target(user, "echo.agent-1:80")
        async with contextlib.AsyncExitStack() as stack:
            idle_users = [await stack.enter_async_context(open_user(proxy)) for _ in range(6)]
            assert " 200 " in await request_target(
                await stack.enter_async_context(open_user(proxy)), "echo.agent-1:80"
            )
            for closed_user in idle_users[:5]:
                assert await closed_user[0].read() == b""
            user[1].write(b"still here")
            assert await user[0].readexactly(10) == b"still here"
            assert " 404 " in await request_target(idle_users[5], "echo.nobody:80")


async def test_stopped_proxy_serves_its_users_until_the_drain_ends(plane: Plane) -> None:
    """The port accepts no new users; open connections are reset at the end of the drain."""
    proxy = await plane.proxy(ttl=600.0, connect=LOOPBACK)
    proxy.flags = replace(proxy.flags, drain=60.0)
    drain_end = asyncio.Event()

    async def time_out() -> None:
        await drain_end.wait()
        raise TimeoutError

    async with serve_echo() as port, open_user(proxy) as user, open_user(proxy) as late_user:
        await start_agent(plane, proxy, ("echo", f"127.0.0.1:{port}"))
        assert " 200 " in await request_target(user, "echo.agent-1:80")
        proxy.table.wait_until_empty = time_out  # type: ignore[method-assign]
        stop_task = asyncio.create_task(plane.stop(proxy))
        await eventually(lambda: proxy.tunnels.is_shutting_down)
        assert " 503 this proxy is shutting down" in await request_target(late_user, "echo.agent-1:80")
        user[1].write(b"still here")
        assert await user[0].readexactly(10) == b"still here"
        drain_end.set()
        with pytest.raises(ConnectionResetError):
            await user[0].read()
        await stop_task


async def test_port_in_use_stops_the_start(plane: Plane) -> None:
    """The error names the address."""
    address = ("127.0.0.1", find_free_port())
    await plane.proxy(ttl=600.0, connect=ConnectFlags(address))
    with pytest.raises(NodeStartError, match="cannot listen on"):
        await plane.proxy("proxy-2", ttl=600.0, connect=ConnectFlags(address))


async def test_address_is_in_ready_line_and_resource(plane: Plane) -> None:
    """The resource has the advertised address as a label."""
    proxy = await plane.proxy(ttl=600.0, connect=LOOPBACK)
    advertised_flags = ConnectFlags(("127.0.0.1", 0), advertise=("proxy.example", 3128))
    other_proxy = await plane.proxy("proxy-2", ttl=600.0, connect=advertised_flags)
    assert proxy.connect_port is not None
    assert proxy.ready_fields()["connect"] == proxy.connect_port.address
    advertised_addresses = {
        server.spec.hostname: server.metadata.labels["refloat.dev/connect-addr"]
        for server in await proxy.instance.backend.list_instances("proxy")
    }
    assert advertised_addresses == {"proxy-1": proxy.connect_port.address, "proxy-2": "proxy.example:3128"}
    assert other_proxy.ready_fields()["connect"] != "proxy.example:3128"


async def test_user_cut_by_the_drain_timeout_is_logged(
    plane: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    """The log line has the user's address and target; users that left earlier are not logged."""
    proxy = await plane.proxy(ttl=600.0, connect=LOOPBACK)
    async with serve_echo() as port, open_user(proxy) as staying_user, open_user(proxy) as leaving_user:
        await start_agent(plane, proxy, ("echo", f"127.0.0.1:{port}"))
        for user in (staying_user, leaving_user):
            assert " 200 " in await request_target(user, "echo.agent-1:80")
        user_address = addresses.join(*staying_user[1].get_extra_info("sockname")[:2])
        leaving_user[1].close()
        await eventually(lambda: proxy.table.session_count == 1)
        await plane.stop(proxy)
    log_lines = [line for line in caplog.messages if line.startswith("connect.drain-timeout")]
    assert log_lines == [f"connect.drain-timeout: {user_address}, connected to echo of agent agent-1"]
