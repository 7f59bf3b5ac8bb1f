"""Reaching a service through a CONNECT port, and every answer that is none."""

from __future__ import annotations

import asyncio
import socket
import struct
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.nodes.proxy.connect.access import ConnectFlags
from fleet.nodes.shared import addresses, connect_client
from fleet.nodes.shared.connect_client import BrokenError, ConnectError, ConnectPlan
from fleet.transport import certificate_authority
from fleet.transport.tls import TLSError, TLSFiles
from fleet.transport.tunnel.pump import TcpConnection, connect
from tests.fakes.certificates import Certificates
from tests.fakes.plane import Plane
from tests.fakes.tcp import Connected, echoing, serving
from tests.fakes.waiting import eventually


def saying(answer: bytes) -> Connected:
    """A service that reads a head, answers so and ends."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    return connected


async def dial(port: int, *more: int, **plan: str) -> TcpConnection:
    proxies = [("127.0.0.1", one) for one in (port, *more)]
    return await connect_client.dial(ConnectPlan("web.agent-1", proxies, **plan), None)


async def through(plan: ConnectPlan) -> TcpConnection:
    return await connect_client.dial(plan, connect_client.client_context(plan.tls))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 502 x\r\nContent-Length: 7\r\n\r\nit is\xc3\xbc", "it is\u00fc"),
        (b"HTTP/1.1 503 x\r\n\r\n", "the proxy responded with HTTP 503"),
        (b"HTTP/1.1 100 x\r\n\r\nHTTP/1.0 407 x\r\n\r\nshow it", "show it"),
        (b"SSH-2.0-x\r\n\r\n", "the peer is not an HTTP proxy"),
        (b"", "without a response"),
        (b"HTTP/1.1 200 ok\r\n", "without a response"),
    ],
)
async def test_answers_that_are_none(answer: bytes, why: str) -> None:
    """The proxy's own sentence where there is one."""
    async with serving(saying(answer)) as port:
        with pytest.raises(ConnectError) as error:
            await dial(port)
        assert why in str(error.value)


async def test_what_comes_behind_the_answer() -> None:
    """A service that speaks first is heard, though it came in one piece with the head."""
    async with serving(saying(b"HTTP/1.1 200 ok\r\n\r\nSSH-2.0-x\r\n")) as port:
        wire = await dial(port)
        message = await wire.read()
        assert message is not None
        assert message.endswith(b"SSH-2.0-x\r\n")
        assert await wire.read() is None
        wire.close()


async def test_proxies_in_turn() -> None:
    """One that is down and one that has not this agent are passed over; any other no is final."""
    here = serving(saying(b"HTTP/1.1 200 ok\r\n\r\n"))
    elsewhere = serving(saying(b"HTTP/1.1 404 x\r\n\r\nnot here"))
    refusing = serving(saying(b"HTTP/1.1 407 x\r\n\r\nshow it"))
    async with here as one, elsewhere as two, refusing as three:
        (await dial(1, two, one)).close()
        with pytest.raises(ConnectError, match="not here"):
            await dial(1, two)
        with pytest.raises(ConnectError, match="show it"):
            await dial(three, one)
    with pytest.raises(ConnectError, match=r"cannot connect to proxy 127\.0\.0\.1:1"):
        await dial(1)


async def test_proxy_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up in time."""
    monkeypatch.setattr(connect_client, "_ANSWER_WITHIN", 0.2)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        await reader.read()

    async with serving(silent) as port:
        with pytest.raises(ConnectError, match=r"did not respond within 0\.2 s"):
            await dial(port)


async def test_splice_to_the_end_of_the_answer() -> None:
    """The user's end is passed on, and what is answered to it arrives; a reset is one."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told = await reader.read()
        if told == b"reset":
            writer.transport.abort()
        writer.write(told.upper())
        await writer.drain()

    users: list[asyncio.Task[None]] = []

    async with serving(answer) as port:

        def made(wire: TcpConnection) -> None:
            users.append(asyncio.create_task(carry(wire)))

        async def carry(wire: TcpConnection) -> None:
            await connect_client.splice(wire, await connect("127.0.0.1", port, 5))

        loop = asyncio.get_running_loop()
        async with await loop.create_server(lambda: TcpConnection(made), "127.0.0.1", 0) as server:
            for text, back in ((b"hello", b"HELLO"), (b"", b"")):
                reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                writer.write(text)
                writer.write_eof()
                async with asyncio.timeout(60):
                    assert await reader.read() == back
                    await users[-1]
                writer.close()


