"""The metrics port of an agent process."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from fleet.nodes.agent import site as agent_site
from fleet.nodes.shared import addresses, lifecycle


def make_registry() -> CollectorRegistry:
    collector_registry = CollectorRegistry()
    Counter("things", "Things", registry=collector_registry).inc()
    return collector_registry


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/metrics", 200), ("GET", "/metrics?x=1", 200), ("POST", "/metrics", 405), ("GET", "/", 404)],
)
async def test_only_metrics_are_served(method: str, path: str, status: int) -> None:
    """`/metrics` responds in Prometheus' text format; other paths and methods are refused."""
    async with (
        agent_site.serve(make_registry(), ("127.0.0.1", 0)) as address,
        aiohttp.ClientSession() as session,
        session.request(method, f"http://{address}{path}") as response,
    ):
        assert response.status == status
        assert ("things_total 1.0" in await response.text()) == (status == 200)


async def test_client_without_http_loses_only_its_own_connection() -> None:
    """Endless and incomplete request heads do not disturb other clients."""
    async with agent_site.serve(make_registry(), ("127.0.0.1", 0)) as address:
        host, port = addresses.parse(address)
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"x" * 100_000)
        async with asyncio.timeout(60):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
        writer.close()
        async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as response:
            assert response.status == 200


async def test_no_port_without_an_address() -> None:
    """Without an address the agent opens no port."""
    async with agent_site.serve(make_registry(), None) as address:
        assert address == ""


async def test_port_in_use_stops_the_start() -> None:
    """The start fails with one error message."""
    async with agent_site.serve(make_registry(), ("127.0.0.1", 0)) as address:
        with pytest.raises(lifecycle.NodeStartError, match="cannot listen"):
            async with agent_site.serve(make_registry(), addresses.parse(address)):
                raise AssertionError("two on one port")
