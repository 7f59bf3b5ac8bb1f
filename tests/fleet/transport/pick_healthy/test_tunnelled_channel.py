"""The channel that finds proxies by itself. What it does beyond that test_channel.py asks of both transports."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.transport.pick_healthy.tunnelled_channel import TunnelledChannel
from fleet.transport.tls import TLSError, TLSFiles
from tests.fakes.auth_paths import serving_path
from tests.fakes.auths import FakeAuth
from tests.fakes.waiting import eventually


async def test_says_which_proxy_it_goes_through() -> None:
    """And when it is closed, so are its passages."""
    auth = await FakeAuth("a").start()
    async with serving_path(lambda: auth.address, "proxy-7") as proxy:
        channel = TunnelledChannel([proxy])
        assert channel.via == ""
        await channel.channel_ready()
        assert channel.via == "proxy-7"
        answer = await channel.unary_unary("/fake.Who/Unary")(b"", timeout=30)
        assert answer == b"a"
        await channel.close()
        assert channel._forwarders == {}
    await auth.stop()


async def test_proxies_that_die_are_left(tmp_path: Path) -> None:
    """Its connection breaks, and pick_first makes another, through another proxy."""
    auth = await FakeAuth("a").start()
    async with serving_path(lambda: auth.address, "p2") as second:
        async with serving_path(lambda: auth.address, "p1") as first:
            channel = TunnelledChannel([first])
            await channel.channel_ready()
            channel._proxies = [first, second]
        await eventually(lambda: channel.via == "p2")
        await channel.channel_ready()
        await channel.close()
    await auth.stop()


async def test_wrong_files_are_told_at_once(tmp_path: Path) -> None:
    """Not by an attempt in the night."""
    with pytest.raises(TLSError):
        TunnelledChannel([("127.0.0.1", 1)], TLSFiles(authority=tmp_path / "none"))
