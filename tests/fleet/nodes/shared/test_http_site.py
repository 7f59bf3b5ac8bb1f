"""HTTP beside a node's work."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp
import pytest
from aiohttp import web

from fleet.nodes.shared import addresses, http_site, lifecycle
from tests.fakes.waiting import eventually


async def test_serving_until_the_block_ends() -> None:
    """The port it was given answers within, and is free afterwards."""
    app = web.Application()
    async with aiohttp.ClientSession() as session:
        async with (
            http_site.serve(app, ("127.0.0.1", 0)) as bound,
            session.get(f"http://{bound}/") as answer,
        ):
            assert answer.status == 404
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(f"http://{bound}/")


async def test_serving_on_a_port_in_use_says_so() -> None:
    """One sentence with the address."""
    async with http_site.serve(web.Application(), ("127.0.0.1", 0)) as bound:
        host, _, port = bound.rpartition(":")
        with pytest.raises(
            lifecycle.NodeStartError, match=f"cannot listen on {addresses.join(host, int(port))}"
        ):
            async with http_site.serve(web.Application(), (host, int(port))):
                raise AssertionError("two sites on one port")


async def test_few_requests_wait_on_one_connection() -> None:
    """Thousands come in one read, and each takes kilobytes: the site stops reading from whoever sends them."""
    handled: list[web.Request] = []
    may_answer = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        handled.append(request)
        await may_answer.wait()
        return web.Response()

    app = web.Application()
    app.router.add_get("/", answer)
    async with http_site.serve(app, ("127.0.0.1", 0)) as bound:
        host, _, port = bound.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 20_000)
        await eventually(lambda: bool(handled))
        waiting = handled[0].protocol._messages
        await eventually(lambda: len(waiting) >= 16)
        assert len(waiting) < 100
        may_answer.set()
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
