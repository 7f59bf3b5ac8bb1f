"""Connections to a service through a CONNECT port, and responses that refuse them."""

from __future__ import annotations

import asyncio
import socket
import struct
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.nodes.proxy.connect.access import ConnectFlags
from fleet.nodes.shared import addresses, connect_client
from fleet.nodes.shared.connect_client import ConnectError, ConnectPlan, ServiceConnectionLostError
from fleet.transport import certificate_authority
from fleet.transport.tls import TLSError, TLSFiles, client_context
from fleet.transport.tunnel.pump import TcpConnection, connect
from tests.fakes.certificates import Certificates
from tests.fakes.plane import Plane
from tests.fakes.tcp import OnConnection, serve_echo, serve_tcp
from tests.fakes.waiting import eventually


def respond_with(response: bytes) -> OnConnection:
    """Return a handler that reads a request head, sends this response and ends."""

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response)
        await writer.drain()

    return on_connect


async def dial(port: int, *other_ports: int, **options: str) -> TcpConnection:
    proxies = [("127.0.0.1", port_number) for port_number in (port, *other_ports)]
    return await connect_client.dial(ConnectPlan("web.agent-1", proxies, **options), None)


async def dial_plan(plan: ConnectPlan) -> TcpConnection:
    return await connect_client.dial(plan, client_context(plan.tls))


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (b"HTTP/1.1 502 x\r\nContent-Length: 7\r\n\r\nit is\xc3\xbc", "it is\u00fc"),
        (b"HTTP/1.1 503 x\r\n\r\n", "the proxy responded with HTTP 503"),
        (b"HTTP/1.1 100 x\r\n\r\nHTTP/1.0 407 x\r\n\r\nshow it", "show it"),
        (b"SSH-2.0-x\r\n\r\n", "the peer is not an HTTP proxy"),
        (b"", "without a response"),
        (b"HTTP/1.1 200 ok\r\n", "without a response"),
    ],
)
async def test_refusing_or_invalid_response_is_explained(response: bytes, message: str) -> None:
    """The error contains the proxy's own message if there is one."""
    async with serve_tcp(respond_with(response)) as port:
        with pytest.raises(ConnectError) as error:
            await dial(port)
        assert message in str(error.value)


async def test_bytes_behind_the_response_head_are_kept() -> None:
    """A service that sends first is heard, even if its bytes arrive with the head."""
    async with serve_tcp(respond_with(b"HTTP/1.1 200 ok\r\n\r\nSSH-2.0-x\r\n")) as port:
        connection = await dial(port)
        message = await connection.read()
        assert message is not None
        assert message.endswith(b"SSH-2.0-x\r\n")
        assert await connection.read() is None
        connection.close()


async def test_proxies_are_tried_in_order() -> None:
    """Proxies that are down or lack the agent are skipped; any other refusal is final."""
    accepting_server = serve_tcp(respond_with(b"HTTP/1.1 200 ok\r\n\r\n"))
    server_without_agent = serve_tcp(respond_with(b"HTTP/1.1 404 x\r\n\r\nnot here"))
    refusing_server = serve_tcp(respond_with(b"HTTP/1.1 407 x\r\n\r\nshow it"))
    async with (
        accepting_server as accepting_port,
        server_without_agent as port_without_agent,
        refusing_server as refusing_port,
    ):
        (await dial(1, port_without_agent, accepting_port)).close()
        with pytest.raises(ConnectError, match="not here"):
            await dial(1, port_without_agent)
        with pytest.raises(ConnectError, match="show it"):
            await dial(refusing_port, accepting_port)
    with pytest.raises(ConnectError, match=r"cannot connect to proxy 127\.0\.0\.1:1: connection refused$"):
        await dial(1)


