from __future__ import annotations

import asyncio
import json

import pytest

from fleet.monitoring.sources.nats.documents import parse_hub
from fleet.monitoring.sources.nats.leaf_port import (
    PortAddress,
    check_leaf_ports,
    check_port,
    find_leaf_address,
)
from tests.fakes.nats import INFO_LINE, FakeHub, run_hub, varz
from tests.fakes.tcp import serve_tcp


@pytest.mark.parametrize(
    ("monitoring_address", "leaf_host", "expected"),
    [
        ("hub-1:8222", "0.0.0.0", "hub-1:7422"),
        ("hub-1:8222", "", "hub-1:7422"),
        ("[2001:db8::1]:8222", "::", "[2001:db8::1]:7422"),
        ("hub-1:8222", "10.0.0.1", "10.0.0.1:7422"),
        ("127.0.0.1:8222", "127.0.0.2", "127.0.0.2:7422"),
        ("localhost:8222", "127.0.0.1", "127.0.0.1:7422"),
        ("hub-1:8222", "127.0.0.1", None),
        ("10.0.0.1:8222", "localhost", None),
    ],
)
def test_where_leaf_nodes_connect(monitoring_address: str, leaf_host: str, expected: str | None) -> None:
    """A loopback address of another machine is not this machine's."""
    hub = parse_hub(varz(leaf={"host": leaf_host, "port": 7422}))
    address = find_leaf_address(monitoring_address, hub)
    assert (None if address is None else str(address)) == expected


def test_a_hub_without_the_port() -> None:
    assert find_leaf_address("hub-1:8222", parse_hub(varz(leaf={}))) is None


async def _check(hub: FakeHub, *, has_tls: bool = False, seconds: float = 20.0) -> str:
    address = PortAddress("127.0.0.1", hub.leaf_port)
    return await check_leaf_ports(address, lambda: seconds, has_tls=has_tls)


async def test_a_hub_says_info() -> None:
    async with run_hub() as hub:
        assert await _check(hub) == ""
        assert await _check(hub, has_tls=True) == ""
        assert hub.port_checks == 2


async def test_a_port_that_is_held_does_not_respond() -> None:
    """It accepts connections, and nothing comes."""
    async with run_hub() as hub:
        hub.first_bytes = None
        assert (
            await _check(hub, seconds=0.4) == f"its leaf node port 127.0.0.1:{hub.leaf_port} does not respond"
        )


async def test_a_port_that_is_closed() -> None:
    check = await check_port(PortAddress("127.0.0.1", 1), 20.0, has_tls=False)
    assert check.problem == "its leaf node port 127.0.0.1:1 does not respond: connection refused"
    check = await check_port(PortAddress("x" * 300, 1), 20.0, has_tls=False)
    assert check.problem.startswith("its leaf node port xxx")


@pytest.mark.parametrize(
    ("first_bytes", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP/1.1 400 Bad Request"),
        (b"-ERR 'maximum connections exceeded'\r\n", "-ERR 'maximum connections exceeded'"),
        (b"INFO {\r\n", "INFO {"),
        (b"INFO []\r\n", "INFO []"),
        (b"INFO " + b"[" * 60_000 + b"\n", "INFO [[["),
        (b"x" * 200_000, "its first line has no end"),
        (b"\x1b[31m<b>\n", "\ufffd[31m<b>"),
    ],
)
async def test_a_port_of_another_server(first_bytes: bytes, text: str) -> None:
    async with run_hub() as hub:
        hub.first_bytes = first_bytes
        problem = await _check(hub)
    assert problem.startswith(
        f"its leaf node port 127.0.0.1:{hub.leaf_port} responds, but not as nats-server: "
    )
    assert text in problem
    assert len(problem) < 200
    assert problem.isprintable()


async def test_the_advertised_address_is_checked_too() -> None:
    """Leaf nodes connect to it: a load balancer in front of the hub may be the part that fails."""
    async with run_hub() as hub, run_hub() as balancer:
        document = {"server_id": "HUB", "host": "127.0.0.1", "port": balancer.leaf_port}
        hub.first_bytes = b"INFO " + json.dumps(document).encode() + b" \r\n"
        assert await _check(hub) == ""
        balancer.first_bytes = None
        problem = await _check(hub, seconds=0.6)
        assert problem == f"its leaf node port 127.0.0.1:{balancer.leaf_port} does not respond"


async def test_a_hub_that_expects_tls_first() -> None:
    """It sends nothing before TLS begins. An alert is a response: Refloat has no certificate for leaf nodes."""
    async with run_hub() as hub:
        hub.first_bytes, hub.reply = None, b"\x15\x03\x03\x00\x02\x02\x28"
        assert await _check(hub, has_tls=True) == ""
        hub.reply = b"HTTP"
        assert "not as nats-server: H" in await _check(hub, has_tls=True)
        hub.reply = b""
        assert "closes connections" in await _check(hub, has_tls=True)


@pytest.mark.parametrize(
    ("line_start", "text"), [(b"", "closes connections"), (INFO_LINE[:9], "not as nats-server: INFO {")]
)
async def test_a_port_that_closes_connections(line_start: bytes, text: str) -> None:
    """At once, or in the middle of the line."""

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(line_start)

    async with serve_tcp(close) as port:
        check = await check_port(PortAddress("127.0.0.1", port), 20.0, has_tls=False)
    assert check.problem.startswith(f"its leaf node port 127.0.0.1:{port} ")
    assert text in check.problem
