"""HTTP sites that run beside an instance's work."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp
import pytest
from aiohttp import web

from fleet.nodes.shared import addresses, http_site, lifecycle
from tests.fakes.waiting import eventually


async def test_site_is_served_until_the_block_ends() -> None:
    """The port responds inside the block and is free afterwards."""
    app = web.Application()
    async with aiohttp.ClientSession() as session:
        async with (
            http_site.serve(app, ("127.0.0.1", 0)) as address,
            session.get(f"http://{address}/") as response,
        ):
            assert response.status == 404
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(f"http://{address}/")


async def test_port_in_use_stops_the_start() -> None:
    """The error names the address."""
    async with http_site.serve(web.Application(), ("127.0.0.1", 0)) as address:
        host, _, port = address.rpartition(":")
        with pytest.raises(
            lifecycle.NodeStartError, match=f"cannot listen on {addresses.join(host, int(port))}"
        ):
            async with http_site.serve(web.Application(), (host, int(port))):
                raise AssertionError("two sites on one port")


async def test_pipelined_requests_of_one_connection_are_limited() -> None:
    """Each request needs kilobytes, so the site stops reading while too many wait."""
    handled: list[web.Request] = []
    may_answer = asyncio.Event()

    async def response(request: web.Request) -> web.Response:
        handled.append(request)
        await may_answer.wait()
        return web.Response()

    app = web.Application()
    app.router.add_get("/", response)
    async with http_site.serve(app, ("127.0.0.1", 0)) as address:
        host, _, port = address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 20_000)
        await eventually(lambda: bool(handled))
        queued_messages = handled[0].protocol._messages
        await eventually(lambda: len(queued_messages) >= 16)
        assert len(queued_messages) < 100
        may_answer.set()
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
