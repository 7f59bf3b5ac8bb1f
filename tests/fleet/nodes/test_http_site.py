"""HTTP beside a node's work."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web

from fleet.nodes import addresses, http_site, running


async def test_serving_until_the_block_ends() -> None:
    """The port it was given answers within, and is free afterwards."""
    app = web.Application()
    async with aiohttp.ClientSession() as session:
        async with (
            http_site.serving(app, ("127.0.0.1", 0)) as bound,
            session.get(f"http://{bound}/") as answer,
        ):
            assert answer.status == 404
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(f"http://{bound}/")


async def test_serving_on_a_port_in_use_says_so() -> None:
    """One sentence with the address."""
    async with http_site.serving(web.Application(), ("127.0.0.1", 0)) as bound:
        host, _, port = bound.rpartition(":")
        with pytest.raises(running.StartError, match=f"cannot listen on {addresses.join(host, int(port))}"):
            async with http_site.serving(web.Application(), (host, int(port))):
                raise AssertionError("two sites on one port")
