"""The channel that finds proxies itself, as far as test_channel.py does not cover it for both transports."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.transport.pick_healthy.tunnelled_channel import TunnelledChannel
from fleet.transport.tls import TLSError, TLSFiles
from tests.fakes.auth_paths import serving_path
from tests.fakes.auths import FakeAuth
from tests.fakes.waiting import eventually


async def test_proxy_of_the_channel_is_known() -> None:
    """When the channel closes, so do its forwarders."""
    auth = await FakeAuth("a").start()
    async with serving_path(lambda: auth.address, "proxy-7") as proxy:
        channel = TunnelledChannel([proxy])
        assert channel.proxy_id == ""
        await channel.channel_ready()
        assert channel.proxy_id == "proxy-7"
        response = await channel.unary_unary("/fake.Who/Unary")(b"", timeout=30)
        assert response == b"a"
        await channel.close()
        assert channel._forwarders == {}
    await auth.stop()


async def test_dead_proxy_is_left(tmp_path: Path) -> None:
    """The connection breaks, and pick_first opens another through another proxy."""
    auth = await FakeAuth("a").start()
    async with serving_path(lambda: auth.address, "p2") as second:
        async with serving_path(lambda: auth.address, "p1") as first:
            channel = TunnelledChannel([first])
            await channel.channel_ready()
            channel._proxy_addresses = [first, second]
        await eventually(lambda: channel.proxy_id == "p2")
        await channel.channel_ready()
        await channel.close()
    await auth.stop()


async def test_invalid_files_are_refused_at_once(tmp_path: Path) -> None:
    """The error comes before the first attempt."""
    with pytest.raises(TLSError):
        TunnelledChannel([("127.0.0.1", 1)], TLSFiles(authority=tmp_path / "none"))
