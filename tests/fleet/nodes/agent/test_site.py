"""The metrics port of a process of agents."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from fleet.nodes.agent import site as agent_site
from fleet.nodes.shared import addresses, lifecycle


def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    Counter("things", "Things", registry=made).inc()
    return made


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/metrics", 200), ("GET", "/metrics?x=1", 200), ("POST", "/metrics", 405), ("GET", "/", 404)],
)
async def test_answers(method: str, path: str, status: int) -> None:
    """Metrics in Prometheus' text, and nothing else."""
    async with (
        agent_site.serve(registry(), ("127.0.0.1", 0)) as where,
        aiohttp.ClientSession() as session,
        session.request(method, f"http://{where}{path}") as answer,
    ):
        assert answer.status == status
        assert ("things_total 1.0" in await answer.text()) == (status == 200)


async def test_who_speaks_no_http_is_let_go() -> None:
    """Endless heads and half ones end their own connection only."""
    async with agent_site.serve(registry(), ("127.0.0.1", 0)) as where:
        host, port = addresses.parse(where)
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"x" * 100_000)
        async with asyncio.timeout(60):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
        writer.close()
        async with aiohttp.ClientSession() as session, session.get(f"http://{where}/metrics") as answer:
            assert answer.status == 200


async def test_none_wanted() -> None:
    """Without an address there is no port."""
    async with agent_site.serve(registry(), None) as where:
        assert where == ""


async def test_port_in_use() -> None:
    """One sentence."""
    async with agent_site.serve(registry(), ("127.0.0.1", 0)) as where:
        with pytest.raises(lifecycle.NodeStartError, match="cannot listen"):
            async with agent_site.serve(registry(), addresses.parse(where)):
                raise AssertionError("two on one port")
