"""The CONNECT port of a real proxy, with a real agent behind it."""

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
from fleet.processes.valkey import free_port
from fleet.transport import certificate_authority
from fleet.transport.tls import TLSFiles
from tests.fakes.plane import Plane, get
from tests.fakes.tcp import echoing, serving
from tests.fakes.waiting import eventually

HERE = ConnectFlags(("127.0.0.1", 0))
TOKEN = "a-token-of-somebody"
User = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def user(proxy: Proxy, tls: ssl.SSLContext | None = None) -> AsyncIterator[User]:
    """A connection to the port."""
    assert proxy.connect is not None
    host, port = addresses.parse(proxy.connect.address)
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        async with asyncio.timeout(60):
            yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def connect(user: User, target: str, *headers: str, method: str = "CONNECT") -> str:
    """Ask, and return the status line."""
    reader, writer = user
    lines = [f"{method} {target} HTTP/1.1", f"Host: {target}", *headers, "", ""]
    writer.write("\r\n".join(lines).encode())
    return (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[0]


async def refused(proxy: Proxy, target: str, *headers: str, **how: str) -> str:
    """The status line of a refusal."""
    async with user(proxy) as one:
        return await connect(one, target, *headers, **how)


async def agent_of(plane: Plane, proxy: Proxy, *services: tuple[str, str]) -> Agent:
    """An agent with a tunnel to the proxy."""
    auth = await plane.auth(ttl=600.0)
    group = await plane.agents(auth.instance.grpc_address, [proxy.instance.grpc_address], services=services)
    (agent,) = group.agents
    await eventually(lambda: len(proxy.table) == len(agent.tunnels.tunnels) == 1)
    return agent


async def test_bytes_both_ways_to_the_end(plane: Plane) -> None:
    """A half-close is one; what came with the request is not lost; it is counted."""
    proxy = await plane.proxy(ttl=600.0, connect=HERE)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(hashlib.sha256(await reader.read()).digest())
        await writer.drain()

    async with serving(answer) as port, user(proxy) as (reader, writer):
        agent = await agent_of(plane, proxy, ("sum", f"127.0.0.1:{port}"))
        data = bytes(range(256)) * 4096
        writer.write(b"CONNECT sum.Agent-1:80 HTTP/1.1\r\nHost: x\r\n\r\n" + data[:1000])
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        assert proxy.table.sessions == 1
        writer.write(data[1000:])
        writer.write_eof()
        assert await reader.read() == hashlib.sha256(data).digest()
        await eventually(lambda: proxy.table.sessions == agent.tunnels.tunnels[0].sessions == 0)
    _, metrics = await get(proxy.instance, "/metrics")
    for line in (
        "refloat_connect_opened_total 1.0",
        'refloat_connect_bytes_total{direction="to-agent"} 1.048576e+06',
        'refloat_connect_bytes_total{direction="from-agent"} 32.0',
        "refloat_connect_aborted_total 0.0",
        "refloat_connect_open 0.0",
        'refloat_tunnels{state="live"} 1.0',
    ):
        assert line in metrics


async def test_what_is_refused(plane: Plane) -> None:
    """Each with its status and a sentence; it is counted by reason, and the tunnel stands."""
    proxy = await plane.proxy(ttl=600.0, connect=HERE)
    agent = await agent_of(plane, proxy, ("down", "127.0.0.1:1"))
    assert "404 agent 'agent-9' has no tunnel" in await refused(proxy, "down.agent-9:80")
    assert "502 agent agent-1 exposes no service 'web'; exposed services: down" in await refused(
        proxy, "web.agent-1:80"
    )
    assert "502 cannot connect to 127.0.0.1:1" in await refused(proxy, f"down.{agent.identity.id}:80")
    assert "400 '_status' is not a service name" in await refused(proxy, "_status.agent-1:80")
    assert "400 port 99999999 is out of range" in await refused(proxy, "down.agent-1:99999999")
    both = ("Content-Length: 5", "Transfer-Encoding: chunked")
    assert "400 a CONNECT request must not have a body" in await refused(proxy, "down.agent-1:80", *both)
    assert "400 10.0.0.1 is an IP address" in await refused(proxy, "10.0.0.1:22")
    assert "405 method GET is not allowed: this port serves CONNECT only" in await refused(
        proxy, "http://down.agent-1/", method="GET"
    )
    assert len(proxy.table) == 1
    _, metrics = await get(proxy.instance, "/metrics")
    for reason, times in (("no-agent", 1), ("agent", 2), ("name", 3), ("malformed", 1), ("timeout", 0)):
        assert f'refloat_connect_refused_total{{reason="{reason}"}} {float(times)}' in metrics


async def test_two_agents_of_one_name(plane: Plane) -> None:
    """A name that two have is no address; an id is."""
    proxy = await plane.proxy(ttl=600.0, connect=HERE)
    agent = await agent_of(plane, proxy)
    tunnel = proxy.table.find_current(agent.identity.id)
    assert tunnel is not None
    proxy.table.find = lambda agent: [tunnel, tunnel]  # type: ignore[method-assign]
    assert (
        f"409 several agents have the name agent-1; use an id instead: {agent.identity.id}"
        in await refused(proxy, "web.agent-1:80")
    )


async def test_agent_that_does_not_answer(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user waits so long and no longer."""
    monkeypatch.setattr(connect_port, "_ANSWER_WITHIN", 0.1)
    proxy = await plane.proxy(ttl=600.0, connect=HERE)
    agent = await agent_of(plane, proxy, ("web", "127.0.0.1:1"))

    async def never(target: object) -> None:
        await asyncio.Event().wait()

    agent._services.accept_session = never  # type: ignore[method-assign, assignment]
    assert "504 agent agent-1 did not respond within 0.1 s" in await refused(proxy, "web.agent-1:80")


async def test_tokens(plane: Plane) -> None:
    """Without one it says what to show; with one, plain or as a password, it connects."""
    proxy = await plane.proxy(ttl=600.0, connect=ConnectFlags(("127.0.0.1", 0), tokens=(TOKEN,)))
    async with echoing() as port:
        await agent_of(plane, proxy, ("echo", f"127.0.0.1:{port}"))
        assert "407 authentication required: send a token" in await refused(proxy, "echo.agent-1:80")
        assert "407 unknown token" in await refused(
            proxy, "echo.agent-1:80", "Proxy-Authorization: Bearer wrong"
        )
        async with user(proxy) as one:
            assert " 200 " in await connect(one, "echo.agent-1:80", f"Proxy-Authorization: Bearer {TOKEN}")
            one[1].write(b"hello")
            assert await one[0].readexactly(5) == b"hello"


async def test_certificates(plane: Plane, tmp_path: Path) -> None:
    """With a CA the port speaks TLS; who shows nothing, or an agent's certificate, is refused in a sentence."""
    now = datetime.now(UTC)
    ca = certificate_authority.ensure_authority(tmp_path, now=now)
    own = certificate_authority.issue(ca, "proxy-1", role="proxy", now=now)
    proxy = await plane.proxy(ttl=600.0, connect=HERE, tls=TLSFiles(own.certificate, own.key, ca.ca))
    for role, status in (("console", "404"), ("agent", "403"), ("", "407")):
        shown = ssl.create_default_context(cafile=str(ca.ca))
        if role:
            keys = certificate_authority.issue(ca, f"a-{role}", role=role, now=now)
            shown.load_cert_chain(keys.certificate, keys.key)
        async with user(proxy, shown) as one:
            assert f" {status} " in await connect(one, "echo.agent-1:80")


async def test_session_that_breaks(plane: Plane) -> None:
    """The agent's tunnel goes away: the user's connection is reset, not closed; it is counted as aborted."""
    proxy = await plane.proxy(ttl=600.0, connect=HERE)
    async with echoing() as port, user(proxy) as one:
        agent = await agent_of(plane, proxy, ("echo", f"127.0.0.1:{port}"))
        assert " 200 " in await connect(one, "echo.agent-1:80")
        agent.tunnels.tunnels[0].cancel()
        with pytest.raises(ConnectionResetError):
            await one[0].read()
        await eventually(lambda: proxy.table.sessions == 0)
    _, metrics = await get(proxy.instance, "/metrics")
    assert "refloat_connect_aborted_total 1.0" in metrics


async def test_limit_of_users(plane: Plane) -> None:
    """One too many is told so, and when somebody leaves there is room again."""
    proxy = await plane.proxy(ttl=600.0, connect=ConnectFlags(("127.0.0.1", 0), limit=1))
    async with echoing() as port:
        await agent_of(plane, proxy, ("echo", f"127.0.0.1:{port}"))
        async with user(proxy) as one:
            assert " 200 " in await connect(one, "echo.agent-1:80")
            line = await refused(proxy, "echo.agent-1:80")
            assert " 503 this proxy has reached its limit of 1 user connections" in line

        async def room() -> bool:
            return " 200 " in await refused(proxy, "echo.agent-1:80")

        await eventually(room)
    _, metrics = await get(proxy.instance, "/metrics")
    assert 'refloat_connect_refused_total{reason="busy"} 0' not in metrics


async def test_strangers_take_no_places(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that ask for nothing are few: the oldest is closed for the next; users come in, and stay."""
    monkeypatch.setattr(connect_port, "_MOST_STRANGERS", 2)
    proxy = await plane.proxy(ttl=600.0, connect=HERE)
    async with echoing() as port, user(proxy) as one:
        await agent_of(plane, proxy, ("echo", f"127.0.0.1:{port}"))
        assert " 200 " in await connect(one, "echo.agent-1:80")
        async with contextlib.AsyncExitStack() as stack:
            silent = [await stack.enter_async_context(user(proxy)) for _ in range(6)]
            assert " 200 " in await connect(await stack.enter_async_context(user(proxy)), "echo.agent-1:80")
            for closed in silent[:5]:
                assert await closed[0].read() == b""
            one[1].write(b"still here")
            assert await one[0].readexactly(10) == b"still here"
            assert " 404 " in await connect(silent[5], "echo.nobody:80")


async def test_proxy_that_leaves(plane: Plane) -> None:
    """It listens no more and lets the connections it has go on, to the end of its drain."""
    proxy = await plane.proxy(ttl=600.0, connect=HERE)
    proxy.flags = replace(proxy.flags, drain=60.0)
    drained = asyncio.Event()

    async def over() -> None:
        await drained.wait()
        raise TimeoutError

    async with echoing() as port, user(proxy) as one, user(proxy) as late:
        await agent_of(plane, proxy, ("echo", f"127.0.0.1:{port}"))
        assert " 200 " in await connect(one, "echo.agent-1:80")
        proxy.table.wait_until_empty = over  # type: ignore[method-assign]
        stopping = asyncio.create_task(plane.stop(proxy))
        await eventually(lambda: proxy.tunnels.is_shutting_down)
        assert " 503 this proxy is shutting down" in await connect(late, "echo.agent-1:80")
        one[1].write(b"still here")
        assert await one[0].readexactly(10) == b"still here"
        drained.set()
        with pytest.raises(ConnectionResetError):
            await one[0].read()
        await stopping


async def test_port_that_is_taken(plane: Plane) -> None:
    """One sentence."""
    taken = ("127.0.0.1", free_port())
    await plane.proxy(ttl=600.0, connect=ConnectFlags(taken))
    with pytest.raises(NodeStartError, match="cannot listen on"):
        await plane.proxy("proxy-2", ttl=600.0, connect=ConnectFlags(taken))


async def test_address_is_told(plane: Plane) -> None:
    """In the ready line, and as a label of its resource, where others reach it."""
    proxy = await plane.proxy(ttl=600.0, connect=HERE)
    elsewhere = ConnectFlags(("127.0.0.1", 0), advertise=("proxy.example", 3128))
    other = await plane.proxy("proxy-2", ttl=600.0, connect=elsewhere)
    assert proxy.connect is not None
    assert proxy.ready_fields()["connect"] == proxy.connect.address
    told = {
        server.spec.hostname: server.metadata.labels["refloat.dev/connect-addr"]
        for server in await proxy.instance.backend.instances("proxy")
    }
    assert told == {"proxy-1": proxy.connect.address, "proxy-2": "proxy.example:3128"}
    assert other.ready_fields()["connect"] != "proxy.example:3128"


async def test_user_that_outlasts_the_drain_is_named(plane: Plane, caplog: pytest.LogCaptureFixture) -> None:
    """Who, to what, and counted; one who has gone by then is not among them."""
    proxy = await plane.proxy(ttl=600.0, connect=HERE)
    async with echoing() as port, user(proxy) as stays, user(proxy) as goes:
        await agent_of(plane, proxy, ("echo", f"127.0.0.1:{port}"))
        for one in (stays, goes):
            assert " 200 " in await connect(one, "echo.agent-1:80")
        where = addresses.join(*stays[1].get_extra_info("sockname")[:2])
        goes[1].close()
        await eventually(lambda: proxy.table.sessions == 1)
        await plane.stop(proxy)
    cut = [line for line in caplog.messages if line.startswith("connect.cut")]
    assert cut == [f"connect.cut: {where}, connected to echo of agent agent-1"]