async def test_silent_proxy_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dial is given up after the time limit."""
    monkeypatch.setattr(connect_client, "_RESPONSE_WITHIN", 0.2)

    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        await reader.read()

    async with serve_tcp(stay_silent) as port:
        with pytest.raises(ConnectError, match=r"did not respond within 0\.2 s"):
            await dial(port)


async def test_splice_forwards_until_the_end_of_the_response() -> None:
    """The user's half-close is forwarded, and the response to it arrives."""

    async def respond_in_upper_case(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.read()
        if request == b"reset":
            writer.transport.abort()
        writer.write(request.upper())
        await writer.drain()

    users: list[asyncio.Task[None]] = []

    async with serve_tcp(respond_in_upper_case) as port:

        def start_splice(connection: TcpConnection) -> None:
            users.append(asyncio.create_task(splice_to_proxy(connection)))

        async def splice_to_proxy(connection: TcpConnection) -> None:
            await connect_client.splice(connection, await connect("127.0.0.1", port, 5))

        loop = asyncio.get_running_loop()
        async with await loop.create_server(lambda: TcpConnection(start_splice), "127.0.0.1", 0) as server:
            for text, response in ((b"hello", b"HELLO"), (b"", b"")):
                reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                writer.write(text)
                writer.write_eof()
                async with asyncio.timeout(60):
                    assert await reader.read() == response
                    await users[-1]
                writer.close()


async def test_splice_fails_if_the_proxy_resets_the_connection() -> None:
    """A reset is no orderly end."""

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)
        sock = writer.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with serve_echo() as echo_port, serve_tcp(reset) as port:
        user, proxy = await connect("127.0.0.1", echo_port, 5), await connect("127.0.0.1", port, 5)
        await proxy.write(memoryview(b"hello"))
        with pytest.raises(ServiceConnectionLostError):
            await connect_client.splice(user, proxy)


async def test_echo_over_tls_with_a_real_agent(plane: Plane, tmp_path: Path) -> None:
    """The console's certificate is accepted; without a certificate the proxy refuses."""
    now = datetime.now(UTC)
    ca = certificate_authority.ensure_authority(tmp_path, now=now)
    proxy_certificate = certificate_authority.issue(ca, "proxy-1", role="proxy", now=now)
    auth_certificate = certificate_authority.issue(ca, "auth-1", role="auth", now=now)
    console_certificate = certificate_authority.issue(ca, "console", role="console", now=now)
    console_files = TLSFiles(console_certificate.certificate, console_certificate.key, ca.ca)
    agent_certificate = certificate_authority.issue(ca, "agent-1", role="agent", now=now)
    proxy = await plane.proxy(
        ttl=600.0,
        connect=ConnectFlags(("127.0.0.1", 0)),
        tls=TLSFiles(proxy_certificate.certificate, proxy_certificate.key, ca.ca),
    )
    assert proxy.connect_port is not None
    async with serve_echo() as port:
        auth = await plane.auth(
            ttl=600.0, tls=TLSFiles(auth_certificate.certificate, auth_certificate.key, ca.ca)
        )
        await plane.agents(
            auth.instance.grpc_address,
            [proxy.instance.grpc_address],
            services=(("echo", f"127.0.0.1:{port}"),),
            tls=TLSFiles(agent_certificate.certificate, agent_certificate.key, ca.ca),
        )
        await eventually(lambda: len(proxy.table) == 1)
        proxy_addresses = (addresses.parse(proxy.connect_port.address),)
        connection = await dial_plan(ConnectPlan("echo.agent-1", proxy_addresses, tls=console_files))
        await connection.write(memoryview(b"hello"))
        message = await connection.read()
        assert message is not None
        assert message.endswith(b"hello")
        connection.close()
        await connection.closed_future
        await eventually(lambda: proxy.table.session_count == 0)
        with pytest.raises(ConnectError, match="send a client certificate"):
            await dial_plan(ConnectPlan("echo.agent-1", proxy_addresses, tls=TLSFiles(authority=ca.ca)))


def test_invalid_key_files_are_named(tmp_path: Path) -> None:
    """The error comes before any dial."""
    with pytest.raises(TLSError, match=r"cannot read .*none"):
        client_context(TLSFiles(authority=tmp_path / "none"))
    (tmp_path / "some").write_text("nonsense")
    with pytest.raises(TLSError, match=r"cannot use .*some"):
        client_context(TLSFiles(authority=tmp_path / "some"))


async def test_port_with_certificate_of_an_auth_is_refused(plane: Plane, tmp_path: Path) -> None:
    """The certificate of an auth on the same host does not identify a proxy."""
    certificates = Certificates(tmp_path)
    proxy = await plane.proxy(
        ttl=600.0, connect=ConnectFlags(("127.0.0.1", 0)), tls=certificates.of("auth-1", "auth")
    )
    assert proxy.connect_port is not None
    proxy_addresses = (addresses.parse(proxy.connect_port.address),)

    with pytest.raises(ConnectError, match=r"Hostname mismatch.*proxy\.refloat\.local"):
        await dial_plan(
            ConnectPlan("echo.agent-1", proxy_addresses, tls=certificates.of("console", "console"))
        )