async def test_splice_that_breaks() -> None:
    """A proxy that resets the connection is no end in good order."""

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)
        sock = writer.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with echoing() as there, serving(reset) as port:
        user, proxy = await connect("127.0.0.1", there, 5), await connect("127.0.0.1", port, 5)
        await proxy.write(memoryview(b"hello"))
        with pytest.raises(BrokenError):
            await connect_client.splice(user, proxy)


async def test_over_tls_to_a_real_agent(plane: Plane, tmp_path: Path) -> None:
    """A certificate lets in, and the question's end does not end the answer."""
    now = datetime.now(UTC)
    ca = certificate_authority.ensure_authority(tmp_path, now=now)
    own = certificate_authority.issue(ca, "proxy-1", role="proxy", now=now)
    auths = certificate_authority.issue(ca, "auth-1", role="auth", now=now)
    console = certificate_authority.issue(ca, "console", role="console", now=now)
    ours = TLSFiles(console.certificate, console.key, ca.ca)
    agents = certificate_authority.issue(ca, "agent-1", role="agent", now=now)
    proxy = await plane.proxy(
        ttl=600.0, connect=ConnectFlags(("127.0.0.1", 0)), tls=TLSFiles(own.certificate, own.key, ca.ca)
    )
    assert proxy.connect is not None
    async with echoing() as port:
        auth = await plane.auth(ttl=600.0, tls=TLSFiles(auths.certificate, auths.key, ca.ca))
        await plane.agents(
            auth.instance.grpc_address,
            [proxy.instance.grpc_address],
            services=(("echo", f"127.0.0.1:{port}"),),
            tls=TLSFiles(agents.certificate, agents.key, ca.ca),
        )
        await eventually(lambda: len(proxy.table) == 1)
        at = (addresses.parse(proxy.connect.address),)
        wire = await through(ConnectPlan("echo.agent-1", at, tls=ours))
        await wire.write(memoryview(b"hello"))
        message = await wire.read()
        assert message is not None
        assert message.endswith(b"hello")
        wire.close()
        await wire.closed_future
        await eventually(lambda: proxy.table.sessions == 0)
        with pytest.raises(ConnectError, match="send a client certificate"):
            await through(ConnectPlan("echo.agent-1", at, tls=TLSFiles(authority=ca.ca)))


def test_keys_that_are_none(tmp_path: Path) -> None:
    """They are named before anything is dialled."""
    with pytest.raises(TLSError, match=r"cannot read .*none"):
        connect_client.client_context(TLSFiles(authority=tmp_path / "none"))
    (tmp_path / "some").write_text("nonsense")
    with pytest.raises(TLSError, match=r"cannot use .*some"):
        connect_client.client_context(TLSFiles(authority=tmp_path / "some"))


async def test_port_with_the_certificate_of_another_role(plane: Plane, tmp_path: Path) -> None:
    """An auth's certificate, good for the same host, does not make a proxy."""
    certificates = Certificates(tmp_path)
    proxy = await plane.proxy(
        ttl=600.0, connect=ConnectFlags(("127.0.0.1", 0)), tls=certificates.of("auth-1", "auth")
    )
    assert proxy.connect is not None
    at = (addresses.parse(proxy.connect.address),)

    with pytest.raises(ConnectError, match=r"Hostname mismatch.*proxy\.refloat\.local"):
        await through(ConnectPlan("echo.agent-1", at, tls=certificates.of("console", "console")))
